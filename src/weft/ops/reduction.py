"""Reductions over dims: sums, products, logical and/or, minimum and maximum."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

import jax
import jax.numpy as jnp

from weft._base.dtype import BOOL, FLOAT, INTEGER
from weft.errors import DimError, DTypeError, OptionError, ShapeError
from weft.ops._autocast import ACCELERATOR_FLOAT32
from weft.ops._dims import Factors, Sizes, Static, along, reduces
from weft.ops._kinds import Array, Arrays, Dim, Dims, DTypeArg
from weft.ops._reduce import (
    axes,
    is_inexact,
    is_nan,
    picked_vjp,
    reduces_twice,
    require_real,
    require_sized,
    shared_vjp,
    spread,
    summable,
    to_dtype,
    wide,
)
from weft.ops._rows import category, quotient, require
from weft.ops._table import (
    ACCELERATOR_IN_FLOAT32,
    IN_FLOAT32,
    INTERNAL,
    NO_DERIVATIVE,
    OWN_ARITHMETIC,
    Derivative,
    Promote,
    Public,
    Shards,
    Types,
    defop,
)
from weft.ops._type_names import scalar_name


def _overload(name: str) -> Derivative:
    """A derivative with PyTorch's names: overload 0 reduces all dims, overload 1 some."""
    return Derivative(name=lambda _, out: f"{name}Backward{int(bool(out))}")


_SUMS, _DECIDED_BY_OUT = Shards(partial="sum", linear="each"), Public(out_decides=True)


@defop(dims=reduces, shards=_SUMS, types=ACCELERATOR_IN_FLOAT32, derivative=_overload("Sum"), public=_DECIDED_BY_OUT)
def sum_(input: Array, dim: Dims = None, keepdim: bool = False, *, dtype: DTypeArg = None) -> Array:
    """Sum over `dim`; integers and bools are summed in int64."""
    x = summable(input, dtype)
    return jnp.sum(x, axis=axes(dim, x.ndim), keepdims=keepdim, dtype=x.dtype)


@defop(dims=reduces, shards=Shards(partial="sum"), public=Public(out=""))
def nansum(input: Array, dim: Dims = None, keepdim: bool = False, *, dtype: DTypeArg = None) -> Array:
    """Sum over `dim` in which NaN counts as zero."""
    require_real(input, "nansum on CPU does not support complex inputs")
    x = summable(jnp.where(is_nan(input), 0, input), dtype)
    return jnp.sum(x, axis=axes(dim, x.ndim), keepdims=keepdim, dtype=x.dtype)


@defop(dims=reduces, shards=replace(_SUMS, partial="avg"), derivative=_overload("Mean"), public=Public(out=""))
def mean(input: Array, dim: Dims = None, keepdim: bool = False, *, dtype: DTypeArg = None) -> Array:
    """Mean over `dim`; `RuntimeError` for integers unless `dtype` names a floating type."""
    x = to_dtype(input, dtype)
    if not is_inexact(x.dtype):
        origin = "Input" if dtype is None else "Optional"
        raise DTypeError(
            f"mean(): could not infer output dtype. {origin} dtype must be either a floating point or "
            f"complex dtype. Got: {scalar_name(x)}"
        )
    over = axes(dim, x.ndim)
    total = jnp.sum(wide(x), axis=over, keepdims=keepdim)
    return quotient(total, jnp.asarray(math.prod(x.shape[d] for d in over), total.dtype)).astype(x.dtype)


@defop(dims=reduces, public=Public(out=""))
def nanmean(input: Array, dim: Dims = None, keepdim: bool = False, *, dtype: DTypeArg = None) -> Array:
    """Mean over `dim` of the elements that are not NaN."""
    if not is_inexact(input.dtype):
        word = scalar_name(input)
        raise DTypeError(f"nanmean(): expected input to have floating point or complex dtype but got {word}")
    require_real(input, "nansum on CPU does not support complex inputs")
    kept = ~jnp.isnan(input)
    x = wide(to_dtype(jnp.where(kept, input, 0), dtype))
    over = axes(dim, input.ndim)
    total, count = (jnp.sum(v, axis=over, keepdims=keepdim) for v in (x, kept))
    return (total / count).astype(input.dtype if dtype is None else dtype.numpy)


