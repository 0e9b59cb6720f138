"""Meshes of devices: n-dimensional arrays of ranks, with a process group along each dim."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from itertools import count
from typing import TypeAlias
from weakref import WeakKeyDictionary, WeakValueDictionary

import numpy as np
from numpy.typing import ArrayLike

from weft._base.cell import LocalCell
from weft._base.device import device
from weft._base.types import Arg, SavedState
from weft._base.usage import log_api_usage_once
from weft._lazy.runtime import jax_device
from weft._tensor.convert import tensor
from weft._tensor.tensor import Tensor
from weft.distributed._group import ProcessGroup
from weft.distributed._mesh_layout import Dim, coordinate, dims_of, divided, merged, rows, shape_of
from weft.distributed._world import (
    get_rank,
    get_world_size,
    init_process_group,
    is_initialized,
    new_group,
    require_default,
)
from weft.errors import (
    ArgumentError,
    DimError,
    DistError,
    NameKeyError,
    PreconditionError,
    ValueRangeError,
)

__all__ = ["DeviceMesh", "init_device_mesh"]


BackendPair: TypeAlias = tuple[str | None, object]
"""The name and the options of the backend of a dim's groups."""

MeshRanks: TypeAlias = Tensor | ArrayLike
"""The ranks of a mesh, by place."""

_active = LocalCell["tuple[DeviceMesh, ...]"]("the meshes of blocks", ())


