"""Statistics: variances, covariances and histograms."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import isfinite
from math import prod as product

import jax
import jax.numpy as jnp

from weft._base.dtype import FLOAT, INTEGER
from weft.errors import DomainError, DTypeError, OutOfRangeError, ShapeError, UnsupportedDTypeError
from weft.ops._dims import Factors, NameOf, Sizes, reduces
from weft.ops._kinds import Array, Arrays, Dims, Real, Scalar, Whole
from weft.ops._neural import like
from weft.ops._reduce import axes, is_complex, is_inexact, real_type, reduces_twice, spread, wide
from weft.ops._table import FLOAT_TYPE, INTERNAL, NO_DERIVATIVE, Check, Derivative, InputType, defop
from weft.ops._type_names import scalar_name


def _freedom(input: jax.Array, dim: Dims, correction: Real | None) -> Scalar:
    """Degrees of freedom: elements for each result minus the correction, but at least 0."""
    count = product(input.shape[d] for d in axes(dim, input.ndim))
    if correction is None:
        return max(count - 1, 0)
    return jnp.maximum(count - jnp.asarray(correction), 0).astype(real_type(wide(input).dtype))


def _deviations(input: jax.Array, dim: Dims) -> tuple[jax.Array, jax.Array]:
    """Deviations from the mean over `dim`, and that mean with its dims kept."""
    x = wide(input)
    mean = jnp.mean(x, axis=axes(dim, x.ndim), keepdims=True)
    return x - mean, mean


def _moments(
    name: str, input: jax.Array, dim: Dims, correction: Real | None, keepdim: bool
) -> tuple[jax.Array, jax.Array]:
    """Variance and mean, both in the type that PyTorch accumulates in."""
    if not is_inexact(input.dtype):
        raise DTypeError(f"{name} only support floating point and complex dtypes")
    over = axes(dim, input.ndim)
    off, mean = _deviations(input, dim)
    square = off.real**2 + off.imag**2 if is_complex(off.dtype) else off * off
    var = jnp.sum(square, axis=over, keepdims=keepdim) / _freedom(input, dim, correction)
    return var, mean if keepdim else jnp.squeeze(mean, over)


def _var_grad(g: jax.Array, input: jax.Array, dim: Dims, correction: Real | None) -> jax.Array:
    off, _ = _deviations(input, dim)
    return spread(g, input.shape, dim) * (off * 2 / _freedom(input, dim, correction))


def _root_grad(g: jax.Array, root: jax.Array) -> jax.Array:
    """The gradient through a square root, zero at zero as in PyTorch."""
    return jnp.where(root == 0, 0, g / (2 * jnp.where(root == 0, 1, root)))


def _mean_grad(g: jax.Array, input: jax.Array, dim: Dims) -> jax.Array:
    over = axes(dim, input.ndim)
    return jnp.broadcast_to(spread(g, input.shape, dim), input.shape) / product(input.shape[d] for d in over)


def _vjp(grad: Callable[..., Array]) -> Callable[..., tuple[Array]]:
    """A row's derivative, from `grad(g, out, input, dim, correction)`."""

    def vjp(
        g: Array | Arrays,
        out: Array | Arrays,
        input: Array,
        dim: Dims = None,
        *,
        correction: Real | None = None,
        keepdim: bool = False,
    ) -> tuple[Array]:
        del keepdim
        return (grad(g, out, input, dim, correction),)

    return vjp


@_vjp
def _var_vjp(g: Array, out: Array, input: Array, dim: Dims, correction: Real | None) -> Array:
    del out
    return _var_grad(g, input, dim, correction)


@_vjp
def _std_vjp(g: Array, out: Array, input: Array, dim: Dims, correction: Real | None) -> Array:
    return _var_grad(_root_grad(g, out), input, dim, correction)


@_vjp
def _var_mean_vjp(g: Arrays, out: Arrays, input: Array, dim: Dims, correction: Real | None) -> Array:
    del out
    return _var_grad(g[0], input, dim, correction) + _mean_grad(g[1], input, dim)


@_vjp
def _std_mean_vjp(g: Arrays, out: Arrays, input: Array, dim: Dims, correction: Real | None) -> Array:
    return _var_grad(_root_grad(g[0], out[0]), input, dim, correction) + _mean_grad(g[1], input, dim)


