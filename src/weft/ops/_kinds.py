"""The kinds of a row's parameters, which annotations say.

    Array            a tensor
    Array | None     a tensor that may be missing
    Operand          a tensor or a Python number
    Filling          as Operand, but a number must fit the type of the first input, whose elements it replaces
    Scalar           a Python number, an input of the compiled program, never a constant in it; a parameter
                     that is left at its default is static
    Real, Whole      as Scalar, but a real number, or an integer
    Arrays           a sequence of tensors
    Key              a jax random key, supplied by the generator and absent from the public signature
    Dim, Dims        dims; also accepted by name; normalised to be non-negative before the body runs
    IntDim           a dim that is not accepted by name
    OwnDim           as Dim, but the body gets it as given; a name as a negative number, from the first input's back
    Shape            sizes; may be given as one sequence or, when last among positionals, one by one
    OutShape         as Shape; the sizes of the result, or of its dims from the argument `dim` on
    DimList          likewise, but dims, also accepted by name
    DTypeArg         an element type or None (the body gets a `DType`; cast with `.numpy`)
    Ints             one int, or several in a sequence
    int | float      a static Python number whose type matters (2 is not 2.0)
    Groups, Ord, OutputSize, Padding    static values of a few rows, such as the padding of a convolution
    anything else    a hashable static value

The kind is read off the text of the annotation, so every file of rows has `from __future__ import annotations`.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

import jax
import numpy as np

from weft._base.types import AnyCallable

Array = jax.Array
Operand = jax.Array
Filling = jax.Array
Scalar = Any
Real = Any
Whole = Any
Arrays = Sequence[jax.Array]
Key = jax.Array
Dim = Any
IntDim = Any
OwnDim = Any
Dims = Any
Shape = tuple[int, ...]
OutShape = tuple[int, ...]
DimList = tuple[int, ...]
DTypeArg = Any
Ints = int | tuple[int, ...]
Groups = tuple[tuple[int, ...], ...] | None
Ord = float | str
OutputSize = int | tuple[int | None, ...] | None
Padding = str | Ints
HostArray = np.ndarray[Any, Any]
HostDType = np.dtype[Any]


class Kind(Enum):
    """The kind of a row's parameter."""

    ARRAY = "array"
    OPERAND = "operand"
    SCALAR = "scalar"
    ARRAYS = "arrays"
    KEY = "key"
    DIM = "dim"
    DIMS = "dims"
    SHAPE = "shape"
    DTYPE = "dtype"
    STATIC = "static"


class Many:
    """In a call's static part: this parameter takes the next `count` inputs."""

    __slots__ = ("count",)

    def __init__(self, count: int) -> None:
        self.count = count

    def __repr__(self) -> str:
        return f"<{self.count} inputs>"


TENSOR_KINDS = frozenset({Kind.ARRAY, Kind.OPERAND, Kind.ARRAYS})

_KINDS: dict[str, Kind] = {
    "Array": Kind.ARRAY,
    "Array | None": Kind.ARRAY,
    "Operand": Kind.OPERAND,
    "Operand | None": Kind.OPERAND,
    "Filling": Kind.OPERAND,
    "Scalar": Kind.SCALAR,
    "Scalar | None": Kind.SCALAR,
    "Real": Kind.SCALAR,
    "Real | None": Kind.SCALAR,
    "Whole": Kind.SCALAR,
    "Whole | None": Kind.SCALAR,
    "Arrays": Kind.ARRAYS,
    "Key": Kind.KEY,
    "Dim": Kind.DIM,
    "IntDim": Kind.DIM,
    "OwnDim": Kind.STATIC,
    "OwnDim | None": Kind.STATIC,
    "Dims": Kind.DIMS,
    "Shape": Kind.SHAPE,
    "OutShape": Kind.SHAPE,
    "DimList": Kind.SHAPE,
    "DTypeArg": Kind.DTYPE,
}
_STATIC_WORDS = frozenset(
    {"bool", "int", "float", "str", "tuple", "None", "Any", "Ints", "Groups", "Ord", "OutputSize", "Padding"}
)

REQUIRED = inspect.Parameter.empty


@dataclass(frozen=True, slots=True)
class Param:
    """One parameter of a row."""

    name: str
    kind: Kind
    default: Any = REQUIRED
    keyword_only: bool = False
    optional: bool = False  # None is allowed
    text: str = ""  # the annotation


def params_of(impl: AnyCallable) -> tuple[Param, ...]:
    params: list[Param] = []
    for p in inspect.signature(impl).parameters.values():
        if p.annotation is p.empty:
            raise TypeError(
                f"{impl.__module__}.{impl.__name__}: parameter {p.name!r} has no annotation; kinds are read off them"
            )
        if not isinstance(p.annotation, str):
            raise TypeError(f"{impl.__module__} must use `from __future__ import annotations`: kinds are read off them")
        text = p.annotation
        if text not in _KINDS and not _STATIC_WORDS.issuperset(re.findall(r"\w+", text)):
            raise TypeError(
                f"{impl.__module__}.{impl.__name__}: parameter {p.name!r} has the annotation {text!r}, which is none "
                f"of {', '.join(_KINDS)}, and no static value made of {', '.join(sorted(_STATIC_WORDS))}"
            )
        params.append(
            Param(p.name, _KINDS.get(text, Kind.STATIC), p.default, p.kind is p.KEYWORD_ONLY, "None" in text, text)
        )
    return tuple(params)