class DeviceMesh:
    """An n-dimensional array of ranks. Along each dim, the ranks that differ in that index alone are a process group.

    All ranks of the job must make the same meshes in the same order. A rank may be in no place of a mesh: then it has
    no coordinate and no groups. `with mesh:` makes it the default of functions that take a mesh.
    """

    def __init__(
        self,
        device_type: str,
        mesh: MeshRanks,
        *,
        mesh_dim_names: Sequence[str] | None = None,
        backend_override: Sequence[BackendPair] | None = None,
    ) -> None:
        log_api_usage_once("torch.distributed.device_mesh.DeviceMesh.__init__")
        ranks = mesh._host() if isinstance(mesh, Tensor) else np.asarray(mesh)
        if ranks.dtype.kind in "OU":
            raise ArgumentError(f"a mesh is an array of ranks, but got {mesh!r}")
        if not ranks.size:
            raise PreconditionError("a mesh has one rank at least, but got none")
        if ranks.dtype.kind not in "iu" or not ranks.ndim:
            raise ValueRangeError(f"a mesh is an array of ranks with at least one dim, but got {mesh!r}")
        require_default()
        _require_ranks(ranks)
        names = None if mesh_dim_names is None else tuple(mesh_dim_names)
        _require_names(names, ranks.ndim)
        if backend_override is not None and len(backend_override) != ranks.ndim:
            raise ValueRangeError(
                "backend_override should have the same length as the number of mesh dimensions, but got "
                f"{len(backend_override)} and {ranks.ndim}."
            )
        dims = dims_of(ranks.shape)
        backends = [name for name, _ in backend_override or [(None, None)] * ranks.ndim]
        groups = [_group_along(ranks, dim, backend) for dim, backend in zip(dims, backends, strict=True)]
        self._init(device_type, tuple(ranks.ravel().tolist()), dims, names, groups)

    def _init(
        self,
        device_type: str,
        places: tuple[int, ...],
        dims: Sequence[Dim],
        names: tuple[str, ...] | None,
        groups: Sequence[ProcessGroup | None],
        root: DeviceMesh | None = None,
    ) -> None:
        """Set what the mesh consists of: dims of the root mesh, which has a rank at each of its `places`."""
        self.device_type = device_type
        self.mesh_dim_names = names
        self._places, self._dims, self._groups = places, list(dims), list(groups)
        self.root: DeviceMesh = root or self  # the mesh that this one is a part of
        if root is None:
            self._flattened: dict[str, DeviceMesh] = {}
            self._group_of: dict[Dim, ProcessGroup | None] = {}  # this rank's group along dims together
            if len(places) == get_world_size():
                self._group_of[_key(dims)] = require_default()
        for dim, group in zip(dims, groups, strict=True):
            self.root._group_of.setdefault(_key([dim]), group)
        self.shape = tuple(map(len, dims))
        place = places.index(get_rank()) if get_rank() in places else None
        self.coordinate = None if place is None else coordinate(dims, place, len(places))
        origin = 0 if place is None or self.coordinate is None else place - _step(dims, self.coordinate)
        self.ranks = np.array([places[origin + step] for step in merged(dims)]).reshape(self.shape)
        self.key = (device_type, self.shape, self.ranks.tobytes(), names, self.coordinate, _job_number())
        _meshes.setdefault(self.key, self)

    @staticmethod
    def from_group(
        group: ProcessGroup | Sequence[ProcessGroup],
        device_type: str,
        mesh: MeshRanks | None = None,
        *,
        mesh_dim_names: Sequence[str] | None = None,
    ) -> DeviceMesh:
        """A mesh over existing groups: one, or a list with one for each dim of `mesh`, which has names then."""
        # One group gives the ranks itself, so `mesh` can only repeat them. Of several groups, each along its own dim,
        # none tells where this rank's neighbours stand: `mesh` has to.
        array = None if mesh is None else np.asarray(mesh._host() if isinstance(mesh, Tensor) else mesh)
        groups = [group] if isinstance(group, ProcessGroup) else list(group)
        if not groups:
            raise ValueRangeError("Expects at least one ProcessGroup to be passed")
        if isinstance(group, ProcessGroup):
            ranks = np.asarray(group.ranks)
            if array is not None and array.tolist() != ranks.tolist():
                raise ValueRangeError(f"Invalid mesh {mesh} for ProcessGroup with ranks {ranks.tolist()}")
        elif array is None:
            raise ValueRangeError("Must pass mesh if passing multiple ProcessGroups")
        elif mesh_dim_names is None:
            raise ValueRangeError("Must pass mesh_dim_names if passing multiple ProcessGroups")
        elif array.ndim != len(groups):
            raise ValueRangeError(
                f"Expects mesh with ndim equal to number of ProcessGroups but got mesh {array.tolist()} and "
                f"{len(groups)} ProcessGroups"
            )
        else:
            ranks = array
        names = None if mesh_dim_names is None else tuple(mesh_dim_names)
        _require_names(names, ranks.ndim)
        result = object.__new__(DeviceMesh)  # the constructor would make groups, which are there
        result._init(device_type, tuple(ranks.ravel().tolist()), dims_of(ranks.shape), names, groups)
        return result

    # --- what it is ---

    @property
    def mesh(self) -> Tensor:
        """The ranks, as a tensor."""
        return tensor(self.ranks.tolist())

    @property
    def ndim(self) -> int:
        """The number of dims."""
        return len(self.shape)

    def size(self, mesh_dim: int | str | None = None) -> int:
        """The number of devices, of the mesh or along a dim."""
        return int(np.prod(self.shape)) if mesh_dim is None else self.shape[self.dim_of(mesh_dim)]

    def dim_of(self, mesh_dim: object) -> int:
        """The position of a dim that is given by number or by name. `KeyError` for a name that it has not."""
        if isinstance(mesh_dim, str):
            if mesh_dim not in (self.mesh_dim_names or ()):
                raise NameKeyError(f"no mesh dim is called {mesh_dim!r}; the mesh has {self._dims_text()}")
            return (self.mesh_dim_names or ()).index(mesh_dim)
        if not isinstance(mesh_dim, int):
            raise ArgumentError(f"a mesh dim is given by its number or its name, but got {mesh_dim!r}")
        if not -self.ndim <= mesh_dim < self.ndim:
            raise DimError(f"mesh dim {mesh_dim} is out of range for a mesh with {self.ndim} dims")
        return mesh_dim % self.ndim

    def facts(self) -> SavedState:
        """What files hold of a mesh: the ranks of the mesh of which it is a part, and the names of its dims."""
        root = self.root
        names = None if self is root else list(self.mesh_dim_names or ())
        return {
            "device_type": self.device_type,
            "ranks": root.ranks.tolist(),
            "names": None if root.mesh_dim_names is None else list(root.mesh_dim_names),
            "part": names,
        }

    def get_coordinate(self) -> tuple[int, ...] | None:
        """This rank's place in the mesh; None if it has none."""
        return self.coordinate

    def get_rank(self) -> int:
        """This process's rank in the job."""
        return get_rank()

    def get_local_rank(self, mesh_dim: int | str | None = None) -> int:
        """This rank's index along a dim, which may be left out if there is only one, or along a flattened one."""
        if isinstance(mesh_dim, str) and mesh_dim in self.root._flattened:
            return self.root._flattened[mesh_dim].get_local_rank()
        if self.coordinate is None:
            raise DistError(f"rank {get_rank()} has no place in {self!r}")
        return self.coordinate[self._only(mesh_dim, "get_local_rank")]

    def get_group(self, mesh_dim: int | str | None = None) -> ProcessGroup:
        """The group of the ranks along a dim to which this rank belongs; also by the name of a flattened dim."""
        if isinstance(mesh_dim, str) and mesh_dim in self.root._flattened:
            return self.root._flattened[mesh_dim].get_group()
        group = self._groups[self._only(mesh_dim, "get_group")]
        if not isinstance(group, ProcessGroup):
            raise DistError(f"rank {get_rank()} has no place in {self!r}, so it has no group there")
        return group

    def group_over(self, mesh_dims: Sequence[int]) -> ProcessGroup | None:
        """One group of the ranks that differ from this one in these dims alone, if there is one."""
        return self.root._group_of.get(_key([self._dims[dim] for dim in mesh_dims]))

    def get_all_groups(self) -> list[ProcessGroup]:
        """The groups along all dims."""
        return [self.get_group(dim) for dim in range(self.ndim)]

    def _only(self, mesh_dim: object, call: str) -> int:
        if mesh_dim is None and self.ndim > 1:
            raise DistError(
                f"Found the DeviceMesh have {self.ndim} dimensions: {call}() needs `mesh_dim` to be one of "
                f"{self._dims_text()}"
            )
        if not isinstance(mesh_dim, (int, str, type(None))):
            raise PreconditionError(f"{call}: mesh_dim must be an int or a name, but got {mesh_dim!r}")
        return self.dim_of(0 if mesh_dim is None else mesh_dim)

    def _dims_text(self) -> str:
        return f"the dims {list(self.mesh_dim_names)}" if self.mesh_dim_names else f"{self.ndim} dims without names"

    # --- parts of it ---

    def __getitem__(self, names: str | tuple[str, ...]) -> DeviceMesh:
        """The mesh of some dims, given by name, in which this rank is; names of flattened dims if this is no part."""
        if not self.mesh_dim_names:
            raise DistError("Cannot slice a DeviceMesh without mesh_dim_names!")
        wanted = (names,) if isinstance(names, str) else tuple(names)
        if wanted == self.mesh_dim_names:
            return self
        if len(wanted) == 1 and wanted[0] in self._flattened_here:
            return self._flattened_here[wanted[0]]
        entries = dict(zip(self.mesh_dim_names, zip(self._dims, self._groups, strict=True), strict=True))
        entries |= {name: (mesh._dims[0], mesh._groups[0]) for name, mesh in self._flattened_here.items()}
        if not all(name in entries for name in wanted):
            raise NameKeyError(f"Invalid mesh_dim_names {wanted} specified. Valid mesh_dim_names are {[*entries]}.")
        dims = [entries[name][0] for name in wanted]
        steps = merged(dims)
        if len(set(steps)) < len(steps):
            raise DistError(f"Slicing overlapping dim_names {wanted} is not allowed.")
        if list(steps) != sorted(steps):
            raise NameKeyError(
                f"Invalid mesh_dim_names {wanted} specified. Mesh dim indices should be in ascending order."
            )
        return self._part(dims, wanted, [entries[name][1] for name in wanted])

    @property
    def _flattened_here(self) -> dict[str, DeviceMesh]:
        """The flattened meshes that this mesh knows by name: a part knows none."""
        return self._flattened if self.root is self else {}

    def _part(self, dims: Sequence[Dim], names: tuple[str, ...], groups: Sequence[ProcessGroup | None]) -> DeviceMesh:
        result = object.__new__(DeviceMesh)  # the constructor would make groups, which are there
        result._init(self.device_type, self._places, dims, names, groups, self.root)
        return result

    @staticmethod
    def concatenated(device_mesh_list: Sequence[DeviceMesh]) -> DeviceMesh:
        """The mesh of the dims of several parts of one mesh, in this order; `RuntimeError` for parts of several."""
        parts = list(device_mesh_list)
        names = [name for mesh in parts for name in mesh.mesh_dim_names or (None,)]
        if len({mesh._places for mesh in parts}) > 1 or None in names:
            raise DistError(
                "Cannot concatenate DeviceMeshes derived from different device meshs: slice one mesh with names by "
                f"them, as mesh['dp'] and mesh['tp'], but got {parts}"
            )
        dims = [dim for mesh in parts for dim in mesh._dims]
        if len(set(merged(dims))) < len(merged(dims)):
            raise DistError(f"Cannot concatenate overlapping meshes: {parts}")
        return parts[0]._part(dims, tuple(map(str, names)), [group for mesh in parts for group in mesh._groups])

    _concatenate = concatenated

    def _flatten(self, mesh_dim_name: str | None = None) -> DeviceMesh:
        """The mesh as one dim, which the whole mesh then knows by this name. All ranks of the job must call it."""
        if not self.mesh_dim_names:
            raise DistError("Cannot flatten a DeviceMesh without mesh_dim_names!")
        name, dim, root = mesh_dim_name or "_".join(self.mesh_dim_names), merged(self._dims), self.root
        if self.mesh_dim_names == (name,):
            return self
        if name in (root.mesh_dim_names or ()):
            raise ValueRangeError(
                f"{name} already exists for submesh of the {root}; its dims are called {root.mesh_dim_names}. Please "
                "specify another valid mesh_dim_name."
            )
        # Kept at the whole mesh, whose other parts find it there.
        flat = root._flattened.get(name)
        if flat is None:
            group = _group_along(np.array(self._places), dim)
            flat = root._flattened[name] = self._part([dim], (name,), [group])
        elif flat._dims != [dim]:
            raise ValueRangeError(
                f"Flatten mesh with mesh_dim_name {name} has been created before, Please specify another valid "
                "mesh_dim_name."
            )
        return flat

    def _unflatten(self, dim: int | str, mesh_sizes: Sequence[int], mesh_dim_names: Sequence[str]) -> DeviceMesh:
        """The mesh with several dims, of these sizes and names, in place of one. All ranks of the job must call it."""
        if len(mesh_sizes) != len(mesh_dim_names):
            raise DistError("mesh_dim_names must have same length as mesh_sizes in _unflatten!")
        names = self.mesh_dim_names or ()
        at = names.index(dim) if dim in names else dim
        if not isinstance(at, int) or not 0 <= at < self.ndim:
            raise ValueRangeError(f"dim {dim} specified in `_unflatten` is not one of {self._dims_text()}")
        dims = divided(self._dims[at], mesh_sizes)
        if dims is None:
            raise ValueRangeError(
                f"The product of mesh_sizes={tuple(mesh_sizes)} is {int(np.prod(mesh_sizes))}, but the original "
                f"dimension at dim={at} has size {self.shape[at]}. These must be equal for unflatten to work correctly."
            )
        # Over the whole mesh, so that all ranks make all groups together.
        groups = [_group_along(np.array(self._places), one) for one in dims]
        return self._part(
            [*self._dims[:at], *dims, *self._dims[at + 1 :]],
            (*names[:at], *mesh_dim_names, *names[at + 1 :]),
            [*self._groups[:at], *groups, *self._groups[at + 1 :]],
        )

    def __enter__(self) -> DeviceMesh:
        _active.set((*_active.get(), self))
        return self

    def __exit__(self, *exception: object) -> None:
        _active.set(_active.get()[:-1])

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, DeviceMesh) and self.key == other.key)

    def __hash__(self) -> int:
        return hash(self.key)

    def __reduce__(self) -> tuple[object, ...]:
        return mesh_from, (self.facts(),)

    def __repr__(self) -> str:
        names = f", mesh_dim_names={self.mesh_dim_names}" if self.mesh_dim_names else ""
        return f"DeviceMesh({self.device_type!r}, {self.ranks.tolist()}{names})"


