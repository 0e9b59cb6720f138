"""Meshes of devices: n-dimensional arrays of ranks, with a process group along each dim."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from itertools import count
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np

from weft._base.device import device
from weft._base.usage import log_api_usage_once
from weft._lazy.runtime import jax_device
from weft._tensor.convert import tensor
from weft._tensor.tensor import Tensor
from weft.distributed._group import ProcessGroup
from weft.distributed._world import (
    get_rank,
    get_world_size,
    init_process_group,
    is_initialized,
    new_group,
    require_default,
)
from weft.errors import ArgumentError, DimNameError, DistError, ShapeError, ValueRangeError

__all__ = ["DeviceMesh", "init_device_mesh"]


class _Active(threading.local):
    """The meshes whose `with` blocks this thread is in."""

    def __init__(self) -> None:
        self.meshes: list[DeviceMesh] = []


_active = _Active()


class DeviceMesh:
    """An n-dimensional array of ranks. Along each dim, the ranks that differ in that index alone are a process group.

    All ranks of the job must make the same meshes in the same order. A rank may be in no place of a mesh: then it has
    no coordinate and no groups. `with mesh:` makes it the default of functions that take a mesh.
    """

    def __init__(self, device_type: str, mesh: Any, *, mesh_dim_names: Sequence[str] | None = None) -> None:
        log_api_usage_once("torch.distributed.device_mesh.DeviceMesh.__init__")
        ranks = mesh.numpy() if isinstance(mesh, Tensor) else np.asarray(mesh)
        if ranks.dtype.kind not in "iu" or not ranks.ndim:
            raise ValueRangeError(f"a mesh is an array of ranks with at least one dim, but got {mesh!r}")
        default = require_default()
        _require_ranks(ranks)
        names = None if mesh_dim_names is None else tuple(mesh_dim_names)
        _require_names(names, ranks.ndim)
        groups = [_groups_along(ranks, dim) for dim in range(ranks.ndim)]
        self._init(device_type, ranks, names, groups)
        if ranks.size == get_world_size():
            self._whole = default

    def _init(
        self, device_type: str, ranks: np.ndarray[Any, Any], names: tuple[str, ...] | None, groups: Sequence[Any]
    ) -> None:
        self.device_type = device_type
        self.mesh_dim_names = names
        self._ranks = ranks
        self._groups = list(groups)
        self._whole: ProcessGroup | None = None  # the group of all ranks of the mesh, if there is one
        self._flattened: dict[str, DeviceMesh] = {}
        self._root: DeviceMesh | None = None  # the mesh that this one is a part of
        places = np.argwhere(ranks == get_rank())
        self.coordinate: tuple[int, ...] | None = tuple(int(i) for i in places[0]) if len(places) else None
        self.shape = tuple(ranks.shape)
        self.key = (device_type, self.shape, ranks.tobytes(), names, self.coordinate, _job_number())

    @staticmethod
    def from_group(
        group: ProcessGroup | Sequence[ProcessGroup],
        device_type: str,
        mesh: Any = None,
        *,
        mesh_dim_names: Sequence[str] | None = None,
    ) -> DeviceMesh:
        """A mesh over existing groups: one, or one for each dim of `mesh`."""
        groups = [group] if isinstance(group, ProcessGroup) else list(group)
        if mesh is None and len(groups) != 1:
            raise ValueRangeError("DeviceMesh.from_group: several groups need `mesh`, the ranks of all places")
        ranks = np.asarray(groups[0].ranks if mesh is None else mesh)
        if ranks.ndim != len(groups):
            raise ValueRangeError(f"a mesh of {ranks.ndim} dims needs as many groups, but got {len(groups)}")
        names = None if mesh_dim_names is None else tuple(mesh_dim_names)
        _require_names(names, ranks.ndim)
        result = object.__new__(DeviceMesh)
        result._init(device_type, ranks, names, groups)
        return result

    # --- what it is ---

    @property
    def mesh(self) -> Tensor:
        """The ranks, as a tensor."""
        return tensor(self._ranks.tolist())

    @property
    def ndim(self) -> int:
        """The number of dims."""
        return len(self.shape)

    def size(self, mesh_dim: int | str | None = None) -> int:
        """The number of devices, of the mesh or along a dim."""
        return int(np.prod(self.shape)) if mesh_dim is None else self.shape[self.dim_of(mesh_dim)]

    def dim_of(self, mesh_dim: int | str) -> int:
        """The position of a dim that is given by number or by name. `KeyError` for a name that it has not."""
        if isinstance(mesh_dim, str):
            if mesh_dim not in (self.mesh_dim_names or ()):
                raise DimNameError(f"no mesh dim is called {mesh_dim!r}; the mesh has {self._dims_text()}")
            return (self.mesh_dim_names or ()).index(mesh_dim)
        if not isinstance(mesh_dim, int):
            raise ArgumentError(f"a mesh dim is given by its number or its name, but got {mesh_dim!r}")
        if not -self.ndim <= mesh_dim < self.ndim:
            raise ShapeError(f"mesh dim {mesh_dim} is out of range for a mesh with {self.ndim} dims")
        return mesh_dim % self.ndim

    def get_coordinate(self) -> list[int] | None:
        """This rank's place in the mesh; None if it has none."""
        return None if self.coordinate is None else list(self.coordinate)

    def get_rank(self) -> int:
        """This process's rank in the job."""
        return get_rank()

    def get_local_rank(self, mesh_dim: int | str | None = None) -> int:
        """This rank's index along a dim, which may be left out if there is only one."""
        if self.coordinate is None:
            raise DistError(f"rank {get_rank()} has no place in {self!r}")
        return self.coordinate[self._only(mesh_dim, "get_local_rank")]

    def get_group(self, mesh_dim: int | str | None = None) -> ProcessGroup:
        """The group of the ranks along a dim to which this rank belongs."""
        group = self._groups[self._only(mesh_dim, "get_group")]
        if not isinstance(group, ProcessGroup):
            raise DistError(f"rank {get_rank()} has no place in {self!r}, so it has no group there")
        return group

    def group_over(self, mesh_dims: Sequence[int]) -> ProcessGroup | None:
        """One group of the ranks that differ from this one in these dims alone, if there is one."""
        long = [dim for dim in mesh_dims if self.shape[dim] > 1]
        if len(long) == 1:
            return self.get_group(long[0])
        return self._whole if len(long) == sum(size > 1 for size in self.shape) else None

    def get_all_groups(self) -> list[ProcessGroup]:
        """The groups along all dims."""
        return [self.get_group(dim) for dim in range(self.ndim)]

    def _only(self, mesh_dim: int | str | None, call: str) -> int:
        if mesh_dim is None and self.ndim > 1:
            raise DistError(f"{call}() needs `mesh_dim` for a mesh with {self.ndim} dims: {self._dims_text()}")
        return self.dim_of(0 if mesh_dim is None else mesh_dim)

    def _dims_text(self) -> str:
        return f"the dims {list(self.mesh_dim_names)}" if self.mesh_dim_names else f"{self.ndim} dims without names"

    # --- parts of it ---

    def __getitem__(self, names: str | tuple[str, ...]) -> DeviceMesh:
        """The mesh of some dims, given by name, in which this rank is."""
        wanted = (names,) if isinstance(names, str) else tuple(names)
        if not self.mesh_dim_names:
            raise DimNameError("Cannot slice a DeviceMesh without mesh_dim_names!")
        if len(wanted) == 1 and wanted[0] in self._flattened:
            return self._flattened[wanted[0]]
        dims = [self.dim_of(name) for name in wanted]
        if dims != sorted(set(dims)):
            raise DimNameError(f"{list(wanted)} are not dims of the mesh in its order {list(self.mesh_dim_names)}")
        return self if dims == list(range(self.ndim)) else self._of_dims(dims, wanted)

    def _of_dims(self, dims: Sequence[int], names: tuple[str, ...]) -> DeviceMesh:
        """The mesh of some dims, in this order, in which this rank is."""
        index: list[Any] = list(self.coordinate or (0,) * self.ndim)
        for dim in dims:
            index[dim] = slice(None)
        kept = sorted(dims)
        ranks = self._ranks[tuple(index)].transpose([kept.index(dim) for dim in dims])
        result = object.__new__(DeviceMesh)
        result._init(self.device_type, ranks, names, [self._groups[dim] for dim in dims])
        result._root = self._root or self
        return result

    @staticmethod
    def _concatenate(device_mesh_list: Sequence[DeviceMesh]) -> DeviceMesh:
        """The mesh of the dims of several parts of one mesh, in this order; `RuntimeError` for parts of several."""
        roots = {mesh._root or mesh for mesh in device_mesh_list}
        names = [name for mesh in device_mesh_list for name in mesh.mesh_dim_names or (None,)]
        if len(roots) > 1 or None in names:
            raise DistError(
                "Cannot concatenate DeviceMeshes derived from different device meshs: slice one mesh with names by "
                f"them, as mesh['dp'] and mesh['tp'], but got {list(device_mesh_list)}"
            )
        if len(set(names)) < len(names):
            raise DistError(f"Cannot concatenate overlapping meshes: {list(device_mesh_list)}")
        (root,) = roots
        return root._of_dims([root.dim_of(str(name)) for name in names], tuple(map(str, names)))

    def _flatten(self, mesh_dim_name: str | None = None) -> DeviceMesh:
        """The mesh as one dim. All ranks of the job must call it."""
        name = mesh_dim_name or "_".join(self.mesh_dim_names or ("flat",))
        if name not in self._flattened:
            names = (name,) if self.mesh_dim_names else None
            flat = DeviceMesh(self.device_type, self._ranks.reshape(-1), mesh_dim_names=names)
            self._flattened[name] = flat
            if self._whole is None and flat.coordinate is not None:
                self._whole = flat.get_group()
        return self._flattened[name]

    def __enter__(self) -> DeviceMesh:
        _active.meshes.append(self)
        return self

    def __exit__(self, *exception: object) -> None:
        _active.meshes.pop()

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, DeviceMesh) and self.key == other.key)

    def __hash__(self) -> int:
        return hash(self.key)

    def __repr__(self) -> str:
        names = f", mesh_dim_names={self.mesh_dim_names}" if self.mesh_dim_names else ""
        return f"DeviceMesh({self.device_type!r}, {self._ranks.tolist()}{names})"


