"""Which calls of rows the extension records: those whose arguments are of types that are taken unchanged.

A recorder is told for each parameter of a row how its argument becomes an input or a static entry, as `codegen` writes
it down for all types of arguments (`_lines`). It answers None to any other call, which the generated function handles.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from weft._base.device import default_device
from weft._base.dtype import DType
from weft._base.size import Size
from weft._lazy.call import ONE, Exact, many
from weft._lazy.infer import call_of
from weft._lazy.native import native
from weft._tensor.generator import default_generator
from weft.ops._kinds import REQUIRED, Kind, Param
from weft.ops._table import OpDef

if TYPE_CHECKING:
    from weft._native import RowRecorder

_Parameter = tuple[str, bool, object]
"""A letter (`native/src/calls.cc` lists them), whether None is the entry for None, and the class or the default."""

_NUMBERS = {"Scalar": "n", "Real": "r", "Whole": "w"}
_CLASSES: dict[str, type] = {"int": int, "float": float, "bool": bool, "str": str, "DType": DType, "DTypeArg": DType}
_LETTERS = {"Dims": "i", "Ints": "i", "int | Sequence[int]": "i", "tuple[int, ...]": "p", "Sequence[int]": "p"}
_IN_ONE_CLASS = {"Dim": "int", "IntDim": "int", "OwnDim": "int"}


def recorder_of(op: OpDef, variadic: str) -> RowRecorder | None:
    """The recorder of a row's calls; None if there is no extension, or a parameter that it does not know.

    `variadic` is the name of the shape parameter whose sizes may be given as separate arguments, or "".
    """
    if native is None or op.view or op.check.limits is not None:
        return None
    parameters: list[_Parameter] = []
    for param in op.params:
        parameter = _parameter(param, param.name == variadic)
        if parameter is None:
            return None
        parameters.append(parameter)
    return native.RowRecorder(op, op.outputs, tuple(parameters), op.public.factory)


def _parameter(param: Param, is_variadic: bool) -> _Parameter | None:
    text = param.text.removesuffix(" | None")
    match param.kind:
        case Kind.ARRAY | Kind.OPERAND:
            # a number for a `Filling` must fit the first input's type
            takes_number = param.kind is Kind.OPERAND and text != "Filling"
            return "o" if takes_number else "t", param.optional or param.default is None, None
        case Kind.SCALAR:
            if param.default in (None, REQUIRED):
                return _NUMBERS[text], param.optional or param.default is None, None
            return _NUMBERS[text], False, param.default
        case Kind.ARRAYS:
            return "l", False, None
        case Kind.SHAPE:
            return ("v", False, None) if is_variadic else ("s", True, None)
        case Kind.KEY:
            return "k", False, None
        case _:
            may_be_none = param.optional or param.default in (None, ())
            text = _IN_ONE_CLASS.get(text, text)
            if text in _CLASSES:
                return "e", may_be_none, _CLASSES[text]
            if text in _LETTERS:
                return _LETTERS[text], may_be_none, None
            return "x" if text == "int | float" else "c", text != "int | float", None


if native is not None:
    native.bind(ONE=ONE, many=many, Exact=Exact, Size=Size, call_of=call_of)
    native.bind(default_device=default_device, draw=default_generator.draw)
