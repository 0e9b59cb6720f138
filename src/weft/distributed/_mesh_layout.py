"""Which places of a mesh its parts consist of.

The *places* of a mesh are numbered row by row. A *dim*, of the mesh or of a part, is a tuple of steps: how far its
entries are from its first one. A mesh of shape (2, 3) has the dims (0, 3) and (0, 1, 2), and (0, 1, 2, 3, 4, 5) is both
as one. So the dims of parts, merged and divided dims need no further rules. The same rows follow from a dim on every
rank, in one order, whichever part a rank is in.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import product

import numpy as np

from weft.errors import OutOfRangeError, PreconditionError, ValueRangeError

Dim = tuple[int, ...]


def dims_of(shape: Sequence[int]) -> list[Dim]:
    """The dims of a whole mesh."""
    strides = [int(np.prod(shape[at + 1 :])) for at in range(len(shape))]
    return [tuple(stride * index for index in range(size)) for size, stride in zip(shape, strides, strict=True)]


def merged(dims: Sequence[Dim]) -> Dim:
    """Several dims as one, the last of which varies fastest."""
    return tuple(sum(steps) for steps in product(*dims))


def divided(dim: Dim, sizes: Sequence[int]) -> list[Dim] | None:
    """The dims of these sizes that are this dim if they are merged; None if there are none."""
    parts = [tuple(dim[step] for step in steps) for steps in dims_of(sizes)] if np.prod(sizes) == len(dim) else []
    return parts if parts and merged(parts) == dim else None


def rows(dim: Dim, places: int) -> list[list[int]]:
    """The rows along a dim of a mesh with so many places: each place is in one."""
    result: list[list[int]] = []
    visited: set[int] = set()
    for first in range(places):
        if first not in visited:
            result.append([first + step for step in dim])
            visited.update(result[-1])
    return result


def coordinate(dims: Sequence[Dim], place: int, places: int) -> tuple[int, ...]:
    """The index of a place along each dim."""
    return tuple(next(row.index(place) for row in rows(dim, places) if place in row) for dim in dims)


def shape_of(mesh_shape: Iterable[int]) -> tuple[int, ...]:
    """The shape that a mesh is given, checked."""
    shape = tuple(mesh_shape)
    if not all(hasattr(size, "__index__") for size in shape):
        raise ValueRangeError(f"mesh_shape must have the sizes of the mesh's dims, but got {mesh_shape!r}")
    if any(size < 0 for size in shape):
        raise OutOfRangeError(f"mesh_shape must have positive sizes, but got {shape}")
    if 0 in shape:
        raise PreconditionError(f"a mesh has one rank at least, but mesh_shape is {shape}")
    return shape
