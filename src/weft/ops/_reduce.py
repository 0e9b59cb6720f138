"""Helpers of rows that work along dims: axes, zero-dim inputs, checks, and gradients of selections."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import wraps
from inspect import signature
from typing import TypeVar

import jax
import jax.numpy as jnp
from jax.typing import DTypeLike

from weft._base.dtype import DType
from weft._base.types import Arg
from weft.errors import DimError, UnsupportedDTypeError
from weft.ops._dims import Factors, Rule, Sizes, Static, reduces
from weft.ops._jax import broadcasted_iota
from weft.ops._kinds import Arrays, Dims, HostDType

T = TypeVar("T")


def is_inexact(dtype: DTypeLike) -> bool:
    """Whether the type is floating or complex."""
    return jnp.issubdtype(dtype, jnp.inexact)


def is_complex(dtype: DTypeLike) -> bool:
    """Whether the type is complex."""
    return jnp.issubdtype(dtype, jnp.complexfloating)


def is_nan(x: jax.Array) -> jax.Array:
    """`isnan` that also takes integers and bools, none of which is NaN."""
    return jnp.isnan(x) if is_inexact(x.dtype) else jnp.zeros(x.shape, bool)


def wide(x: jax.Array) -> jax.Array:
    """The input in the type that PyTorch accumulates it in: float32 for half types."""
    return x.astype(jnp.float32) if x.dtype in (jnp.float16, jnp.bfloat16) else x


def real_type(dtype: DTypeLike) -> HostDType:
    """The type of the parts of complex numbers; of real numbers, their own."""
    return jnp.finfo(dtype).dtype  # pyright: ignore[reportUnknownVariableType, reportUnknownMemberType]


def to_dtype(x: jax.Array, dtype: DType | None) -> jax.Array:
    """The input in the type that a `dtype` argument names; complex to real takes the real part."""
    if dtype is None:
        return x
    x = x.real if is_complex(x.dtype) and not is_complex(dtype.numpy) else x
    return x.astype(dtype.numpy)


def summable(x: jax.Array, dtype: DType | None) -> jax.Array:
    """The input in the type that its sums and products have: integers and bools become int64."""
    if dtype is None and not is_inexact(x.dtype):
        return x.astype(jnp.int64)
    return to_dtype(x, dtype)


def axes(dim: Dims, ndim: int) -> tuple[int, ...]:
    """The axes that a `dim` argument lists: all for None and `()`, none of a zero-dim input."""
    if dim is None or dim == () or ndim == 0:
        return tuple(range(ndim))
    return (dim,) if isinstance(dim, int) else dim


def spread(x: jax.Array, shape: Sizes, dim: Dims) -> jax.Array:
    """A result reduced over `dim`, with or without `keepdim`, reshaped to broadcast against the input's shape."""
    gone = axes(dim, len(shape))
    return x.reshape(tuple(1 if d in gone else n for d, n in enumerate(shape)))


def positions(shape: Sizes, dim: int) -> jax.Array:
    """The position of each element along one dim, as int64."""
    return broadcasted_iota(jnp.int64, shape, dim)


def require_real(x: jax.Array, text: str) -> None:
    """Refuse complex inputs, which have no order."""
    if is_complex(x.dtype):
        raise UnsupportedDTypeError(text)


def require_sized(name: str, shape: Sizes, dim: Dims) -> None:
    """Refuse to choose an element along a dim of size zero."""
    for d in axes(dim, len(shape)):
        if shape[d] == 0:
            raise DimError(f"{name}: Expected reduction dim {d} to have non-zero size.")


def lifted(body: Callable[..., T]) -> Callable[..., T]:
    """Wrap a body (or derivative) that works along a dim, so that it sees a zero-dim `input` as one of size one."""
    place = list(signature(body).parameters).index("input")

    def vector(x: object) -> object:
        return x.reshape(1) if isinstance(x, jax.Array) and x.ndim == 0 else x

    def scalar(x: jax.Array) -> jax.Array:
        return x.reshape(())

    @wraps(body)
    def run(*args: Arg, **kwargs: Arg) -> T:
        if args[place].ndim:
            return body(*args, **kwargs)
        return jax.tree.map(scalar, body(*jax.tree.map(vector, args), **kwargs))

    return run


@lifted
def moved_vjp(g: Arrays, out: Arrays, input: jax.Array, dim: int) -> jax.Array:
    """The gradient of (values, indices) of which the values are `input`'s elements at the indices along `dim`."""
    return scattered_vjp(g[0], out[1], input, dim)


def twice(rule: Rule) -> Rule:
    """The rule of an operator with two outputs whose dims agree, such as values and indices."""

    def pair(shapes: Sequence[Sizes], static: Static) -> Factors:
        factors = rule(shapes, static)
        return Factors(factors.ins, factors.outs * 2, factors.whole)

    return pair


reduces_twice = twice(reduces)


def shared_vjp(g: jax.Array, out: jax.Array, input: jax.Array, dim: Dims = None) -> jax.Array:
    """The gradient of a maximum or minimum: elements that tie share it evenly."""
    g, out = (spread(x, input.shape, dim) for x in (g, out))
    hit = (input == out) | (is_nan(input) & is_nan(out))
    count = jnp.sum(hit, axis=axes(dim, input.ndim), keepdims=True)
    return jnp.where(hit, (wide(g) / count).astype(g.dtype), 0)


def picked_vjp(g: Arrays, out: Arrays, input: jax.Array, dim: int) -> jax.Array:
    """The gradient of (values, indices) that select one element along `dim`: it goes to that element."""
    if input.ndim == 0:
        return g[0].reshape(())
    value, index = (spread(x, input.shape, dim) for x in (g[0], out[1]))
    return jnp.where(positions(input.shape, dim) == index, value, 0)


def scattered_vjp(g: jax.Array, index: jax.Array, input: jax.Array, dim: int) -> jax.Array:
    """The gradient of gathering `input` by `index` along `dim`: each element sums the gradients of all its reads."""
    cells = tuple(index if d == dim else positions(index.shape, d) for d in range(input.ndim))
    return jnp.zeros(input.shape, g.dtype).at[cells].add(g)