def _job_number() -> int:
    """A number of the job that this rank has joined. A rank that joins another job may get the same numbers there."""
    return _jobs.setdefault(require_default(), next(_job_numbers))


_jobs: WeakKeyDictionary[ProcessGroup, int] = WeakKeyDictionary()
_job_numbers = count()


def _require_ranks(ranks: np.ndarray[Any, Any]) -> None:
    world = get_world_size()
    if ranks.size > world:
        raise DistError(f"Mesh should not be bigger than default world size {world}, but found {ranks.size} ranks!")
    flat = ranks.ravel().tolist()
    if len(set(flat)) < len(flat) or min(flat) < 0 or max(flat) >= world:
        raise DistError(f"the ranks of a mesh are different ones below {world}, but got {ranks.tolist()}")


def _require_names(names: tuple[str, ...] | None, ndim: int) -> None:
    if names is None:
        return
    if len(names) != ndim:
        raise DistError(f"mesh_shape and mesh_dim_names should have same length, but got {ndim} dims and names {names}")
    if len(set(names)) < len(names):
        raise DistError(f"Each mesh_dim_name must be unique, but got {names}")


def _groups_along(ranks: np.ndarray[Any, Any], dim: int) -> Any:
    """This rank's group among those of the ranks that differ in one index alone; all ranks make all of them."""
    default = require_default()
    own: Any = None
    for members in np.moveaxis(ranks, dim, -1).reshape(-1, ranks.shape[dim]).tolist():
        group = default if members == list(default.ranks) else new_group(members, sort_ranks=False)
        if get_rank() in members:
            own = group
    return own


