"""Rows that run along a dim: cumulative operators, differences, and the trapezoid rule."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import jax
import jax.numpy as jnp

from weft._base.dtype import COMPLEX
from weft.errors import ArgumentError, DimError, DTypeError, ShapeError, UnsupportedDTypeError
from weft.ops._dims import Factors, Sizes, Static, along, wrap_dim
from weft.ops._kinds import Array, Dim, DTypeArg, Scalar
from weft.ops._reduce import (
    is_inexact,
    is_nan,
    lifted,
    moved_vjp,
    positions,
    require_real,
    summable,
    twice,
    wide,
)
from weft.ops._rows import alias, category
from weft.ops._table import (
    ACCELERATOR_IN_FLOAT32,
    COMMON_TYPE,
    FLOAT_TYPE,
    IS_LINEAR,
    Derivative,
    Public,
    Shards,
    defop,
)
from weft.ops._type_names import scalar_name


@defop(dims=along, shards=IS_LINEAR, types=ACCELERATOR_IN_FLOAT32, public=Public(inplace=True, out_decides=True))
@lifted
def cumsum(input: Array, dim: Dim, *, dtype: DTypeArg = None) -> Array:
    """Cumulative sums along `dim`; integers and bools are summed in int64."""
    x = summable(input, dtype)
    return jnp.cumsum(wide(x), axis=dim).astype(x.dtype)


@defop(dims=along, types=ACCELERATOR_IN_FLOAT32, public=Public(inplace=True, out_decides=True))
@lifted
def cumprod(input: Array, dim: Dim, *, dtype: DTypeArg = None) -> Array:
    """Cumulative products along `dim`; integers and bools are multiplied in int64."""
    x = summable(input, dtype)
    return jnp.cumprod(wide(x), axis=dim).astype(x.dtype)


_OTHER_OUT = "expected scalar_type {0} but found {1}"


def _running(name: str, input: jax.Array, dim: int) -> tuple[jax.Array, jax.Array]:
    """Cumulative maxima or minima and their last indices; after a NaN everything is NaN."""
    require_real(input, f"{name}(): does not support complex input")
    x = input.astype(jnp.uint8) if input.dtype == jnp.bool_ else input
    values = (jax.lax.cummax if name == "cummax" else jax.lax.cummin)(x, axis=dim)
    met = (x == values) | is_nan(x)
    indices = jax.lax.cummax(jnp.where(met, positions(x.shape, dim), 0), axis=dim)
    return values.astype(input.dtype), indices


_runs = partial(
    defop,
    dims=twice(along),
    outputs=("values", "indices"),
    derivative=Derivative(vjp=moved_vjp),
    public=Public(out=_OTHER_OUT),
)


@_runs()
@lifted
def cummax(input: Array, dim: Dim) -> tuple[Array, Array]:
    """Largest element up to each place along `dim`, and its last index."""
    return _running("cummax", input, dim)


@_runs()
@lifted
def cummin(input: Array, dim: Dim) -> tuple[Array, Array]:
    """Smallest element up to each place along `dim`, and its last index."""
    return _running("cummin", input, dim)


@defop(dims=along, public=Public(out=_OTHER_OUT))
@lifted
def logcumsumexp(input: Array, dim: Dim) -> Array:
    """Logarithm of the cumulative sum of exponentials along `dim`, without overflow."""
    if not is_inexact(input.dtype):
        raise UnsupportedDTypeError(f'"logcumsumexp_out_cpu" not implemented for {scalar_name(input)!r}')
    if jnp.iscomplexobj(input):  # of -inf, jax's own sum of complex exponentials would be NaN
        return jax.lax.associative_scan(_add_logarithms, input, axis=dim)
    return jax.lax.cumlogsumexp(wide(input), axis=dim).astype(input.dtype)


def _add_logarithms(x: jax.Array, y: jax.Array) -> jax.Array:
    """Logarithms of sums of complex exponentials."""
    most = jax.lax.stop_gradient(jnp.maximum(x.real, y.real))
    most = jnp.where(jnp.isinf(most), 0, most)
    return jnp.log(jnp.exp(x - most) + jnp.exp(y - most)) + most


def _part(x: jax.Array, dim: int, start: int, stop: int | None) -> jax.Array:
    return jax.lax.slice_in_dim(x, start, stop, axis=dim)


def _joined(shapes: Sequence[Sizes], static: Static) -> Factors:
    """All inputs are joined along `dim`, which must be whole."""
    first = along(shapes, static)
    return Factors(first.ins * len(shapes), first.outs, first.whole)


def _require_joinable(input: jax.Array, extra: jax.Array, dim: int) -> None:
    if extra.ndim != input.ndim:
        raise ShapeError("diff expects prepend or append to be the same dimension as input")
    for d, (a, b) in enumerate(zip(input.shape, extra.shape, strict=True)):
        if d != dim and a != b:
            raise ShapeError(
                "diff expects the shape of tensor to prepend or append to match that of input except along "
                f"the differencing dimension; input.size({d}) = {a}, but got tensor.size({d}) = {b}"
            )


@defop(dims=_joined, types=COMMON_TYPE, shards=Shards(linear="all"))
def diff(input: Array, n: int = 1, dim: Dim = -1, prepend: Array | None = None, append: Array | None = None) -> Array:
    """Differences of neighbours along `dim`, taken `n` times; for bools, whether neighbours differ."""
    if input.ndim == 0:
        raise ShapeError("diff expects input to be at least one-dimensional")
    if n < 0:
        raise ShapeError(f"order must be non-negative but got {n}")
    parts = [x for x in (prepend, input, append) if x is not None]
    for extra in parts:
        _require_joinable(input, extra, dim)
    x = jnp.concatenate(parts, axis=dim) if n else input
    for _ in range(min(n, x.shape[dim])):
        after, before = _part(x, dim, 1, None), _part(x, dim, 0, -1)
        x = after != before if x.dtype == jnp.bool_ else after - before
    return x


def _steps(name: str, y: jax.Array, x: jax.Array, dim: int) -> jax.Array:
    """Distances between sample points, in a shape that broadcasts against the areas between them."""
    if x.ndim == 0:
        raise ShapeError(f"{name}: received a zero-dim `x`; give one point per sample")
    if x.ndim == 1:
        if x.shape[0] != y.shape[dim]:
            raise ShapeError(f"{name}: There must be one `x` value for each sample point")
        return jnp.diff(x).reshape([-1 if d == dim else 1 for d in range(y.ndim)])
    back = dim - y.ndim
    return jnp.diff(x, axis=back)


def _areas(name: str, y: jax.Array, x: jax.Array | None, dx: Scalar, dim: int) -> jax.Array:
    """The areas of the trapezoids between neighbours, times two."""
    if y.ndim == 0:
        raise DimError(f"Dimension specified as {dim} but tensor has no dimensions")
    if isinstance(dx, jax.Array) and x is not None:
        raise ArgumentError(f"{name}() received an invalid combination of arguments - got both x and dx")
    if isinstance(dx, jax.Array) and category(dx) == COMPLEX:
        raise DTypeError(f"{name}: Currently, we only support dx as a real number.")
    width = jnp.asarray(dx).astype(y.dtype) if x is None else _steps(name, y, x, dim)
    return (_part(y, dim, 1, None) + _part(y, dim, 0, -1)) * width


def _integrates(shapes: Sequence[Sizes], static: Static) -> Factors:
    """The first input's `dim` disappears; the others broadcast against it."""
    ndim = max(len(s) for s in shapes)
    dim = wrap_dim(static["dim"], len(shapes[0])) + ndim - len(shapes[0])
    ins = tuple((dim,) if len(s) == 1 else tuple(range(ndim - len(s), ndim)) for s in shapes)
    return Factors(ins, (tuple(d for d in range(ndim) if d != dim),), frozenset((dim,)))


def _accumulates(shapes: Sequence[Sizes], static: Static) -> Factors:
    """As `_integrates`, but the dim stays, shorter by one."""
    factors = _integrates(shapes, static)
    return Factors(factors.ins, (tuple(range(max(len(s) for s in shapes))),), factors.whole)


@defop(dims=_integrates, types=FLOAT_TYPE)
def trapezoid(y: Array, x: Array | None = None, *, dx: Scalar = 1, dim: Dim = -1) -> Array:
    """Integral of `y` along `dim` by the trapezoid rule, over points `x` or steps of `dx`."""
    return jnp.sum(_areas("trapezoid", y, x, dx, dim), axis=dim) / 2


alias(trapezoid, "trapz")


@defop(dims=_accumulates, types=FLOAT_TYPE)
def cumulative_trapezoid(y: Array, x: Array | None = None, *, dx: Scalar = 1, dim: Dim = -1) -> Array:
    """Integrals of `y` up to each point along `dim` by the trapezoid rule; the result is shorter by one there."""
    areas = _areas("cumulative_trapezoid", y, x, dx, dim)
    return jnp.cumsum(areas, axis=dim) / 2