def _job_number() -> int:
    """A number of the job that this rank has joined. A rank that joins another job may get the same numbers there."""
    return _jobs.setdefault(require_default(), next(_job_numbers))


# no cell: a cache, keyed by all that its entries depend on
_jobs: WeakKeyDictionary[ProcessGroup, int] = WeakKeyDictionary()
_job_numbers = count()


# no cell: a cache, keyed by all that its entries depend on
_meshes: WeakValueDictionary[tuple[Hashable, ...], DeviceMesh] = WeakValueDictionary()
"""The meshes of this process: one that a file describes need not be made again, which all ranks would have to do."""


def mesh_from(facts: SavedState) -> DeviceMesh:
    """The mesh that a file describes: one that there is, or a new one, which all ranks of the job must ask for then."""
    ranks = np.asarray(facts["ranks"])
    names = None if facts["names"] is None else tuple(facts["names"])
    for mesh in list(_meshes.values()):
        if mesh.device_type != facts["device_type"] or mesh.mesh_dim_names != names or mesh.root is not mesh:
            continue
        if np.array_equal(mesh.ranks, ranks) and mesh.key[-1] == _job_number():
            break
    else:
        mesh = DeviceMesh(facts["device_type"], ranks, mesh_dim_names=names)
    return mesh if facts["part"] is None else mesh[tuple(facts["part"])]


