"""The operator table: one row per operator.

A row is a function over jax arrays under `@defop`. Its parameters are PyTorch's, in PyTorch's order, and their
annotations say what they are:

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
    anything else    a hashable static value

The kind is read off the text of the annotation, so every file of rows has `from __future__ import annotations`.
Functions, methods, dunders, in-place and `out=` forms, and type stubs are derived from the row.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

import jax

from weft._base.dtype import DType
from weft.errors import IndexValueError, WeftError
from weft.ops._dims import Rule, Sizes, pointwise
from weft.ops._native import Native
from weft.ops._strides import Rule as View

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


class Promote(Enum):
    """What happens to the dtypes of tensor inputs before the body runs."""

    NONE = "each input keeps its dtype"
    COMMON = "all inputs are cast to PyTorch's result type"
    FLOAT = "as COMMON, then integers become the default float type"


class Cast(Enum):
    """What autocast does to floating inputs: a row's class."""

    NONE = "nothing"
    LOWER = "cast to the lower precision type"
    FLOAT32 = "cast to float32"
    PROMOTE = "cast to the widest floating type among the inputs"


@dataclass(frozen=True, slots=True)
class Banned:
    """The autocast class of what is refused, with what to do instead."""

    advice: str


CastClass = Cast | DType | Banned
"""An autocast class. A `DType` is the type to which floating inputs are cast."""


@dataclass(frozen=True, slots=True)
class PerDevice:
    """A row's autocast classes where they differ: on the CPU, and on accelerators, which all have CUDA's."""

    cpu: CastClass = Cast.NONE
    accelerator: CastClass = Cast.NONE


def class_on(cast: CastClass | PerDevice, device_type: str) -> CastClass:
    """The autocast class on devices of a type."""
    if not isinstance(cast, PerDevice):
        return cast
    return cast.cpu if device_type == "cpu" else cast.accelerator


CPU_FLOAT32 = PerDevice(cpu=Cast.FLOAT32)
ACCELERATOR_FLOAT32 = PerDevice(accelerator=Cast.FLOAT32)
ACCELERATOR_LOWER = PerDevice(accelerator=Cast.LOWER)
ACCELERATOR_PROMOTE = PerDevice(accelerator=Cast.PROMOTE)


class Arithmetic(Enum):
    """How the body computes."""

    WIDE = "16-bit floats in float32; the result is rounded once, at the end"
    OWN = "in the type of the inputs, as products that add up in float32 by themselves do"
    NONE = "not at all: elements are moved, chosen or drawn"


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


GradName = str | Callable[[tuple[tuple[int, ...], ...], tuple[int, ...]], str]
"""A name, or (shapes of the inputs, shape of the output) -> name."""

Partial = str | Callable[[Mapping[str, Any]], str]
"""A reduction, or (static arguments by name) -> a reduction, or "" for none."""

Drawn = Callable[[Sequence[Sizes], Mapping[str, Any]], Sizes]
"""(shapes of the tensor inputs, static arguments by name) -> sizes of the array that a random row draws.

It broadcasts to the result; only dims that are never split may have other sizes.
"""

TENSOR_KINDS = frozenset({Kind.ARRAY, Kind.OPERAND, Kind.ARRAYS})
INPUT_KINDS = TENSOR_KINDS | {Kind.SCALAR, Kind.KEY}

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
_STATIC_WORDS = frozenset({"bool", "int", "float", "str", "tuple", "None", "Any", "Ints"})

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