@defop(
    dims=reduces, shards=Shards(partial="prod"), types=IN_FLOAT32, derivative=_overload("Prod"), public=_DECIDED_BY_OUT
)
def prod(input: Array, dim: Dim = None, keepdim: bool = False, *, dtype: DTypeArg = None) -> Array:
    """Product over one dim or all; integers and bools multiply in int64."""
    x = summable(input, dtype)
    return jnp.prod(x, axis=axes(dim, x.ndim), keepdims=keepdim, dtype=x.dtype)


def _reduces_listed(shapes: Sequence[Sizes], static: Static) -> Factors:
    """As `reduces`, but an empty `dim` reduces nothing."""
    return along(shapes, static) if static.get("dim") == () else reduces(shapes, static)


def _truth(input: jax.Array, result: jax.Array) -> jax.Array:
    """The result as bool, but as uint8 for uint8 inputs, as in PyTorch."""
    return result.astype(jnp.uint8) if input.dtype == jnp.uint8 else result


@defop(dims=_reduces_listed, shards=Shards(partial="max"), public=Public(out=""))
def any_(input: Array, dim: Dims = None, keepdim: bool = False) -> Array:
    """Whether an element along `dim` is non-zero; bool, or uint8 for uint8."""
    over = () if dim == () else axes(dim, input.ndim)
    return _truth(input, jnp.any(input != 0, axis=over, keepdims=keepdim))


@defop(dims=_reduces_listed, shards=Shards(partial="min"), public=Public(out=""))
def all_(input: Array, dim: Dims = None, keepdim: bool = False) -> Array:
    """Whether all elements along `dim` are non-zero; bool, or uint8 for uint8."""
    over = () if dim == () else axes(dim, input.ndim)
    return _truth(input, jnp.all(input != 0, axis=over, keepdims=keepdim))


@defop(dims=reduces, shards=Shards(partial="sum"))
def count_nonzero(input: Array, dim: Dims = None) -> Array:
    """How many elements along `dim` are not zero; int64."""
    return jnp.sum(input != 0, axis=axes(dim, input.ndim), dtype=jnp.int64)


@defop(dims=reduces, derivative=NO_DERIVATIVE)
def hash_tensor(input: Array, dim: Dims = (), *, keepdim: bool = False, mode: int = 0) -> Array:
    """The bits of the elements along `dim`, as float64 or int64, combined by exclusive or; uint64."""
    if mode:
        raise OptionError(f"Unknown hash_tensor mode: {mode}")
    require(input, "xor_sum_cpu", BOOL, INTEGER, FLOAT)
    if not input.size and dim == ():
        raise ShapeError(
            "hash_tensor: Expected reduction dim to be specified for input.numel() == 0. Specify the reduction dim "
            "with the 'dim' argument."
        )
    wide = input.astype(jnp.float64 if category(input) == FLOAT else jnp.int64)
    bits, over = jax.lax.bitcast_convert_type(wide, jnp.uint64), axes(dim, input.ndim)
    result = jax.lax.reduce(bits, jnp.uint64(0), jax.lax.bitwise_xor, over)
    return jnp.expand_dims(result, over) if keepdim else result


def _logsumexp_vjp(g: Array, out: Array, input: Array, dim: Dims) -> tuple[Array]:
    g, out = (spread(x, input.shape, dim) for x in (g, out))
    return (g * jnp.exp(input - out),)


@defop(
    dims=reduces,
    types=Types(promote=Promote.FLOAT, autocast=ACCELERATOR_FLOAT32),
    derivative=Derivative(vjp=_logsumexp_vjp),
    public=Public(also=("special",)),
)
def logsumexp(input: Array, dim: Dims, keepdim: bool = False) -> Array:
    """Logarithm of the sum of exponentials over `dim`, without overflow."""
    over = axes(dim, input.ndim)
    return jax.scipy.special.logsumexp(wide(input), axis=over, keepdims=keepdim).astype(input.dtype)


def _require_elements(name: str, input: jax.Array, dim: Dims) -> None:
    require_real(input, f"{name}(): does not support complex input")
    if dim is not None and dim != ():
        require_sized(f"{name}()", input.shape, dim)
    elif input.size == 0:
        raise ShapeError(
            f"{name}(): Expected reduction dim to be specified for input.numel() == 0. "
            "Specify the reduction dim with the 'dim' argument."
        )


def _extreme(
    reduce: Callable[[Array, Sequence[int]], Array], input: Array, over: Sequence[int], keepdim: bool
) -> Array:
    """The largest or least elements, in the input's own type: `jnp.max` would first make 16-bit floats wider."""
    result = reduce(input, over)
    return jnp.expand_dims(result, tuple(over)) if keepdim else result


