"""Operators that write along a dim, with a separate index for each cell."""

from __future__ import annotations

from collections.abc import Sequence

import jax
import jax.numpy as jnp
from jax.typing import DTypeLike

from weft.errors import DTypeError, IndexDomainError, ShapeError, UnsupportedDTypeError
from weft.ops._autocast import ACCELERATOR_PROMOTE
from weft.ops._dims import Factors, NameOf, Sizes, Static
from weft.ops._findings import Misses
from weft.ops._index import OUT_OF_BOUNDS, UNCHECKED, Updater, cells, isolated, outside_dim, require_dtype
from weft.ops._kinds import Array, Dim, Filling, Operand, Scalar
from weft.ops._table import INTERNAL, Check, Derivative, Public, Types, defop
from weft.ops._type_names import c_name, scalar_name

_UPDATERS = {"sum": "add", "mean": "add", "amax": "max", "amin": "min"}
_REDUCTIONS = ("prod", *_UPDATERS)


def _scatters(shapes: Sequence[Sizes], static: Static) -> Factors:
    """The input's dims stay, with the names of all; those other than `dim` are split where all sizes are equal."""
    ndim, dim = len(shapes[0]), static["dim"]
    ins = tuple(range(ndim))
    shared = {d for d in ins if d != dim and all(len(s) == ndim and s[d] == shapes[0][d] for s in shapes)}
    rest = [tuple(d if d in shared else NameOf(d) for d in range(len(s))) for s in shapes[1:]]
    return Factors((ins, *rest), (ins,), frozenset(ins) - shared)


def _require_cells(input: Array, dim: int, index: Array, src: Array) -> None:
    """Check the arguments that all scatters share."""
    require_dtype(index, "scatter(): Expected dtype int32/int64 for index", "int32", "int64")
    if src.dtype != input.dtype:
        raise DTypeError("scatter(): Expected self.dtype to be equal to src.dtype")
    if not index.size:
        return
    for word, other in (("self", input), ("src", src)):
        if jnp.atleast_1d(other).ndim != jnp.atleast_1d(index).ndim:
            raise ShapeError(f"Index tensor must have the same number of dimensions as {word} tensor")
    limits = zip(*(jnp.atleast_1d(a).shape for a in (index, input, src)), strict=True)
    if any((n > size and d != dim) or n > limit for d, (n, size, limit) in enumerate(limits)):
        raise ShapeError(
            f"Expected index {list(index.shape)} to be no larger than self {list(input.shape)} "
            f"apart from dimension {dim} and to be no larger size than src {list(src.shape)}"
        )


def _at(input: Array, dim: int, index: Array) -> Updater:
    """The updater of the cells that `index` names along `dim`."""
    return jnp.atleast_1d(input).at[cells(jnp.atleast_1d(index), dim)]


def _used(src: Array, index: Array) -> Array:
    """The part of the source that is written: it has the shape of the index."""
    return jnp.atleast_1d(src)[tuple(slice(n) for n in jnp.atleast_1d(index).shape)]


def _read(values: Array, dim: int, index: Array) -> Array:
    return _at(values, dim, index).get(**UNCHECKED)


@isolated
def _update(input: Array, dim: int, index: Array, value: Scalar, how: str) -> Array:
    """`input` with the cells set or combined with `value`, which broadcasts."""
    if input.dtype == jnp.bool_:
        how = {"add": "max", "multiply": "min"}.get(how, how)  # logical or, logical and
    ref = _at(input, dim, index)
    return getattr(ref, how)(jnp.asarray(value, input.dtype), **UNCHECKED).reshape(input.shape)


def _pad(used: Array, src: Array) -> Array:
    """The gradient of the whole source: zero in the part that is not written."""
    if not src.ndim:
        return jnp.sum(used)
    return jnp.pad(used, [(0, n - m) for n, m in zip(src.shape, used.shape, strict=True)])


def _scatter_check(input: Array, dim: Dim, index: Array) -> Misses:
    return outside_dim(index, input, dim)