@defop(derivative=Derivative(vjp=_var_vjp, name="Var"), dims=reduces, public=INTERNAL)
def var_dims(input: Array, dim: Dims = None, *, correction: Real | None = None, keepdim: bool = False) -> Array:
    """Variance over `dim`, with the number of elements minus `correction` (1 if None) as divisor; real."""
    var, _ = _moments("std and var", input, dim, correction, keepdim)
    return var.astype(real_type(input.dtype))


@defop(derivative=Derivative(vjp=_std_vjp, name="Std"), dims=reduces, public=INTERNAL)
def std_dims(input: Array, dim: Dims = None, *, correction: Real | None = None, keepdim: bool = False) -> Array:
    """Standard deviation over `dim`: the root of `var_dims`."""
    var, _ = _moments("std and var", input, dim, correction, keepdim)
    return jnp.sqrt(var).astype(real_type(input.dtype))


@defop(dims=reduces_twice, outputs=("var", "mean"), derivative=Derivative(vjp=_var_mean_vjp), public=INTERNAL)
def var_mean_dims(
    input: Array, dim: Dims = None, *, correction: Real | None = None, keepdim: bool = False
) -> tuple[Array, Array]:
    """Variance and mean over `dim`."""
    var, mean = _moments("var_mean", input, dim, correction, keepdim)
    return var.astype(real_type(input.dtype)), mean.astype(input.dtype)


@defop(dims=reduces_twice, outputs=("std", "mean"), derivative=Derivative(vjp=_std_mean_vjp), public=INTERNAL)
def std_mean_dims(
    input: Array, dim: Dims = None, *, correction: Real | None = None, keepdim: bool = False
) -> tuple[Array, Array]:
    """Standard deviation and mean over `dim`."""
    var, mean = _moments("std_mean", input, dim, correction, keepdim)
    return jnp.sqrt(var).astype(real_type(input.dtype)), mean.astype(input.dtype)


def _require_matrix(name: str, input: jax.Array) -> None:
    if input.ndim > 2:
        got = f"an input with {input.ndim} dimensions"
        raise ShapeError(f"{name}(): expected input to have two or fewer dimensions but got {got}")


def _weights(count: int, **by_name: jax.Array | None) -> jax.Array | None:
    """The product of the weights given by name, one number per observation."""
    merged = None
    for name, weights in by_name.items():
        if weights is None:
            continue
        if weights.ndim > 1:
            got = f"{name} with {weights.ndim} dimensions"
            raise ShapeError(f"cov(): expected {name} to have one or fewer dimensions but got {got}")
        if weights.size != count:
            raise ShapeError(
                f"cov(): expected {name} to have the same numel as there are observations in the input "
                f"but got {weights.size} != {count}"
            )
        row = weights.reshape(-1).real
        merged = row if merged is None else merged * row
    return merged


def _covariance(
    input: jax.Array, correction: Scalar, fweights: jax.Array | None, aweights: jax.Array | None
) -> jax.Array:
    x = input if input.ndim == 2 else input.reshape(1, -1)
    weights = _weights(x.shape[1], fweights=fweights, aweights=aweights)
    total = x.shape[1] if weights is None else jnp.sum(weights)
    lost = correction
    if aweights is not None and weights is not None:
        lost = correction * jnp.sum(weights * aweights.reshape(-1).real) / total
    weighted = x if weights is None else x * weights
    off = x - jnp.sum(weighted, axis=1, keepdims=True) / total
    scaled = off if weights is None else off * weights
    freedom = jnp.maximum(total - lost, 0)
    return jnp.squeeze(scaled @ off.conj().T / freedom)


def _require_weights(types: Mapping[str, InputType]) -> str:
    for name, wanted, word in (("fweights", INTEGER, "integral"), ("aweights", FLOAT, "floating point")):
        weights = types.get(name)
        if weights is not None and weights.dtype.category != wanted:
            kind = scalar_name(weights.dtype)
            raise DTypeError(f"cov(): expected {name} to have {word} dtype but got {name} with {kind} dtype")
    return ""


