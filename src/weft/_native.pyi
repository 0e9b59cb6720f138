"""The extension: kernels for XLA on CPUs, the machine that interprets, and twins of what records (`_lazy/native.py`).

It is there if there was a C++ compiler.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, TypeVar

import numpy as np

from weft._autograd.engine import BackwardPass
from weft._autograd.graph import Vertex
from weft._base.dtype import DType
from weft._base.pending import Pending
from weft._base.state import Ambient
from weft._base.types import Arg
from weft._lazy.infer import Call
from weft._lazy.signature import Signature
from weft._lazy.value import Executed, Value
from weft._tensor.base import TensorBase
from weft._tensor.tensor import Results, Tensor
from weft.nn._module import Module
from weft.ops._kinds import Scalar
from weft.ops._table import OpDef

T = TypeVar("T", bound=TensorBase)

version: int

def bind(**objects: object) -> None:
    """Tell the extension of classes, constants and functions, each once; `native/src/objects.h` lists them."""

def record(
    signature: Signature, inputs: tuple[Value, ...], ambient: Ambient, doubt: Arg = None, /
) -> tuple[Value, ...]: ...
def apply(call: Call, inputs: tuple[Value, ...], /) -> tuple[Value, ...]: ...
def operand(x: Arg, *, name: str = "", op: str = "") -> Value: ...
def finish(op: OpDef, static: tuple[object, ...], values: list[Value], device: Arg = None, /) -> Results: ...
def new_tensor(data: object, dtype: DType | None, /) -> Tensor | None:
    """A new leaf of numbers, or of lists and tuples of them, on the default device; None for what needs `tensor`."""

def look_up(cls: type[Module], /) -> None:
    """Find attributes of this class's instances: their own, and what modules register."""

def wrap(value: Value, /) -> Tensor: ...
def finish_view(op: OpDef, static: tuple[object, ...], values: list[Value], source: Tensor, /) -> Tensor: ...
def write(target: T, value: Value, *, uniform: bool = False) -> T: ...
def replace_value(target: TensorBase, value: Value, /) -> None: ...
def write_result(target: TensorBase, result: object, /) -> bool: ...
def copy_(input: Arg, src: object, non_blocking: object, /) -> Tensor | None: ...
def setitem(x: Arg, index: object, values: object, /) -> bool: ...
def detach(x: Arg, /) -> Tensor | None: ...
def slices(x: Tensor, dim: int, count: int, /) -> Iterator[Tensor]: ...
def iterate(x: Arg, /) -> Iterator[Tensor] | None: ...
def getitem(x: Arg, index: object, /) -> Tensor | None: ...
def select(input: Arg, dim: object, index: object, /) -> Tensor | None: ...
def narrow(input: Arg, dim: object, start: object, length: object, /) -> Tensor | None: ...
def unbind(input: Arg, dim: object, /) -> tuple[Tensor, ...] | None: ...
def split(input: Arg, sizes: object, dim: object, other: object, /) -> tuple[Tensor, ...] | None: ...
def chunk(input: Arg, chunks: object, dim: object, /) -> tuple[Tensor, ...] | None: ...
def tick() -> int:
    """The number of the next recording."""

def flush(pending: Pending, /) -> bool:
    """Compute the living values of a list by a program that is interpreted; False if they are left as they were."""

def host(tensor: Arg, decides: bool = False, /) -> np.ndarray: ...
def item(tensor: Tensor, decides: bool = False, /) -> Scalar: ...

def walk(backward: BackwardPass, stack: list[Vertex], spent: list[Vertex], groups: dict[int, list[Vertex]], /) -> None:
    """Visit what the vertices on the stack depend on."""

def execute(backward: BackwardPass, vertices: list[Vertex], /) -> None:
    """Propagate gradients through applications, where all gradients are wanted and nothing is watched."""

def drop_values(left: Iterable[Executed], /) -> None: ...
def forget_programs() -> None:
    """Forget which graphs have which programs."""

class Recorder:
    """Records a call of a row on one or two operands; returns None if the call needs the general function."""

    def __init__(self, call: Call, operands: int, takes_number: bool = False) -> None: ...
    def __call__(self, *operands: Arg) -> Tensor | None: ...

class RowRecorder:
    """Records a call of a row whose arguments are of common types; returns None if it needs the general function."""

    def __init__(
        self,
        op: OpDef,
        outputs: tuple[str, ...],
        parameters: tuple[tuple[str, bool, object], ...],
        makes: bool,
    ) -> None: ...
    def __call__(self, *arguments: Arg) -> Results | None: ...
class ViewRecorder:
    """Records a call of a view row with arguments that it has learnt; returns None for any other.

    The arguments after the first are ints, None or tuples of ints; `variadic` says that there is one tuple of sizes,
    and after it only options at their defaults.
    """

    def __init__(self, variadic: bool, /) -> None: ...
    def __call__(self, input: Arg, *args: object) -> Tensor | None: ...
    def learn(self, call: Call, /, *args: object) -> None:
        """Remember which call these arguments are, unless equal ones may mean something else."""

class Fragment:
    """What an application computes, as steps over registers that show parts of buffers.

    buffers    for each its bytes, or the array of a constant
    registers  (buffer, offset, shape, strides, dtype), first those of the inputs; the buffer ~k is what has input k
    inputs     how many there are
    outputs    numbers of registers
    steps      (kind, payload, flags, registers of the results, registers of the operands)
    """

    def __new__(
        cls,
        buffers: Sequence[int | np.ndarray],
        registers: Sequence[tuple[int, int, Sequence[int], Sequence[int], np.dtype]],
        inputs: int,
        outputs: Sequence[int],
        steps: Sequence[tuple[int, object, int, Sequence[int], Sequence[int]]],
        /,
    ) -> Fragment: ...

class Machine:
    """Fragments joined to a program. Call it with its inputs: arrays of the right types, or numbers.

    inputs   registers, of which the buffers do not count
    parts    (fragment, entries that it takes); entries are the inputs, then the outputs of each part
    outputs  numbers of entries
    """

    def __new__(
        cls,
        inputs: Sequence[tuple[int, int, Sequence[int], Sequence[int], np.dtype]],
        parts: Sequence[tuple[Fragment, Sequence[int]]],
        outputs: Sequence[int],
        /,
    ) -> Machine: ...
    def __call__(self, inputs: Sequence[Any], /) -> list[np.ndarray]: ...
    def calls(self) -> list[Callable[..., Any]]:
        """The functions that it calls, since no loops of its own compute them."""

def set_threads(count: int, /) -> None:
    """On how many threads the machine computes at most."""

# Only where the CPU has AVX2:
matmul: np.ufunc
"""`np.matmul` for matrices of float32 or float64."""
erf: np.ufunc
erfc: np.ufunc
logistic: np.ufunc
"""Functions of float32 numbers."""

def has_loop(ufunc: np.ufunc, types: tuple[np.dtype, ...], /) -> bool:
    """Whether NumPy has a loop for operands of exactly these types."""

def has_copy(source: np.dtype, target: np.dtype, /) -> bool:
    """Whether there is a loop that converts elements of one type to another."""

def watch(received: list[Any], poll: Callable[[], object], quiet: Callable[[], Any], /) -> None:
    """Call `poll` before long steps while the list of signals is not empty, and functions within `quiet()`."""
