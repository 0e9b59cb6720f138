"""What operators that index by a tensor share: coordinates, checks of index types, flags of bad indices."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp

from weft.errors import DTypeError, IndexRangeError, WeftError
from weft.ops._dims import Factors, Sizes
from weft.ops._words import scalar_word

Array = jax.Array

OUT_OF_BOUNDS = "index is out of bounds for dimension"
OUT_OF_SELF = "index out of range in self"
OUT_OF_ELEMENTS = "out of range: tried to access an index outside of the tensor's elements"

# Indices are checked by a flag of their own, so reads and writes need not be (XLA clamps those, drops these).
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
    """Coordinates of the cells that `index` names along `dim`: one array per dim, which broadcast."""
    grid = [jax.lax.broadcasted_iota(index.dtype, (1,) * d + (n,) + (1,) * (index.ndim - d - 1), d)
            for d, n in enumerate(index.shape)]  # fmt: skip
    grid[dim] = index
    return tuple(grid)


def rows(dim: int, index: Array) -> tuple[Any, ...]:
    """Coordinates of whole slices along `dim`."""
    return (slice(None),) * dim + (index,)


def outside(index: Array, size: int, *, negative: bool = False) -> Array:
    """Flags of indices that lie outside of a dim; `negative` ones may count from its end."""
    return (index >= size) | (index < (-size if negative else 0))


def wrapped(index: Array, size: int) -> Array:
    """Indices with negative ones counted from the end."""
    return jnp.where(index < 0, index + size, index)


def extent(input: Array, dim: int) -> int:
    """Size along `dim`; a zero-dim array counts as one element."""
    return input.shape[dim] if input.ndim else 1


def added(where: Any, value: Array) -> Array:
    """The array behind an `.at[...]` updater with `value` added; booleans add up to their disjunction."""
    add = where.max if value.dtype == jnp.bool_ else where.add
    return add(value, **UNCHECKED)


def require_elements(op: str, index: Array) -> None:
    require_dtype(index, f"{op}(): Expected a long tensor for index, but got {scalar_word(index)}", "int64")


def flat_write(shapes: Sequence[Sizes], static: Mapping[str, Any]) -> Factors:
    """Any element may be written from anywhere: all dims are whole, the first input's stay."""
    del static
    letters = tuple(tuple(f"{i}:{d}" for d in range(len(s))) for i, s in enumerate(shapes))
    return Factors(letters, letters[:1], frozenset(letter for term in letters for letter in term))
