"""The operator table: one row per operator.

A row is a function over jax arrays under `@defop`. Its parameters are PyTorch's, in PyTorch's order; their annotations
say what they are (see `_kinds`). What else is to be known stands in records, one for each purpose:

    dims        how dims of the result follow from dims of the inputs (see `_dims`)
    types       `Types`: which types it takes and gives, and in which it computes
    derivative  `Derivative`: how it is differentiated
    public      `Public`: the names under which users call it, and the forms: method, in place, `out=`
    shards      `Shards`: what follows for inputs that are split over a mesh, beside what `dims` says
    view        `View`: how its result lies in the memory of its first input
    check       `Check`: what is checked when it is called, or when it runs
    native      bodies for some devices (see `_native`)

A record that is not given has its defaults. Records that many rows share have names here, such as `IN_PLACE`; others
are shared within a file of rows, mostly by a decorator made of `defop`.
Functions, methods, special methods, in-place and `out=` forms, and type stubs are derived from the row.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import Protocol

from weft._base.dtype import DType
from weft._base.types import AnyCallable
from weft.errors import IndexValueError, WeftError
from weft.ops._autocast import ACCELERATOR_FLOAT32, Cast, CastClass, PerDevice
from weft.ops._dims import OfShapes, Rule, Sizes, Static, pointwise, rule_of
from weft.ops._kinds import Param, params_of
from weft.ops._native import Native
from weft.ops._strides import Rule as Layout


class Promote(Enum):
    """What happens to the dtypes of tensor inputs before the body runs."""

    NONE = "each input keeps its dtype"
    COMMON = "all inputs are cast to PyTorch's result type"
    FLOAT = "as COMMON, then integers become the default float type"


class Arithmetic(Enum):
    """How the body computes; the derivative, too."""

    WIDE = "16-bit floats in float32; the result is rounded once, at the end"
    OWN = "in the type of the inputs, as products that add up in float32 by themselves do"
    NONE = "not at all: elements are moved, chosen or drawn"


@dataclass(frozen=True, slots=True)
class Types:
    """Which types a row takes and gives, and in which it computes.

    autocast       the class: what happens to floating inputs in regions of `weft.autocast`
    exact_numbers  Python numbers beside 16-bit floats are rounded to float32, not to the 16-bit type
    of_numbers     it may be called with Python numbers only
    result         (types of the inputs, *params) -> the result's: for rows that change of what values are parts
    """

    promote: Promote = Promote.NONE
    autocast: CastClass | PerDevice = Cast.NONE
    arithmetic: Arithmetic = Arithmetic.WIDE
    exact_numbers: bool = False
    of_numbers: bool = False
    result: AnyCallable | None = None


COMMON_TYPE = Types(promote=Promote.COMMON)
FLOAT_TYPE = Types(promote=Promote.FLOAT)
IN_FLOAT32 = Types(autocast=Cast.FLOAT32)
ACCELERATOR_IN_FLOAT32 = Types(autocast=ACCELERATOR_FLOAT32)
LOWERED = Types(autocast=Cast.LOWER, arithmetic=Arithmetic.OWN)
OWN_ARITHMETIC = Types(arithmetic=Arithmetic.OWN)
NO_ARITHMETIC = Types(arithmetic=Arithmetic.NONE)


GradName = str | Callable[[tuple[tuple[int, ...], ...], tuple[int, ...]], str]
"""A name, or (shapes of the inputs, shape of the output) -> name."""


@dataclass(frozen=True, slots=True)
class Derivative:
    """How a row is differentiated.

    vjp     (g, out, *params) -> a gradient or None for each tensor input; it may name only those that it needs.
            Of one output, cotangents `g` and outputs `out` are given plainly, of several as tuples; a missing cotangent
            as zeros. Without it, it is `jax.vjp` of the body
    aux     how many trailing outputs of the body only the derivative reads
    saves   PyTorch saves tensors here, so a second backward pass is refused even if ours reads no array
    name    what PyTorch calls the derivative, where that is not the row's own name
    exists  whether there is one; no gradients flow otherwise
    """

    vjp: AnyCallable | None = None
    aux: int = 0
    saves: bool = False
    name: GradName = ""
    exists: bool = True


NO_DERIVATIVE = Derivative(exists=False)
SAVES = Derivative(saves=True)


@dataclass(frozen=True, slots=True)
class Public:
    """The names under which users call a function, and its further forms: of a row, or of one composed of rows.

    function    whether the module exports it
    module      the public module: "" is the package, "nn.functional", "linalg"
    also        further modules that export it; "special.expit" also gives its name there
    method      name of the `Tensor` method; "" for none; None: its own name if its first parameter is `input` and
                `module` is the package
    attribute   whether tensors have it as a property
    dunder      the special methods that it is: `("__add__", "__radd__")`
    inplace     whether there is a form, whose name ends with an underscore, that writes the result to the first input
    uniform     whether all elements of the result are equal; then it may be written where elements overlap
    inplace_argument  whether `nn.functional` has it with an argument `inplace`
    out         the error for an `out` of another type than the result's; "" if any type may be given to which it can
                be cast. None: that follows from the row, and functions composed of rows have no `out=`
    out_decides whether the result takes the type of `out`, unless `dtype` is given
    separate    inputs that must not share any element with what is written in place or to `out`
    factory     whether it takes the arguments of factories: `device`, `requires_grad`, …
    older       whether it still takes its numbers before its last tensors, as before PyTorch 1.5
    """

    function: bool = True
    module: str = ""
    also: tuple[str, ...] = ()
    method: str | None = None
    attribute: bool = False
    dunder: tuple[str, ...] = ()
    inplace: bool = False
    uniform: bool = False
    inplace_argument: bool = False
    out: str | None = None
    out_decides: bool = False
    separate: tuple[str, ...] = ()
    factory: bool = False
    older: bool = False

    def has_forms(self) -> bool:
        """Whether users can call it at all."""
        return bool(self.function or self.also or self.method or self.attribute or self.dunder or self.inplace)

    def named(self, name: str, parameters: Sequence[str]) -> Public:
        """With the name of the method, for a function that has this name and these parameters."""
        if self.method is not None:
            return self
        return replace(self, method=name if parameters[:1] in (["input"], ("input",)) and not self.module else "")


PLAIN = Public()
IN_PLACE = Public(inplace=True)
INTERNAL = Public(function=False, method="")
NO_FUNCTION = Public(function=False)
NO_METHOD = Public(method="")
IN_FUNCTIONAL = Public(module="nn.functional")
IN_LINALG = Public(module="linalg")

# The fields are the types of the result and of `out`, in PyTorch's names (2 and 3) and in those of C++ (0 and 1).
OTHER_OUT = "Expected out tensor to have dtype {2}, but got {3} instead"
_OTHER_ELEMENTS = "Found dtype {1} but expected {0}"


Partial = str | Callable[[Static], "str | OpDef"]
"""A reduction, or (static arguments by name) -> a reduction, or "" for none.