def _negative_weights(fweights: Array | None, aweights: Array | None) -> Array:
    bad = jnp.bool_(False)
    for weights in (fweights, aweights):
        if weights is not None:
            bad |= jnp.any(weights.real < 0)
    return bad


def _between_variables(shapes: Sequence[Sizes]) -> Factors:
    """Variables against variables; the first of both dims has their name."""
    letters = tuple(tuple((at, dim) for dim in range(len(shape))) for at, shape in enumerate(shapes))
    out = (NameOf((0, 0)), "other") if len(shapes[0]) == 2 and shapes[0][0] != 1 else ()
    return Factors(letters, (out,), frozenset(letter for dims in letters for letter in dims))


@defop(
    types=FLOAT_TYPE,
    check=Check(
        elements=_negative_weights,
        text="fweights cannot be negative, and aweights cannot be negative",
        error=DomainError,
        inputs=_require_weights,
    ),
    dims=_between_variables,
)
def cov(input: Array, *, correction: Whole = 1, fweights: Array | None = None, aweights: Array | None = None) -> Array:
    """Covariance matrix of variables in rows, observations in columns; zero-dim for one variable."""
    _require_matrix("cov", input)
    return _covariance(input, correction, fweights, aweights)


@defop(types=FLOAT_TYPE, dims=_between_variables)
def corrcoef(input: Array) -> Array:
    """Correlation coefficients of variables in rows, clipped to [-1, 1]."""
    _require_matrix("corrcoef", input)
    c = _covariance(input, 1, None, None)
    if c.ndim == 0:
        return c / c
    spreads = jnp.sqrt(jnp.diagonal(c).real)
    c = c / spreads[:, None] / spreads[None, :]
    if is_complex(c.dtype):
        return jax.lax.complex(jnp.clip(c.real, -1, 1), jnp.clip(c.imag, -1, 1))
    return jnp.clip(c, -1, 1)


def _bins(shapes: Sequence[Sizes]) -> Factors:
    letters = tuple(range(len(shapes[0])))
    return Factors((letters,), (("bins",),), frozenset(letters))


def _bin_range(input: jax.Array, low: jax.Array, high: jax.Array) -> tuple[Array, Array]:
    """The range that the bins cover: that of the data if both ends are equal; never empty."""
    least, most = (jnp.min(input), jnp.max(input)) if input.size else (low, high)
    own = jnp.where(least == most, least - 1, least), jnp.where(least == most, most + 1, most)
    return jnp.where(low == high, own[0], low), jnp.where(low == high, own[1], high)


def _infinite(input: Array, min: Real, max: Real) -> Array | None:
    return ~jnp.isfinite(input) & (min == max) if jnp.issubdtype(input.dtype, jnp.floating) else None


def _require_bounds(min: float, max: float) -> None:
    if not (isfinite(min) and isfinite(max)):
        raise ShapeError(f"torch.histc: range of [{min}, {max}] is not finite")
    if min > max:
        raise ShapeError("torch.histc: max must be larger than min")


@defop(
    dims=_bins,
    derivative=NO_DERIVATIVE,
    check=Check(
        elements=_infinite,
        text="torch.histc: the range of the elements is not finite",
        error=DomainError,
        limits=_require_bounds,
    ),
)
def histc(input: Array, bins: int = 100, min: Real = 0, max: Real = 0) -> Array:
    """The number of elements in each of `bins` equal bins between `min` and `max`, in the input's type."""
    if not jnp.issubdtype(input.dtype, jnp.floating):
        raise UnsupportedDTypeError(f'"histogram_cpu" not implemented for {scalar_name(input)!r}')
    if bins <= 0:
        raise OutOfRangeError(f"torch.histogram(): bins must be > 0, but got {bins} for dimension 0")
    flat = wide(input).reshape(-1)
    low, high = _bin_range(flat, like(min, flat), like(max, flat))
    edges = jnp.linspace(low, high, bins + 1, dtype=flat.dtype)
    place = jnp.searchsorted(edges, flat, side="right") - 1
    # The last bin has its right edge, too.
    place = jnp.where(flat == edges[-1], bins - 1, place)
    kept = (flat >= edges[0]) & (flat <= edges[-1])
    return jnp.zeros(bins, input.dtype).at[jnp.where(kept, place, bins)].add(1, mode="drop")