_OTHER_EXTREME = "Expected the dtype for input and out to match, but got {0} for input's dtype and {1} for out's dtype."


_finds_extremes = partial(
    defop,
    dims=reduces,
    types=OWN_ARITHMETIC,
    derivative=Derivative(vjp=shared_vjp),
    public=Public(out=_OTHER_EXTREME),
)


@_finds_extremes(shards=Shards(partial="max"))
def amax(input: Array, dim: Dims = (), keepdim: bool = False) -> Array:
    """Largest element over `dim`; ties share the gradient evenly."""
    _require_elements("amax", input, dim)
    return _extreme(jax.lax.reduce_max, input, axes(dim, input.ndim), keepdim)


@_finds_extremes(shards=Shards(partial="min"))
def amin(input: Array, dim: Dims = (), keepdim: bool = False) -> Array:
    """Smallest element over `dim`; ties share the gradient evenly."""
    _require_elements("amin", input, dim)
    return _extreme(jax.lax.reduce_min, input, axes(dim, input.ndim), keepdim)


def _aminmax_vjp(g: Arrays, out: Arrays, input: Array, dim: Dim) -> tuple[Array]:
    return (shared_vjp(g[0], out[0], input, dim) + shared_vjp(g[1], out[1], input, dim),)


@defop(types=OWN_ARITHMETIC, dims=reduces_twice, outputs=("min", "max"), derivative=Derivative(vjp=_aminmax_vjp))
def aminmax(input: Array, *, dim: Dim = None, keepdim: bool = False) -> tuple[Array, Array]:
    """Smallest and largest element over one dim or all."""
    if dim is None:
        require(input, "aminmax_cpu", BOOL, INTEGER, FLOAT)
    require_real(input, f"aminmax not implemented for {scalar_name(input)}")
    if dim is None and input.size == 0:
        raise ShapeError("aminmax(): cannot compute aminmax over an empty dimension as the operation has no identity.")
    if dim is not None:
        require_sized("aminmax", input.shape, dim)
    over = axes(dim, input.ndim)
    return _extreme(jax.lax.reduce_min, input, over, keepdim), _extreme(jax.lax.reduce_max, input, over, keepdim)


def _place(name: str, input: jax.Array, dim: Dims, keepdim: bool) -> jax.Array:
    """Index of the first maximum or minimum; `name` is argmax or argmin."""
    if input.ndim == 0:
        return jnp.zeros((), jnp.int64)
    find = jnp.argmax if name == "argmax" else jnp.argmin
    return find(input, axis=dim, keepdims=keepdim).astype(jnp.int64)


def _arg(name: str, input: jax.Array, dim: Dims, keepdim: bool) -> jax.Array:
    if dim is None and input.size == 0:
        raise DimError(f"{name}(): Expected reduction dim to be specified for input.numel() == 0.")
    _require_elements(name, input, dim)
    if input.dtype == jnp.bool_:
        raise DTypeError(f"{name}(): does not support bool input")
    return _place(name, input, dim, keepdim)


@defop(dims=reduces)
def argmax(input: Array, dim: Dim = None, keepdim: bool = False) -> Array:
    """Index of the first largest element along `dim`, or in the flattened input; int64."""
    return _arg("argmax", input, dim, keepdim)


@defop(dims=reduces)
def argmin(input: Array, dim: Dim = None, keepdim: bool = False) -> Array:
    """Index of the first smallest element along `dim`, or in the flattened input; int64."""
    return _arg("argmin", input, dim, keepdim)


_extreme_dim = partial(
    defop,
    dims=reduces_twice,
    outputs=("values", "indices"),
    types=OWN_ARITHMETIC,
    derivative=Derivative(vjp=picked_vjp),
    public=INTERNAL,
)


@_extreme_dim()
def max_dim(input: Array, dim: Dim, keepdim: bool = False) -> tuple[Array, Array]:
    """Largest element along `dim` and its first index."""
    _require_elements("max", input, dim)
    values = _extreme(jax.lax.reduce_max, input, axes(dim, input.ndim), keepdim)
    return values, _place("argmax", input, dim, keepdim)


@_extreme_dim()
def min_dim(input: Array, dim: Dim, keepdim: bool = False) -> tuple[Array, Array]:
    """Smallest element along `dim` and its first index."""
    _require_elements("min", input, dim)
    values = _extreme(jax.lax.reduce_min, input, axes(dim, input.ndim), keepdim)
    return values, _place("argmin", input, dim, keepdim)