def _scatter_vjp(
    g: Array, out: Array, input: Array, dim: Dim, index: Array, src: Operand, *, reduce: str | None = None
) -> tuple[Array | None, ...]:
    """The source's gradient is the result's gradient at its places, even where a later write overwrote it."""
    if not index.size:
        return g, None, jnp.zeros_like(src)
    if reduce == "multiply":
        used = _used(src, index) if src.ndim else jnp.broadcast_to(src.astype(input.dtype), index.shape)
        d_input, _, d_used = _product_vjp(dim, (out, input, index, used), g)
        return d_input, None, _pad(d_used, src)
    d_input = g if reduce == "add" else _update(g, dim, index, 0, "set")
    return d_input, None, _pad(_read(g, dim, index), src)


@defop(
    "scatter_src",
    derivative=Derivative(vjp=_scatter_vjp, name="Scatter"),
    dims=_scatters,
    check=Check(elements=_scatter_check, text=OUT_OF_BOUNDS, error=IndexDomainError),
    public=INTERNAL,
)
def scatter(input: Array, dim: Dim, index: Array, src: Filling, *, reduce: str | None = None) -> Array:
    """`input` with elements of `src`, or one number, written at the places of `index` along `dim`.

    With `reduce` "add" or "multiply" they are combined instead. Where places repeat, one write remains, on the CPU the
    last.
    """
    if reduce not in (None, "add", "multiply"):
        raise ShapeError("reduce argument must be either add or multiply.")
    if not src.ndim:
        if jnp.iscomplexobj(src) and not jnp.iscomplexobj(input):
            raise DTypeError(f"value cannot be converted to type {c_name(input)} without overflow")
        value = src.astype(input.dtype)
        _require_cells(input, dim, index, jnp.broadcast_to(value, index.shape))
    else:
        _require_cells(input, dim, index, src)
        value = _used(src, index)
    return _update(input, dim, index, value, reduce or "set") if index.size else input


def _scatter_add_check(input: Array, dim: Dim, index: Array) -> Misses:
    return outside_dim(index, input, dim)


@defop(
    dims=_scatters,
    types=Types(autocast=ACCELERATOR_PROMOTE),
    check=Check(elements=_scatter_add_check, text=OUT_OF_BOUNDS, error=IndexDomainError),
    public=Public(inplace=True, separate=("index", "src")),
)
def scatter_add(input: Array, dim: Dim, index: Array, src: Array) -> Array:
    """`input` with elements of `src` added at the places of `index` along `dim`."""
    _require_cells(input, dim, index, src)
    return _update(input, dim, index, _used(src, index), "add") if index.size else input


def _scatter_reduce_check(input: Array, dim: Dim, index: Array) -> Misses:
    return outside_dim(index, input, dim)


def _neutral(dtype: DTypeLike, reduce: str) -> float:
    """The identity element of a reduction."""
    if reduce in ("amax", "amin"):
        if dtype == jnp.bool_:
            return reduce == "amin"
        if jnp.issubdtype(dtype, jnp.floating):
            return -jnp.inf if reduce == "amax" else jnp.inf
        limits = jnp.iinfo(dtype)
        return limits.min if reduce == "amax" else limits.max
    return 1 if reduce == "prod" else 0


def _counts(input: Array, dim: int, index: Array, include_self: bool) -> Array:
    """The number of elements in each mean; 1 where there are none, so that the input stays as it is."""
    start = jnp.ones(input.shape, input.dtype)
    if not include_self:
        start = _update(start, dim, index, 0, "set")
    return _update(start, dim, index, 1, "add")


def _reduced(input: Array, dim: int, index: Array, used: Array, reduce: str, include_self: bool) -> Array:
    if not include_self:
        input = _update(input, dim, index, _neutral(input.dtype, reduce), "set")
    if reduce == "prod":
        return _product(dim, input, index, used)
    return _update(input, dim, index, used, _UPDATERS[reduce])


def _multiplied(dim: int, input: Array, index: Array, used: Array) -> Array:
    return _update(input, dim, index, used, "multiply")


