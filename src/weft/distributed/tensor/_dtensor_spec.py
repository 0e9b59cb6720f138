"""What a distributed tensor is, under PyTorch's names: `DTensor._spec`."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import prod
from typing import NamedTuple

from weft._base.dtype import DType
from weft._base.size import Size
from weft.distributed.device_mesh import DeviceMesh
from weft.distributed.tensor._placements import Placements, Shard
from weft.errors import ValueRangeError


class TensorMeta(NamedTuple):
    """The size, the strides and the element type of a whole tensor."""

    shape: Size
    stride: tuple[int, ...]
    dtype: DType


@dataclass(frozen=True)
class DTensorSpec:
    """The mesh and the placements of a distributed tensor, and the type of the whole."""

    mesh: DeviceMesh
    placements: Placements
    tensor_meta: TensorMeta | None = None

    @property
    def device_mesh(self) -> DeviceMesh:
        """The mesh."""
        return self.mesh

    @property
    def _meta(self) -> TensorMeta:
        if self.tensor_meta is None:
            raise ValueRangeError("tensor_meta is not set")
        return self.tensor_meta

    @property
    def shape(self) -> Size:
        """The size of the whole tensor."""
        return self._meta.shape

    @property
    def stride(self) -> tuple[int, ...]:
        """The strides of the whole tensor."""
        return self._meta.stride

    @property
    def ndim(self) -> int:
        """The number of dims of the tensor."""
        return len(self.shape)

    @property
    def num_shards(self) -> int:
        """In so many parts the tensor is split."""
        return prod(self.num_shards_map)

    @property
    def num_shards_map(self) -> list[int]:
        """For each dim of the tensor, in how many parts it is split."""
        counts = [1] * self.ndim
        for count, placement in zip(self.mesh.shape, self.placements, strict=True):
            if isinstance(placement, Shard):
                counts[placement.dim] *= count
        return counts

    @property
    def dim_map(self) -> list[int]:
        """For each dim of the tensor, the last mesh dim that splits it, or -1."""
        dims = [-1] * self.ndim
        for at, placement in enumerate(self.placements):
            if placement.is_shard() and isinstance(placement, Shard):
                dims[placement.dim] = at
        return dims

    @property
    def sums(self) -> list[int]:
        """The mesh dims along which the tensor is still to be reduced."""
        return [at for at, placement in enumerate(self.placements) if placement.is_partial()]

    def is_replicated(self) -> bool:
        """Whether every device has all of the tensor."""
        return all(placement.is_replicate() for placement in self.placements)

    def is_sharded(self) -> bool:
        """Whether some dim is split."""
        return any(isinstance(placement, Shard) for placement in self.placements)

    def shallow_copy_with_tensor_meta(self, tensor_meta: TensorMeta | None) -> DTensorSpec:
        """The same mesh and placements for another tensor."""
        return replace(self, tensor_meta=tensor_meta)

    def __str__(self) -> str:
        placements = "".join(map(str, self.placements))
        meta = "unknown" if self.tensor_meta is None else f"{self.tensor_meta.dtype.name}{list(self.shape)}"
        return f"Spec({meta}({placements}))"
