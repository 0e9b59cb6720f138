"""Order statistics: k-th values, medians, modes and quantiles."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import jax
import jax.numpy as jnp

from weft.errors import DomainError, DTypeError, ShapeError, UnsupportedDTypeError
from weft.ops._autocast import CPU_FLOAT32
from weft.ops._dims import Factors, Sizes, Static, reduces
from weft.ops._kinds import Array, Dim, Dims, Operand, Whole
from weft.ops._reduce import (
    axes,
    is_complex,
    is_nan,
    lifted,
    picked_vjp,
    positions,
    reduces_twice,
    require_sized,
    shared_vjp,
)
from weft.ops._rows import refuse_complex
from weft.ops._table import INTERNAL, NO_ARITHMETIC, Check, Derivative, Types, defop
from weft.ops._type_names import scalar_name
from weft.ops.sorting import ranked

_picks = partial(defop, types=NO_ARITHMETIC, dims=reduces_twice, outputs=("values", "indices"))
"""`defop` for elements that are chosen along a dim, and their places."""


def _at(x: jax.Array, place: jax.Array | int, dim: int, keepdim: bool) -> jax.Array:
    """Elements at `place` along `dim`; `place` is a number, or an array in which `dim` has size one."""
    place = jnp.broadcast_to(place, (*x.shape[:dim], 1, *x.shape[dim + 1 :]))
    values = jnp.take_along_axis(x, place, axis=dim)
    return values if keepdim else jnp.squeeze(values, dim)


@_picks(derivative=Derivative(vjp=picked_vjp), public=INTERNAL)
@lifted
def kthvalue(input: Array, k: Whole, dim: Dim = -1, keepdim: bool = False) -> tuple[Array, Array]:
    """The `k`-th smallest element along `dim`, counted from one, and its index."""
    refuse_complex(input, f"\"kthvalue_cpu\" not implemented for '{scalar_name(input)}'")
    require_sized("kthvalue()", input.shape, dim)
    values, indices = ranked(input, dim)
    return _at(values, k - 1, dim, keepdim), _at(indices, k - 1, dim, keepdim)


def _require_ordered(input: jax.Array) -> None:
    if is_complex(input.dtype) or input.dtype == jnp.bool_:
        raise UnsupportedDTypeError(f'"median_cpu" not implemented for {scalar_name(input)!r}')


def _middle(x: jax.Array, dim: int, skip_nan: bool) -> jax.Array:
    """The position of the lower median among the sorted elements; that of the first NaN unless NaNs are skipped."""
    size = x.shape[dim]
    nans = jnp.sum(is_nan(x), axis=dim, keepdims=True)
    if skip_nan:
        return jnp.maximum((size - nans - 1) // 2, 0)
    return jnp.where(nans > 0, size - nans, (size - 1) // 2)


def _median_dim(input: jax.Array, dim: int, keepdim: bool, skip_nan: bool) -> tuple[jax.Array, jax.Array]:
    _require_ordered(input)
    require_sized("median()", input.shape, dim)
    values, indices = ranked(input, dim)
    place = _middle(input, dim, skip_nan)
    return _at(values, place, dim, keepdim), _at(indices, place, dim, keepdim)


def _median_all(input: jax.Array, skip_nan: bool) -> jax.Array:
    _require_ordered(input)
    if input.size == 0:
        return jnp.full((), jnp.nan).astype(input.dtype)
    flat = input.reshape(-1)
    return _at(jnp.sort(flat), _middle(flat, 0, skip_nan), 0, False)


@_picks(derivative=Derivative(vjp=picked_vjp), public=INTERNAL)
@lifted
def median_dim(input: Array, dim: Dim, keepdim: bool = False) -> tuple[Array, Array]:
    """The lower median along `dim` and its index; NaN if any element is NaN."""
    return _median_dim(input, dim, keepdim, skip_nan=False)


@_picks(derivative=Derivative(vjp=picked_vjp), public=INTERNAL)
@lifted
def nanmedian_dim(input: Array, dim: Dim, keepdim: bool = False) -> tuple[Array, Array]:
    """The lower median along `dim` of the elements that are not NaN, and its index."""
    return _median_dim(input, dim, keepdim, skip_nan=True)


@defop(types=NO_ARITHMETIC, derivative=Derivative(vjp=shared_vjp, name="Median"), dims=reduces, public=INTERNAL)
def median_all(input: Array) -> Array:
    """The lower median of all elements; NaN if any is NaN."""
    return _median_all(input, skip_nan=False)


@defop(derivative=Derivative(vjp=shared_vjp, name="Nanmedian"), types=NO_ARITHMETIC, dims=reduces, public=INTERNAL)
def nanmedian_all(input: Array) -> Array:
    """The lower median of all elements that are not NaN."""
    return _median_all(input, skip_nan=True)


@_picks(derivative=Derivative(vjp=picked_vjp))
@lifted
def mode(input: Array, dim: Dim = -1, keepdim: bool = False) -> tuple[Array, Array]:
    """The most frequent element along `dim` (the smallest if there are several), and its last index."""
    refuse_complex(input, f"\"mode_cpu\" not implemented for '{scalar_name(input)}'")
    require_sized("mode()", input.shape, dim)
    values, indices = ranked(input, dim)
    place = positions(values.shape, dim)
    same = (values == jnp.roll(values, 1, dim)) & (place > 0)
    start = jax.lax.cummax(jnp.where(same, 0, place), axis=dim)
    best = jnp.argmax(place - start, axis=dim, keepdims=True)
    return _at(values, best, dim, keepdim), _at(indices, best, dim, keepdim)


def _quantile_dims(shapes: Sequence[Sizes], static: Static) -> Factors:
    """As `reduces`, but the dims of `q` come first."""
    rest = reduces(shapes, static)
    quantiles = tuple(f"q:{d}" for d in range(len(shapes[1])))
    return Factors((*rest.ins, quantiles), ((*quantiles, *rest.outs[0]),))


_ROUNDED = {"lower": jnp.floor, "higher": jnp.ceil, "nearest": jnp.round}


def _require_quantile(name: str, input: jax.Array, q: jax.Array, interpolation: str) -> None:
    if input.size == 0:
        raise ShapeError(f"{name}() input tensor must be non-empty")
    if q.ndim > 1:
        raise ShapeError(f"{name}() q must be a scalar or 1D tensor")
    if input.dtype not in (jnp.float32, jnp.float64):
        raise DTypeError(f"{name}() input tensor must be either float or double dtype")
    if q.ndim and q.dtype != input.dtype:  # a Python number is zero-dim, and takes the type of the input
        raise DTypeError(f"{name}() q tensor must be same dtype as the input tensor")
    if interpolation not in (*_ROUNDED, "linear", "midpoint"):
        raise ShapeError(
            f"{name}() interpolation must be one of linear, lower, higher, midpoint or nearest, but got {interpolation}"
        )


def _between(values: jax.Array, rank: jax.Array, interpolation: str) -> jax.Array:
    """Sorted values (..., n) interpolated at fractional ranks (..., q)."""
    if interpolation in _ROUNDED:
        rank = _ROUNDED[interpolation](rank)
    place = jnp.floor(rank).astype(jnp.int64)
    below = jnp.take_along_axis(values, place, axis=-1)
    if interpolation in _ROUNDED:
        return below
    above = jnp.take_along_axis(values, jnp.ceil(rank).astype(jnp.int64), axis=-1)
    weight = 0.5 if interpolation == "midpoint" else rank - place
    return below + weight * (above - below)


def _quantile(name: str, input: jax.Array, q: jax.Array, dim: Dims, keepdim: bool, interpolation: str) -> jax.Array:
    """Quantiles along one dim or all. NaN gives NaN, but nanquantile leaves it out."""
    _require_quantile(name, input, q, interpolation)
    last = input.reshape(-1) if dim is None or input.ndim == 0 else jnp.moveaxis(input, dim, -1)
    values = jnp.sort(last, axis=-1)
    nans = jnp.sum(jnp.isnan(last), axis=-1, keepdims=True)
    sought = jnp.atleast_1d(q).astype(input.dtype)
    if name == "nanquantile":
        # A row of NaN alone has no number to take; its first element is NaN as well.
        rank = jnp.maximum(sought * (values.shape[-1] - nans - 1).astype(input.dtype), 0)
    else:
        top = values.shape[-1] - 1
        # Sorting puts NaN last, so the last element is the NaN that the result has to be.
        rank = jnp.where(nans > 0, top, sought * top)
    out = jnp.moveaxis(_between(values, jnp.clip(rank, 0, values.shape[-1] - 1), interpolation), -1, 0)
    if keepdim:
        gone = axes(dim, input.ndim)
        kept = tuple(1 if d in gone else n for d, n in enumerate(input.shape))
        out = out.reshape(out.shape[:1] + kept)
    return out if q.ndim else out[0]


def _outside(q: Operand) -> Array:
    return ~((q >= 0) & (q <= 1))


_OUTSIDE = "quantile() q values must be in the range [0, 1]"


@defop(
    dims=_quantile_dims,
    types=Types(autocast=CPU_FLOAT32),
    check=Check(elements=_outside, text=_OUTSIDE, error=DomainError),
)
def quantile(
    input: Array, q: Operand, dim: Dim = None, keepdim: bool = False, *, interpolation: str = "linear"
) -> Array:
    """Quantiles `q` along one dim or all; a vector `q` adds a leading dim. NaN if any element is NaN."""
    return _quantile("quantile", input, q, dim, keepdim, interpolation)


@defop(
    dims=_quantile_dims,
    types=Types(autocast=CPU_FLOAT32),
    check=Check(elements=_outside, text=_OUTSIDE, error=DomainError),
)
def nanquantile(
    input: Array, q: Operand, dim: Dim = None, keepdim: bool = False, *, interpolation: str = "linear"
) -> Array:
    """As `quantile`, of the elements that are not NaN."""
    return _quantile("nanquantile", input, q, dim, keepdim, interpolation)
