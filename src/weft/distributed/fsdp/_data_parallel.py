"""The ranks over which parameters are sharded and replicated."""

from __future__ import annotations

from dataclasses import dataclass
from weakref import WeakKeyDictionary

from weft.distributed._group import ProcessGroup
from weft.distributed._world import new_group
from weft.distributed.device_mesh import DeviceMesh
from weft.distributed.tensor._placements import Placements, Replicate, Shard
from weft.errors import PreconditionError, ValueRangeError


@dataclass(frozen=True)
class DataParallel:
    """A mesh whose last dim shards parameters and whose first dim, if there are two, replicates them (HSDP)."""

    mesh: DeviceMesh

    @property
    def shard_group(self) -> ProcessGroup:
        """The ranks that have the parts of one copy."""
        return self.mesh.get_group(-1)

    @property
    def replicate_group(self) -> ProcessGroup | None:
        """The ranks that have the same part, each of another copy; None if there is one copy."""
        return self.mesh.get_group(0) if self.mesh.ndim == 2 else None

    @property
    def parts(self) -> int:
        """The number of parts of a parameter."""
        return self.mesh.shape[-1]

    @property
    def index(self) -> int:
        """Which part this rank has."""
        return self.mesh.get_local_rank(-1)

    def placements(self, dim: int) -> Placements:
        """Those of a parameter that is sharded along a dim."""
        return (Shard(dim),) if self.mesh.ndim == 1 else (Replicate(), Shard(dim))


def require_mesh(mesh: object) -> None:
    """Raise for what is no mesh that `fully_shard` takes."""
    if not isinstance(mesh, DeviceMesh) or mesh.ndim not in (1, 2):
        raise ValueRangeError(
            f"fully_shard expects a 1D or 2D DeviceMesh but got {mesh}; slice one with more dims, as mesh['dp'], and "
            "apply tensor parallelism over another of its dims before"
        )
    if mesh.ndim == 2 and mesh.mesh_dim_names is None:
        raise PreconditionError("Please init the 2D mesh for HSDP with mesh_dim_names specified")


def require_reshard(reshard_after_forward: object, parts: int) -> bool | int:
    """The argument `reshard_after_forward`, as a bool if it is one of the two; `ValueError` if it is neither."""
    if not isinstance(reshard_after_forward, (bool, int)):
        raise ValueRangeError(
            "reshard_after_forward should be a bool or an int representing the group size to reshard to, not "
            f"{reshard_after_forward}"
        )
    if isinstance(reshard_after_forward, bool):
        return reshard_after_forward
    if reshard_after_forward < 1 or parts % reshard_after_forward:
        raise ValueRangeError(
            f"If passing reshard_after_forward as an int, it should be a factor of {parts}, not {reshard_after_forward}"
        )
    if reshard_after_forward == 1:
        return False
    return True if reshard_after_forward == parts else reshard_after_forward


# no cell: written where modules are wrapped, which is no part of a capture
_neighbours: WeakKeyDictionary[ProcessGroup, dict[int, DataParallel]] = WeakKeyDictionary()
"""By the group that shards one copy, and the number of neighbours."""


def neighbours(ranks: DataParallel, size: int) -> DataParallel:
    """The `size` ranks that follow each other, this one among them, of those that shard one copy. All must call it."""
    group = ranks.shard_group
    by_size = _neighbours.setdefault(group, {})
    if size not in by_size:
        start = ranks.index // size * size
        members = new_group(group.ranks[start : start + size], use_local_synchronization=True, sort_ranks=False)
        by_size[size] = DataParallel(DeviceMesh.from_group(members, ranks.mesh.device_type))
    return by_size[size]
