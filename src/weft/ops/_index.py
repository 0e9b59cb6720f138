"""Helpers of operators that index by a tensor: coordinates, checks of index types, indices out of bounds."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from weft._base.types import Arg
from weft.errors import DTypeError, IndexRangeError, WeftError
from weft.ops._dims import Factors, Sizes
from weft.ops._findings import Misses, misses
from weft.ops._jax import broadcasted_iota, optimization_barrier
from weft.ops._type_names import scalar_name

Array = jax.Array
Updater: TypeAlias = Any
"""What `x.at[index]` is: jax has no public name for its type."""

# The fields are the index and a description of what was indexed; `Misses` has both.
OUT_OF_BOUNDS = "index {} is out of bounds for {}"
OUT_OF_SELF = "index out of range in self: {} is out of bounds for {}"
OUT_OF_ELEMENTS = "out of range: tried to access index {} on a tensor of {}"

# Bad indices are found by a separate check, so reads and writes need no bounds (XLA clamps reads and drops writes).
UNCHECKED: dict[str, Any] = {"mode": "promise_in_bounds", "wrap_negative_indices": False}


def require_dtype(index: Array, message: str, *allowed: str, error: type[WeftError] = DTypeError) -> None:
    """Raise `error` with the message unless the index is empty or has one of the element types."""
    if index.size and index.dtype.name not in allowed:
        raise error(message)


def require_vector(index: Array, message: str, error: type[WeftError] = IndexRangeError) -> None:
    """Raise `error` with the message unless the index has at most one dim."""
    if index.ndim > 1:
        raise error(message)


def cells(index: Array, dim: int) -> tuple[Array, ...]:
    """Coordinates of the cells that `index` names along `dim`: one array for each dim; the arrays broadcast."""
    grid = [
        broadcasted_iota(index.dtype, (1,) * d + (n,) + (1,) * (index.ndim - d - 1), d)
        for d, n in enumerate(index.shape)
    ]
    grid[dim] = index
    return tuple(grid)


def rows(dim: int, index: Array) -> tuple[slice | Array, ...]:
    """Coordinates of whole slices along `dim`."""
    return (slice(None),) * dim + (index,)


def outside(index: Array, size: int, location: str, *, negative: bool = False) -> Misses:
    """Indices that lie outside of `size` elements; `negative` ones may count from the end."""
    index = index.astype(np.int64)  # in a narrow or unsigned type, a bound may be another number
    return misses(index, (index >= size) | (index < (-size if negative else 0)), location)


def outside_dim(index: Array, input: Array, dim: int, *, negative: bool = False) -> Misses:
    """Indices that lie outside of the dim `dim` of `input`."""
    size = extent(input, dim)
    return outside(index, size, f"dimension {dim} with size {size}", negative=negative)


def outside_elements(index: Array, input: Array) -> Misses:
    """Indices that lie outside of the flattened `input`; negative ones may count from the end."""
    return outside(index, input.size, f"{input.size} elements", negative=True)


def wrapped(index: Array, size: int) -> Array:
    """Indices with negative ones counted from the end."""
    return jnp.where(index < 0, index + size, index)


def isolated(write: Callable[..., Array]) -> Callable[..., Array]:
    """A function that writes into a part of an array, kept out of fusions with what comes before and after.

    XLA:CPU fuses what computes the update with `dynamic_update_slice`, and writes in place. Where the update is read
    from another part of the same array, as in `x[1:] = x[:-1]` with a reshape before or after, it reads elements that
    it has written already (openxla/xla#49176). `Program` asks XLA to keep the barriers.
    """

    @wraps(write)
    def body(*args: Arg, **static: Arg) -> Array:
        leaves, tree = jax.tree.flatten(args)
        arrays = iter(optimization_barrier([leaf for leaf in leaves if isinstance(leaf, Array)]))
        kept = [next(arrays) if isinstance(leaf, Array) else leaf for leaf in leaves]
        return optimization_barrier(write(*jax.tree.unflatten(tree, kept), **static))

    return body


def extent(input: Array, dim: int) -> int:
    """Size along `dim`; a zero-dim array counts as one element."""
    return input.shape[dim] if input.ndim else 1


def added(ref: Updater, value: Array) -> Array:
    """The array behind an `.at[...]` updater with `value` added; for booleans, the logical or."""
    add = ref.max if value.dtype == jnp.bool_ else ref.add
    return add(value, **UNCHECKED)


def require_elements(op: str, index: Array) -> None:
    require_dtype(index, f"{op}(): Expected a long tensor for index, but got {scalar_name(index)}", "int64")


def require_extent(index: Array, size: int) -> None:
    """Raise `IndexError` if there are indices but the dim has size 0."""
    if not size and index.size:
        raise IndexRangeError("index is out of bounds for dimension with size 0")


def flat_write(shapes: Sequence[Sizes]) -> Factors:
    """For writes at flat places: any element may be written, so all dims are whole; the first input's dims stay."""
    letters = tuple(tuple(f"{i}:{d}" for d in range(len(s))) for i, s in enumerate(shapes))
    return Factors(letters, letters[:1], frozenset(letter for term in letters for letter in term))


def part_at(x: jax.Array, start: jax.Array, length: int, dim: int) -> jax.Array:
    """`length` slices along a dim from `start` on. `start` must not be negative."""
    sizes = [length if d == dim else size for d, size in enumerate(x.shape)]
    return lax.dynamic_slice(x, _corner(x, start, dim), sizes, allow_negative_indices=False)


def with_part(x: jax.Array, part: jax.Array, start: jax.Array, dim: int) -> jax.Array:
    """`x` with other slices along a dim from `start` on. `start` must not be negative."""
    return lax.dynamic_update_slice(x, part, _corner(x, start, dim), allow_negative_indices=False)


def _corner(x: jax.Array, start: jax.Array, dim: int) -> list[jax.Array]:
    """The first element of a part in each dim: `start` in the dim, 0 in all others."""
    return [start if d == dim else jnp.zeros_like(start) for d in range(x.ndim)]
