"""Which part of a distributed tensor is where, under PyTorch's import path."""

from __future__ import annotations

from collections.abc import Sequence

from weft._base.size import size_of
from weft.distributed.device_mesh import DeviceMesh
from weft.distributed.tensor._placements import Placement
from weft.distributed.tensor._sharding import sharding_of


def compute_local_shape_and_global_offset(
    global_shape: Sequence[int], mesh: DeviceMesh, placements: Sequence[Placement]
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The shape of this process's part of a tensor of this shape, and where it begins in each dim."""
    parts = sharding_of(mesh, tuple(placements), size_of(global_shape)).local_parts()
    return tuple(size for _, size in parts), tuple(start for start, _ in parts)


def compute_local_shape(
    global_shape: Sequence[int], mesh: DeviceMesh, placements: Sequence[Placement]
) -> tuple[int, ...]:
    """The shape of this process's part of a tensor of this shape."""
    return compute_local_shape_and_global_offset(global_shape, mesh, placements)[0]