# JAX has no derivative of this product; this one can be differentiated again, to every order.
_product = jax.custom_vjp(_multiplied, nondiff_argnums=(0,))


def _product_forward(dim: int, input: Array, index: Array, used: Array) -> tuple[Array, tuple[Array, ...]]:
    out = _product(dim, input, index, used)
    return out, (out, input, index, used)


def _product_vjp(dim: int, saved: tuple[Array, ...], g: Array) -> tuple[Array, None, Array]:
    """The product divided by each factor; a single zero factor is left out of the product instead."""
    out, input, index, used = saved
    whole = jnp.where(input == 0, 1, input)
    zero = used == 0
    zeros = _update(jnp.zeros(input.shape, used.dtype), dim, index, zero.astype(used.dtype), "add")
    lone = zero & (_read(zeros, dim, index) == 1)
    rest = _product(dim, input, index, jnp.where(lone, 1, used))
    quotient = _read(g * out, dim, index) / jnp.where(zero, 1, used)
    d_used = jnp.where(lone, _read(g * rest, dim, index), quotient)
    return g * _product(dim, whole, index, used) / whole, None, d_used


_product.defvjp(_product_forward, _product_vjp)


def _extremum_vjp(g: Array, out: Array, input: Array, dim: int, index: Array, used: Array) -> tuple[Array, Array]:
    """All elements equal to the result share the gradient evenly."""
    mine = (input == out).astype(g.dtype)
    theirs = (used == _read(out, dim, index)).astype(g.dtype)
    share = g / _update(mine, dim, index, theirs, "add")
    return mine * share, theirs * _read(share, dim, index)


def _scatter_reduce_vjp(
    g: Array,
    out: Array,
    input: Array,
    dim: Dim,
    index: Array,
    src: Array,
    reduce: str,
    *,
    include_self: bool = True,
) -> tuple[Array | None, ...]:
    if not index.size:
        return g, None, jnp.zeros_like(src)
    used = _used(src, index)
    # A product cannot be divided by its factors, as these may be 0.
    if reduce == "prod":
        start = input if include_self else _update(input, dim, index, 1, "set")
        d_input, _, d_used = _product_vjp(dim, (out, start, index, used), g)
    elif reduce in ("amax", "amin"):
        d_input, d_used = _extremum_vjp(g, out, input, dim, index, used)
    else:
        d_input = g / _counts(input, dim, index, include_self) if reduce == "mean" else g
        d_used = _read(d_input, dim, index)
    if not include_self:
        d_input = _update(d_input, dim, index, 0, "set")
    return d_input, None, _pad(d_used, src)


@defop(
    dims=_scatters,
    derivative=Derivative(vjp=_scatter_reduce_vjp),
    check=Check(elements=_scatter_reduce_check, text=OUT_OF_BOUNDS, error=IndexDomainError),
    public=Public(inplace=True, separate=("index", "src")),
)
def scatter_reduce(
    input: Array, dim: Dim, index: Array, src: Array, reduce: str, *, include_self: bool = True
) -> Array:
    """`input` with elements of `src` combined at the places of `index` along `dim`.

    `reduce` is "sum", "prod", "mean", "amax" or "amin". Without `include_self`, the elements of `input` at those places
    are ignored.
    """
    if reduce not in _REDUCTIONS:
        raise ShapeError(f"reduce argument must be either sum, prod, mean, amax or amin, got {reduce}")
    _require_cells(input, dim, index, src)
    if reduce in ("amax", "amin") and jnp.iscomplexobj(input):
        raise UnsupportedDTypeError(f"scatter_reduce(): {reduce} is not implemented for {scalar_name(input)}")
    if not index.size:
        return input
    out = _reduced(input, dim, index, _used(src, index), reduce, include_self)
    if reduce != "mean":
        return out
    counts = _counts(input, dim, index, include_self)
    return out / counts if jnp.issubdtype(out.dtype, jnp.inexact) else out // counts
