"""The extension: kernels for XLA on CPUs, and twins in C++ of what records (`weft/_base/native.py`).

It is there if there was a C++ compiler.
"""

from weft._base.pending import Pending
from weft._base.state import Ambient
from weft._base.types import Arg
from weft._lazy.infer import Call
from weft._lazy.signature import Signature
from weft._lazy.value import Value
from weft._tensor.tensor import Results, Tensor
from weft.ops._table import OpDef

def bind(**objects: object) -> None:
    """Tell the extension of classes, constants and functions, each once; `native/src/objects.h` lists them."""

def record(
    signature: Signature, inputs: tuple[Value, ...], ambient: Ambient, doubt: Arg = None, /
) -> tuple[Value, ...]: ...
def apply(call: Call, inputs: tuple[Value, ...], /) -> tuple[Value, ...]: ...
def operand(x: Arg, *, name: str = "", op: str = "") -> Value: ...
def finish(op: OpDef, static: tuple[object, ...], values: list[Value], device: Arg = None, /) -> Results: ...
def wrap(value: Value, /) -> Tensor: ...
def tick() -> int:
    """The number of the next recording."""

def flush(pending: Pending, always: bool, /) -> bool:
    """Compute the living values of a list by a program that is interpreted; False if they are left as they were.

    With `always`, also if the program would be compiled by now.
    """

def forget_programs() -> None:
    """Forget which graphs have which programs."""

class Recorder:
    """Records a call of a row on one or two operands; returns None if the call needs the general function."""

    def __init__(self, call: Call, operands: int, takes_number: bool = False) -> None: ...
    def __call__(self, *operands: Arg) -> Tensor | None: ...