@dataclass(frozen=True, eq=False)
class OpDef:
    """One row of the table."""

    name: str
    impl: Callable[..., Any]
    params: tuple[Param, ...]
    dims: Rule | None = None
    promote: Promote = Promote.NONE
    cast: CastClass | PerDevice = Cast.NONE
    arithmetic: Arithmetic = Arithmetic.WIDE
    exact_numbers: bool = False  # Python numbers beside 16-bit floats are rounded to float32, not to the 16-bit type
    vjp: Callable[..., Any] | None = None
    outputs: tuple[str, ...] = ()  # names of the outputs when there are several
    aux: int = 0  # trailing outputs that only the derivative reads
    partial: Partial = ""  # how shards of a reduced dim are put together: "sum", "avg", "prod", "min", "max"
    addend: str = ""  # the input that is added to what is summed over reduced dims; one shard adds it
    divisor: OpDef | None = None  # for losses: by what a mean divides, where parts may have different ones
    linear: str = ""  # where partial sums may pass: the "first" input, "each" input alone, or "all" together
    view: View | None = None  # where the result aliases the first input: (its layout, *params) -> the result's
    by_layout: bool = False  # whether for some layouts the result is a copy, or the call is refused
    itself: Callable[..., bool] | None = None  # (type of the input, *params) -> whether the result is the input itself
    spreads: bool = False  # whether an element may be seen in several places
    write: Callable[..., Any] | None = None  # for views: (base, value, *params) -> the new base
    host: Callable[..., Any] | None = None  # for views: (NumPy array, numbers, **static arguments) -> a view of it
    overwrites: bool = False  # whether `host` writes to its first argument, and returns that
    check: Callable[..., Any] | None = None  # impl's parameters -> bool array, true where bad, or `Misses`; or None
    check_text: str = ""
    check_error: type[WeftError] = IndexValueError
    warning: Callable[[Sequence[Sizes]], str] | None = None  # shapes -> the text of a warning, or ""
    differentiable: bool = True
    saves: bool = False  # PyTorch saves tensors here, so a second backward pass is refused even if ours reads no array
    grad_name: GradName = ""  # what PyTorch calls the derivative, where it is not the row's own name
    function: bool = True  # whether the package exports a function of this name
    method: str = ""  # name of the Tensor method, or ""
    property: bool = False  # whether tensors have it as a property
    dunder: tuple[str, ...] = ()
    inplace: bool = False
    uniform: bool = False  # whether all elements of the result are equal; then it may be written where elements overlap
    inplace_argument: bool = False  # whether `nn.functional` has it with an argument `inplace`
    out_text: str = ""  # the error for an `out` of another type than the result's; "" if any type may be given
    out_decides: bool = False  # whether the result takes the type of `out`, unless `dtype` is given
    separate: tuple[str, ...] = ()  # inputs that must not share any element with what is written in place or to `out`
    drawn: Drawn | None = None  # for random rows of which parts draw their own numbers: the sizes of what is drawn
    factory: bool = False  # whether it takes the arguments of factories: `device`, `requires_grad`, …
    module: str = ""  # public module that exports it: "" is the package, "nn.functional", "linalg"
    also: tuple[str, ...] = ()  # further modules that export it; "special.expit" also gives its name there
    doc: str = ""
    names: bool = False  # whether it gives its results names of dims
    of_numbers: bool = False  # whether it may be called with Python numbers only
    limits: Callable[..., None] | None = None  # called with the `Scalar`s as given; raises if one is out of range
    types: Callable[[Mapping[str, DType]], None] | None = None  # called with the types before promotion; may raise
    older: bool = False  # whether it still takes its numbers before its last tensors, as before version 1.5
    native: tuple[Native, ...] = ()  # bodies for some devices, in the order of preference
    result_type: Callable[..., Any] | None = None  # (types of the inputs, *params) -> the result's, of other shardings

    def __repr__(self) -> str:
        return f"<op {self.name}>"

    def partial_of(self, static: Mapping[str, Any]) -> str:
        """How shards of a reduced dim are put together in a call with these static arguments."""
        return self.partial if isinstance(self.partial, str) else self.partial(static)


# no cell: filled when the library is imported
TABLE: dict[str, OpDef] = {}

# The fields are the types of the result and of `out`, in PyTorch's names (2 and 3) and in those of C++ (0 and 1).
OTHER_OUT = "Expected out tensor to have dtype {2}, but got {3} instead"
_OTHER_ELEMENTS = "Found dtype {1} but expected {0}"


def _params(impl: Callable[..., Any]) -> tuple[Param, ...]:
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


def _is_lowered(cast: CastClass | PerDevice) -> bool:
    """Whether autocast lowers a row on some device."""
    return any(class_on(cast, device_type) is Cast.LOWER for device_type in ("cpu", "cuda"))


