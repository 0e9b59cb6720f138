"""The partial inverse of maximum pooling."""

from __future__ import annotations

import math
from collections.abc import Sequence

import jax.numpy as jnp

from weft.errors import DomainError, DTypeError, ShapeError
from weft.ops._dims import Factors, NameOf, Sizes, Static
from weft.ops._findings import Misses
from weft.ops._index import outside
from weft.ops._kinds import Array, Shape
from weft.ops._neural import require_float
from weft.ops._table import INTERNAL, NO_ARITHMETIC, Check, Derivative, defop
from weft.ops._type_names import scalar_name


def _planes(shapes: Sequence[Sizes], static: Static) -> Factors:
    """Batch and channels pass through; places are whole."""
    n = len(static["output_size"])
    ndim = len(shapes[0])
    lead, space = tuple(range(ndim - n)), tuple(range(ndim - n, ndim))
    return Factors(((*lead, *space),) * 2, ((*lead, *map(NameOf, space)),), frozenset(space))


def _check(input: Array, indices: Array, n: int) -> None:
    op = f"max_unpooling{n}d"
    if indices.dtype != jnp.int64:
        raise DTypeError(f"elements in indices should be type int64 but got: {scalar_name(indices)}")
    if input.ndim not in (n + 1, n + 2):
        raise ShapeError(
            f"Input to {op} should be a {n + 1}d or {n + 2}d Tensor, but got a tensor with {input.ndim} dimensions."
        )
    if input.shape != indices.shape:
        raise ShapeError(
            f"Expected shape of indices to be same as that of the input tensor ({list(input.shape)}) "
            f"but got indices tensor with shape: {list(indices.shape)}"
        )
    for dim in range(input.ndim - n - 1, input.ndim):
        if input.shape[dim] == 0:
            raise ShapeError(
                f"{op}_forward_out_cpu(): Expected input to have non-zero size for non-batch dimensions, "
                f"but got {list(input.shape)} with dimension {dim} being empty."
            )
    require_float(input, f"max_unpool{n}d")


def _bad_place(indices: Array, output_size: Shape) -> Misses:
    plane = output_size if len(output_size) > 1 else (*output_size, 1)
    return outside(indices, math.prod(output_size), "x".join(map(str, plane)))


def _flat(x: Array, n: int) -> Array:
    return x.reshape(math.prod(x.shape[: x.ndim - n]), math.prod(x.shape[x.ndim - n :]))


def _unpool_vjp(g: Array, input: Array, indices: Array, output_size: Shape) -> tuple[Array, None]:
    n = len(output_size)
    return jnp.take_along_axis(_flat(g, n), _flat(indices, n), axis=1, mode="clip").reshape(input.shape), None


@defop(
    types=NO_ARITHMETIC,
    dims=_planes,
    derivative=Derivative(vjp=_unpool_vjp),
    public=INTERNAL,
    check=Check(
        elements=_bad_place, text="Found an invalid max index: {} (output volumes are of size {})", error=DomainError
    ),
)
def max_unpool(input: Array, indices: Array, output_size: Shape) -> Array:
    """Planes of `output_size` with the input's elements at the given flat positions, and 0 elsewhere."""
    n = len(output_size)
    _check(input, indices, n)
    lead = input.shape[: input.ndim - n]
    values = _flat(input, n)
    planes = jnp.zeros((values.shape[0], math.prod(output_size)), input.dtype)
    planes = planes.at[jnp.arange(values.shape[0])[:, None], _flat(indices, n)].set(values, mode="drop")
    return planes.reshape(*lead, *output_size)
