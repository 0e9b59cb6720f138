"""Rows of comparison, choice, logic and bits."""

from __future__ import annotations

from collections.abc import Callable

import jax.numpy as jnp

from weft._base.dtype import BOOL, FLOAT, INTEGER, from_numpy
from weft.errors import DTypeError
from weft.ops._dims import pointwise
from weft.ops._kinds import Array, Operand, Real
from weft.ops._neural import like
from weft.ops._rows import alias, category, documented, require
from weft.ops._table import COMMON_TYPE, IN_PLACE, Arithmetic, Check, OpDef, Promote, Public, Types, defop
from weft.ops._type_names import scalar_name

Binary = Callable[[Array, Array], Array]


# ---- comparison


def _comparison(name: str, compare: Binary, doc: str, ordered: bool) -> OpDef:
    """A row that compares; `ordered` ones refuse complex numbers."""

    def body(input: Array, other: Operand) -> Array:
        if ordered:
            require(input, f"{name}_cpu", BOOL, INTEGER, FLOAT)
        return compare(input, other)

    row = defop(name, dims=pointwise, types=COMMON_TYPE, public=Public(dunder=(f"__{name}__",), inplace=True))
    return row(documented(body, name, doc))


eq = _comparison("eq", jnp.equal, "Whether two elements are equal.", ordered=False)
ne = _comparison("ne", jnp.not_equal, "Whether two elements differ.", ordered=False)
lt = _comparison("lt", jnp.less, "Whether `input` is less than `other`.", ordered=True)
le = _comparison("le", jnp.less_equal, "Whether `input` is at most `other`.", ordered=True)
gt = _comparison("gt", jnp.greater, "Whether `input` is greater than `other`.", ordered=True)
ge = _comparison("ge", jnp.greater_equal, "Whether `input` is at least `other`.", ordered=True)

for _row, _name in (
    (ne, "not_equal"),
    (lt, "less"),
    (le, "less_equal"),
    (gt, "greater"),
    (ge, "greater_equal"),
):
    alias(_row, _name)


def _require_tolerances(rtol: float, atol: float) -> None:
    for name, value in (("rtol", rtol), ("atol", atol)):
        if value < 0:
            raise DTypeError(f"{name} must be greater than or equal to zero, but got {value}")


# In the inputs' own type, as PyTorch's, which composes it of operators of 16-bit floats.
@defop(dims=pointwise, check=Check(limits=_require_tolerances), types=Types(arithmetic=Arithmetic.OWN))
def isclose(input: Array, other: Array, rtol: Real = 1e-05, atol: Real = 1e-08, equal_nan: bool = False) -> Array:
    """Whether `|input - other| <= atol + rtol * |other|`; infinities are close when equal."""
    if input.dtype != other.dtype:
        words = [scalar_name(from_numpy(x.dtype)) for x in (input, other)]
        raise DTypeError(f"{words[0]} did not match {words[1]}")
    if category(input) < FLOAT:
        input, other = input.astype(jnp.float64), other.astype(jnp.float64)
    error = jnp.abs(input - other)
    most = like(atol, error) + jnp.abs(like(rtol, other) * other)
    close = (input == other) | (jnp.isfinite(error) & (error <= most))
    return close | ((input != input) & (other != other)) if equal_nan else close


@defop(
    types=Types(promote=Promote.COMMON, arithmetic=Arithmetic.NONE),
    dims=pointwise,
    public=Public(function=False, method="", out="Expected out type to be {0} but got {1}"),
)
def where(condition: Array, input: Operand, other: Operand) -> Array:
    """`input` where `condition` is true, else `other`."""
    return jnp.where(condition.astype(bool), input, other)  # promotion has cast the condition too


# ---- logic: each element counts as true when it is not zero


def _logical(name: str, function: Binary, doc: str) -> OpDef:
    def body(input: Array, other: Array) -> Array:
        return function(input, other)

    return defop(name, dims=pointwise, public=Public(inplace=True, out=""))(documented(body, name, doc))


for _name, _function, _doc in (
    ("logical_and", jnp.logical_and, "Whether both elements are true."),
    ("logical_or", jnp.logical_or, "Whether one element is true."),
    ("logical_xor", jnp.logical_xor, "Whether exactly one element is true."),
):
    _logical(_name, _function, _doc)


@defop(dims=pointwise, public=Public(inplace=True, out=""))
def logical_not(input: Array) -> Array:
    """Whether the element is zero."""
    return jnp.logical_not(input)


# ---- bits


def _bitwise(name: str, function: Binary, doc: str, word: str, kernel: str, *categories: int) -> OpDef:
    """A row that works on bits; `word` names its operator, as in `__and__`."""

    def body(input: Operand, other: Operand) -> Array:
        require(input, kernel, *categories)
        return function(input, other)

    row = defop(
        name, dims=pointwise, types=COMMON_TYPE, public=Public(dunder=(f"__{word}__", f"__r{word}__"), inplace=True)
    )
    return row(documented(body, name, doc))


for _name, _function, _doc in (
    ("and", jnp.bitwise_and, "Bits that are set in both elements."),
    ("or", jnp.bitwise_or, "Bits that are set in one element."),
    ("xor", jnp.bitwise_xor, "Bits that are set in exactly one element."),
):
    _bitwise(f"bitwise_{_name}", _function, _doc, _name, f"bitwise_{_name}_cpu", BOOL, INTEGER)

for _name, _function, _doc, _word in (
    ("left", jnp.left_shift, "`input * 2**other`; bits shifted out are lost.", "lshift"),
    ("right", jnp.right_shift, "`input / 2**other` rounded down.", "rshift"),
):
    _bitwise(f"bitwise_{_name}_shift", _function, _doc, _word, f"{_word}_cpu", INTEGER)


@defop(dims=pointwise, public=IN_PLACE)
def bitwise_not(input: Array) -> Array:
    """Every bit inverted; for booleans, the logical not."""
    require(input, "bitwise_not_cpu", BOOL, INTEGER)
    return jnp.bitwise_not(input)