def init_device_mesh(
    device_type: str, mesh_shape: Sequence[int], *, mesh_dim_names: Sequence[str] | None = None
) -> DeviceMesh:
    """A mesh of this shape over the first ranks of the job, in order.

    `RuntimeError` if there are fewer ranks. Without a process group, joins one as `init_process_group()` does.
    """
    shape = tuple(mesh_shape)
    _require_names(None if mesh_dim_names is None else tuple(mesh_dim_names), len(shape))
    if not device_type.isalpha():
        raise DistError(
            f"Device type with index is not supported but got {device_type}. If you maintained a 'torch.device' "
            "object, it's recommended to pass in 'device.type'."
        )
    target = device(device_type)  # an error if there is no such type
    if target.type != "cpu":
        jax_device(target)  # an error if there is no such device
    if not is_initialized():
        init_process_group()
    count = int(np.prod(shape))
    if count > get_world_size():
        raise DistError(
            f"Mesh should not be bigger than default world size {get_world_size()}, but found {count} ranks!"
        )
    return DeviceMesh(device_type, np.arange(count).reshape(shape), mesh_dim_names=mesh_dim_names)


def active_mesh(mesh: DeviceMesh | None) -> DeviceMesh:
    """The mesh that is given, or that of the innermost `with` block; `RuntimeError` if there is none."""
    if mesh is not None:
        if not isinstance(mesh, DeviceMesh):
            raise ArgumentError(f"device_mesh must be a DeviceMesh, as init_device_mesh makes it, but got {mesh!r}")
        return mesh
    if not _active.meshes:
        raise DistError("No device mesh is currently active!")
    return _active.meshes[-1]
