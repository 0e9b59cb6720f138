"""Arrays that are split over the devices of a mesh. XLA partitions a program that takes one to run on all of them."""

from __future__ import annotations

from collections.abc import Sequence

import jax
from jax.sharding import Mesh, NamedSharding, PartitionSpec, Sharding

from weft._base.types import AnyArray
from weft.ops._jax import device_put


# no cell: a replay runs its program as others run theirs
class _Use:
    """Whether this process has split an array. Until then, programs need not look at the arrays that they get."""

    begun = False


def copied(array: jax.Array, sharding: Sharding) -> jax.Array:
    """A copy of an array over the devices of a mesh, or on one device, which shares no memory with it."""
    _Use.begun = True
    return device_put(array, sharding, may_alias=False)


def on_one_mesh(arguments: Sequence[AnyArray]) -> Sequence[AnyArray] | None:
    """The arguments of a program with all arrays on the mesh of the first one that is split; None if none is.

    Each device of the mesh gets the whole of an array that is elsewhere, on one device or on another mesh.
    """
    if not _Use.begun:
        return None
    mesh = next(filter(None, map(_mesh_of, arguments)), None)
    if mesh is None:
        return None
    whole = NamedSharding(mesh, PartitionSpec())
    return [
        device_put(x, whole) if isinstance(x, jax.Array) and _mesh_of(x) != mesh else x  # NumPy arrays are free to move
        for x in arguments
    ]


def _mesh_of(argument: object) -> Mesh | None:
    """The mesh of several devices that an array is split over, or is whole on each of."""
    sharding = argument.sharding if isinstance(argument, jax.Array) else None
    if isinstance(sharding, NamedSharding) and sharding.num_devices > 1 and isinstance(sharding.mesh, Mesh):
        return sharding.mesh
    return None
