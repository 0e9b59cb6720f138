"""Meshes: the devices of a process in a grid, whose axes tensors are split along."""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Sequence
from functools import cached_property

import jax.sharding
import numpy as np

from weft._base.cell import Cell
from weft._lazy.runtime import xla_devices
from weft.errors import PreconditionError, ValueRangeError

PartitionSpec = Sequence[int | str | tuple[int | str, ...] | None]
"""For each dim of a tensor the axis, or axes, of a mesh that it is split along, by name or number; or None."""


class Mesh:
    """All devices of the process in a grid.

    device_ids   their numbers, in the order in which they fill the grid
    mesh_shape   the size of the grid along each axis
    axis_names   the names of the axes; without them they are known by number
    """

    def __init__(
        self,
        device_ids: Sequence[int] | np.ndarray,
        mesh_shape: Sequence[int],
        axis_names: Sequence[str] | None = None,
    ) -> None:
        self.device_ids = np.asarray(device_ids)
        self.mesh_shape = tuple(mesh_shape)
        self.axis_names = None if axis_names is None else tuple(axis_names)
        if sorted(self.device_ids.tolist()) != list(range(self.size())):
            raise PreconditionError(
                f"Mesh: mesh_shape {self.mesh_shape} needs each device from 0 to {self.size() - 1} once, got "
                f"{self.device_ids.tolist()}"
            )
        if self.axis_names is not None and len({*self.axis_names}) != len(self.mesh_shape):
            raise PreconditionError(
                f"Mesh: mesh_shape {self.mesh_shape} needs {len(self.mesh_shape)} different axis_names, got "
                f"{self.axis_names}"
            )

    def size(self) -> int:
        """The number of devices."""
        return math.prod(self.mesh_shape)

    def shape(self) -> OrderedDict[int | str, int]:
        """The size of each axis by its name, or by its number where axes have no names."""
        return OrderedDict(zip(self.axis_names or range(len(self.mesh_shape)), self.mesh_shape, strict=True))

    def get_logical_mesh(self) -> np.ndarray:
        """The numbers of the devices in their grid."""
        return self.device_ids.reshape(self.mesh_shape)

    def get_axis_name_idx(self, name: str) -> int | None:
        """The number of an axis; None if there is none of this name."""
        return self.axis_names.index(name) if self.axis_names and name in self.axis_names else None

    def sharding(self, partition_spec: PartitionSpec) -> jax.sharding.NamedSharding:
        """How jax splits arrays by this specification."""
        spec = [
            None if entry is None else tuple(map(self._axis, entry if isinstance(entry, tuple) else (entry,)))
            for entry in partition_spec
        ]
        axes = [axis for entry in spec for axis in entry or ()]
        if len({*axes}) < len(axes):
            raise PreconditionError(
                f"Each device mesh dimension should appear at most once in partition_spec {tuple(partition_spec)}."
            )
        return jax.sharding.NamedSharding(self._of_jax, jax.sharding.PartitionSpec(*spec))

    def _axis(self, axis: int | str) -> str:
        """The name that an axis, given by name or number, has in jax's mesh."""
        at = self.get_axis_name_idx(axis) if isinstance(axis, str) else axis
        if at is None:
            raise ValueRangeError(f"Axis name {axis} is not defined in the given mesh; it has {[*self.shape()]}")
        if not 0 <= at < len(self.mesh_shape):
            raise PreconditionError(f"axis {at} is out of bounds for a mesh of shape {self.mesh_shape}")
        return self._of_jax.axis_names[at]

    @cached_property
    def _of_jax(self) -> jax.sharding.Mesh:
        devices = xla_devices(everywhere=True)
        if len(devices) != self.size():
            raise PreconditionError(f"{self.mesh_shape} is not mappable over {len(devices)} devices.")
        grid = np.array([devices[at] for at in self.device_ids.tolist()]).reshape(self.mesh_shape)
        return jax.sharding.Mesh(grid, tuple(map(str, self.shape())))


class HybridMesh(Mesh):
    """A mesh by slices of devices, within which links are fast; the devices of a process are one slice.

    ici_mesh_shape   the size of the grid along each axis within a slice
    dcn_mesh_shape   by how many slices each axis is extended; by default, and here always, 1
    axis_names       the names of the axes
    """

    def __init__(
        self,
        *,
        ici_mesh_shape: Sequence[int],
        dcn_mesh_shape: Sequence[int] | None = None,
        axis_names: Sequence[str] | None = None,
    ) -> None:
        self.ici_mesh_shape = tuple(ici_mesh_shape)
        self.dcn_mesh_shape = (1,) * len(self.ici_mesh_shape) if dcn_mesh_shape is None else tuple(dcn_mesh_shape)
        if self.dcn_mesh_shape != (1,) * len(self.ici_mesh_shape):
            raise PreconditionError(
                f"HybridMesh: the devices of this process are one slice, so dcn_mesh_shape must be 1 for each axis of "
                f"ici_mesh_shape {self.ici_mesh_shape}, got {self.dcn_mesh_shape}; give ici_mesh_shape their product"
            )
        super().__init__(range(math.prod(self.ici_mesh_shape)), self.ici_mesh_shape, axis_names)


_MESH = Cell["Mesh | None"]("the global mesh", None)


def set_global_mesh(mesh: Mesh) -> None:
    """Set the mesh that `get_global_mesh` returns."""
    _MESH.set(mesh)


def get_global_mesh() -> Mesh | None:
    """The mesh that was set by `set_global_mesh`, or None."""
    return _MESH.get()


def get_1d_mesh(axis_name: str | None = None) -> Mesh:
    """All devices along one axis."""
    count = len(xla_devices(everywhere=True))
    return Mesh(range(count), (count,), None if axis_name is None else (axis_name,))