def _require_ranks(ranks: np.ndarray) -> None:
    world = get_world_size()
    if ranks.size > world:
        raise DistError(f"Mesh should not be bigger than default world size {world}, but found {ranks.size} ranks!")
    flat = ranks.ravel().tolist()
    if len(set(flat)) < len(flat) or min(flat) < 0 or max(flat) >= world:
        raise ValueRangeError(f"the ranks of a mesh are different ones below {world}, but got {ranks.tolist()}")


def _require_names(names: tuple[str, ...] | None, ndim: int) -> None:
    if names is None:
        return
    if len(names) != ndim:
        raise DistError(f"mesh_shape and mesh_dim_names should have same length, but got {ndim} dims and names {names}")
    if len(set(names)) < len(names):
        raise DistError(f"Each mesh_dim_name must be unique, but got {names}")


def _key(dims: Sequence[Dim]) -> Dim:
    """Which places dims reach together, in whatever order."""
    return tuple(sorted(merged(dims)))


def _step(dims: Sequence[Dim], index: Sequence[int]) -> int:
    """How far a place is from the one where all indices are 0."""
    return sum(dim[at] for dim, at in zip(dims, index, strict=True))


def _group_along(ranks: np.ndarray, dim: Dim, backend: str | None = None) -> ProcessGroup | None:
    """This rank's group of those along a dim. All ranks of the job make all of them, in one order."""
    default, places = require_default(), ranks.ravel().tolist()
    own: ProcessGroup | None = None
    for row in rows(dim, len(places)):
        members = [places[place] for place in row]
        is_job = backend is None and members == list(default.ranks)
        group = default if is_job else new_group(members, backend=backend, sort_ranks=False)
        if get_rank() in members:
            own = group
    return own