For means of which parts may have different divisors, it is the row that computes the divisor of a part.
"""

Drawn = Callable[[Sequence[Sizes], Static], Sizes]
"""(shapes of the tensor inputs, static arguments by name) -> sizes of the array that a random row draws.

It broadcasts to the result; only dims that are never split may have other sizes.
"""


@dataclass(frozen=True, slots=True)
class Shards:
    """What a row computes of inputs that are split over a mesh, beside what its dims rule says.

    partial  how shards of a reduced dim are put together: "sum", "avg", "prod", "min", "max"
    linear   where partial sums may pass: the "first" input, "each" input alone, or "all" together
    addend   the input that is added to what is summed over reduced dims; one shard adds it
    drawn    for random rows of which parts draw their own numbers: the sizes of what is drawn
    """

    partial: Partial = ""
    linear: str = ""
    addend: str = ""
    drawn: Drawn | None = None


IS_LINEAR = Shards(linear="each")


@dataclass(frozen=True, slots=True)
class View:
    """How the result of a row lies in the memory of its first input.

    layout     (the input's layout, *params) -> the result's (see `_strides`)
    write      (base, value, *params) -> the new base; without it, it is the linear transpose of the body
    by_layout  whether for some layouts the result is a copy, or the call is refused
    spreads    whether an element may be seen in several places
    """

    layout: Layout
    write: AnyCallable | None = None
    by_layout: bool = False
    spreads: bool = False


class InputType(Protocol):
    """What is known of an input before the row runs."""

    @property
    def shape(self) -> Sizes:
        """The sizes."""
        ...

    @property
    def dtype(self) -> DType:
        """The type of the elements, before promotion."""
        ...


@dataclass(frozen=True, slots=True)
class Check:
    """What is checked of the arguments of a row, beside what its body refuses.

    elements  *params, or those that it needs -> bool array, true where one is bad, or `Misses` or `Failures` (see
              `_findings`); None if that depends on types only. It runs with the row, and the error comes where values
              are read
    text      of the error for bad elements
    error     its class
    limits    called with the `Scalar`s as given; raises if one is out of range
    inputs    called with the types of inputs by name; raises, or returns the text of a warning, or ""
    """

    elements: AnyCallable | None = None
    text: str = ""
    error: type[WeftError] = IndexValueError
    limits: Callable[..., None] | None = None
    inputs: Callable[[Mapping[str, InputType]], str] | None = None


@dataclass(frozen=True, eq=False)
class OpDef:
    """One row of the table."""

    name: str
    impl: AnyCallable
    params: tuple[Param, ...]
    dims: Rule | None = None
    outputs: tuple[str, ...] = ()  # names of the outputs when there are several
    types: Types = Types()
    derivative: Derivative = Derivative()
    public: Public = INTERNAL
    shards: Shards = Shards()
    view: View | None = None
    check: Check = Check()
    native: tuple[Native, ...] = ()  # bodies for some devices, in the order of preference
    # For arrays on the host, as NumPy's: (array, numbers, **static arguments) -> a view of it. Of a row that is no
    # view, it writes to the first array and returns that.
    host: AnyCallable | None = None
    doc: str = ""

    def __repr__(self) -> str:
        return f"<op {self.name}>"


_OF_VJP = ("g", "out")


def _of_all_params(function: AnyCallable, params: Sequence[Param], first: tuple[str, ...] = ()) -> AnyCallable:
    """A function of `first` and all parameters of a row, of one that may name only those that it needs."""
    names = [*first, *(p.name for p in params)]
    defaults = {p.name: p.default for p in params}
    own = inspect.signature(function).parameters.values()
    if len(own) == len(names) or any(p.kind in (p.VAR_POSITIONAL, p.VAR_KEYWORD) for p in own):
        return function
    unknown = [p.name for p in own if p.name not in names and p.default is p.empty]
    if unknown:
        raise TypeError(f"{function.__module__}.{function.__name__}: {', '.join(unknown)} are no parameters of its row")
    wanted = [p.name for p in own if p.name in names and p.kind is not p.KEYWORD_ONLY]
    by_keyword = [p.name for p in own if p.name in names and p.kind is p.KEYWORD_ONLY]

    def call(*args: object, **kwargs: object) -> object:
        arguments = {**defaults, **dict(zip(names, args, strict=False)), **kwargs}
        return function(*[arguments[name] for name in wanted], **{name: arguments[name] for name in by_keyword})

    return call


def _native_of_all_params(native: Native, params: Sequence[Param]) -> Native:
    vjp = native.vjp and _of_all_params(native.vjp, params, _OF_VJP)
    return replace(
        native, serves=_of_all_params(native.serves, params), impl=_of_all_params(native.impl, params), vjp=vjp
    )


# no cell: filled when the library is imported
TABLE: dict[str, OpDef] = {}


def defop(
    name: str | None = None,
    *,
    dims: Rule | OfShapes | None = None,
    outputs: Sequence[str] = (),
    types: Types | None = None,
    derivative: Derivative = Derivative(),
    public: Public = PLAIN,
    shards: Shards = Shards(),
    view: View | None = None,
    check: Check = Check(),
    native: Sequence[Native] = (),
    host: AnyCallable | None = None,
) -> Callable[[AnyCallable], OpDef]:
    """Make a row of the decorated body.

    `name` defaults to the body's name without a trailing underscore. Without `types`, views compute nothing. An `out`
    of another type is refused, unless inputs are promoted or `public.out` says otherwise.
    """

    def make(impl: AnyCallable) -> OpDef:
        row_name = name or impl.__name__.rstrip("_")
        if row_name in TABLE:
            raise ValueError(f"operator {row_name!r} has two rows; give one of them another name")
        params = params_of(impl)
        own_types = types or (NO_ARITHMETIC if view else Types())
        named = public.named(row_name, [p.name for p in params])
        if named.out is None and view is None and not named.factory:
            usual = _OTHER_ELEMENTS if dims is pointwise else OTHER_OUT
            named = replace(named, out=usual if own_types.promote is Promote.NONE else "")
        row = TABLE[row_name] = OpDef(
            row_name,
            impl,
            params,
            dims=dims and rule_of(dims),
            outputs=tuple(outputs),
            types=own_types,
            derivative=replace(derivative, vjp=derivative.vjp and _of_all_params(derivative.vjp, params, _OF_VJP)),
            public=named,
            shards=shards,
            view=view,
            check=replace(check, elements=check.elements and _of_all_params(check.elements, params)),
            native=tuple(_native_of_all_params(one, params) for one in native),
            host=host,
            doc=inspect.getdoc(impl) or "",
        )
        return row

    return make