def defop(
    name: str | None = None,
    *,
    dims: Rule | None = None,
    promote: Promote = Promote.NONE,
    cast: CastClass | PerDevice = Cast.NONE,
    arithmetic: Arithmetic | None = None,
    exact_numbers: bool = False,
    vjp: Callable[..., Any] | None = None,
    outputs: Sequence[str] = (),
    aux: int = 0,
    partial: Partial = "",
    addend: str = "",
    divisor: OpDef | None = None,
    linear: str = "",
    view: View | None = None,
    by_layout: bool = False,
    itself: Callable[..., bool] | None = None,
    spreads: bool = False,
    write: Callable[..., Any] | None = None,
    host: Callable[..., Any] | None = None,
    overwrites: bool = False,
    check: Callable[..., Any] | None = None,
    check_text: str = "",
    check_error: type[WeftError] = IndexValueError,
    warning: Callable[[Sequence[Sizes]], str] | None = None,
    differentiable: bool = True,
    saves: bool = False,
    grad_name: GradName = "",
    function: bool = True,
    method: bool | str | None = None,
    property: bool = False,
    dunder: str | Sequence[str] = (),
    inplace: bool = False,
    uniform: bool = False,
    inplace_argument: bool = False,
    out_text: str | None = None,
    out_decides: bool = False,
    separate: Sequence[str] = (),
    drawn: Drawn | None = None,
    factory: bool = False,
    module: str = "",
    also: str | Sequence[str] = (),
    names: bool = False,
    of_numbers: bool = False,
    limits: Callable[..., None] | None = None,
    types: Callable[[Mapping[str, DType]], None] | None = None,
    older: bool = False,
    native: Sequence[Native] = (),
) -> Callable[[Callable[..., Any]], OpDef]:
    """Make a row of the decorated body.

    `name` defaults to the body's name without a trailing underscore. A body whose first parameter is called `input`
    also becomes a Tensor method, unless `method` says otherwise. `vjp` takes the cotangent(s), the output(s) and then
    the body's parameters, and returns one gradient (or None) for each tensor input; several cotangents and outputs are
    given as tuples, a missing cotangent as zeros. Without `vjp` the derivative is `jax.vjp` of the body. An `out` of
    another type is refused, unless inputs are promoted or `out_text` says otherwise. `arithmetic` holds for the
    derivative too; its default is NONE for views, OWN for rows that autocast casts to the lower type, else WIDE.
    """

    def make(impl: Callable[..., Any]) -> OpDef:
        row_name = name or impl.__name__.rstrip("_")
        if row_name in TABLE:
            raise ValueError(f"operator {row_name!r} has two rows; give one of them another name")
        params = _params(impl)
        is_method = method if method is not None else bool(params) and params[0].name == "input" and not module
        text = out_text
        if text is None:
            text = "" if promote is not Promote.NONE else _OTHER_ELEMENTS if dims is pointwise else OTHER_OUT
        usual = Arithmetic.NONE if view else Arithmetic.OWN if _is_lowered(cast) else Arithmetic.WIDE
        row = OpDef(
            row_name,
            impl,
            params,
            dims,
            promote,
            cast,
            arithmetic or usual,
            exact_numbers,
            vjp,
            tuple(outputs),
            aux,
            partial,
            addend,
            divisor,
            linear,
            view,
            by_layout,
            itself,
            spreads,
            write,
            host,
            overwrites,
            check,
            check_text,
            check_error,
            warning,
            differentiable,
            saves,
            grad_name,
            function,
            row_name if is_method is True else is_method or "",
            property,
            (dunder,) if isinstance(dunder, str) else tuple(dunder),
            inplace,
            uniform,
            inplace_argument,
            text,
            out_decides,
            tuple(separate),
            drawn,
            factory,
            module,
            (also,) if isinstance(also, str) else tuple(also),
            inspect.getdoc(impl) or "",
            names,
            of_numbers,
            limits,
            types,
            older,
            tuple(native),
        )
        TABLE[row_name] = row
        return row

    return make