def init_device_mesh(
    device_type: object,
    mesh_shape: Sequence[int],
    *,
    mesh_dim_names: Sequence[str] | None = None,
    backend_override: Mapping[int | str, object] | None = None,
) -> DeviceMesh:
    """A mesh of this shape over the first ranks of the job, in order.

    `backend_override` gives, by the number or name of a dim, the backend of its groups: a name, options, or both.
    `RuntimeError` if there are fewer ranks. Without a process group, joins one as `init_process_group()` does.
    """
    shape = shape_of(mesh_shape)
    if not isinstance(device_type, str):
        raise ArgumentError(f"device_type must be a string, such as 'cpu', but got {device_type!r}")
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
    overrides = None if backend_override is None else _overrides(backend_override, len(shape), mesh_dim_names or ())
    ranks = np.arange(count).reshape(shape)
    return DeviceMesh(device_type, ranks, mesh_dim_names=mesh_dim_names, backend_override=overrides)


def _overrides(by_dim: Mapping[int | str, Arg], ndim: int, names: Sequence[str]) -> list[BackendPair]:
    """The name and the options of the backend of each dim's groups."""
    left = dict(by_dim)
    overrides: list[BackendPair] = []
    for dim in range(ndim):
        entries = [left.pop(key) for key in (dim, *names[dim : dim + 1]) if key in left]
        if len(entries) > 1:
            raise DistError(f"Found redundant dim index {dim} and name {names[dim]} in backend_override")
        match entries:
            case [tuple()]:
                overrides.append(entries[0])
            case [str()]:
                overrides.append((entries[0], None))
            case _:
                overrides.append((None, entries[0] if entries else None))
    if left:
        raise DistError(
            f"Found invalid keys in backend_override: got {[*left]}, expected integers in range [0, {ndim}) or one of "
            f"{tuple(names)}"
        )
    return overrides


def active_mesh(mesh: object) -> DeviceMesh:
    """The mesh that is given, or that of the innermost `with` block; `RuntimeError` if there is none."""
    if mesh is not None:
        if not isinstance(mesh, DeviceMesh):
            raise ArgumentError(f"device_mesh must be a DeviceMesh, as init_device_mesh makes it, but got {mesh!r}")
        return mesh
    if not _active.get():
        raise DistError("No device mesh is currently active!")
    return _active.get()[-1]
