"""Tensors that are split over the devices of a mesh. XLA partitions the programs that use them, with exchanges."""

from __future__ import annotations

from dataclasses import dataclass

from jax.sharding import SingleDeviceSharding

from weft._base.guards import is_a
from weft._lazy.runtime import jax_device
from weft._lazy.sharded import copied
from weft._tensor.tensor import Tensor
from weft.errors import ArgumentError, PreconditionError, ShapeError, XlaError
from weft.xla._devices import is_xla_tensor
from weft.xla._mesh import Mesh, PartitionSpec
from weft.xla._replicas import replicas


def mark_sharding(t: Tensor, mesh: Mesh, partition_spec: PartitionSpec) -> Tensor:
    """Split a tensor over the devices of a mesh; returns the tensor, whose elements and gradients stay what they are.

    `partition_spec` has an entry for each dim of the tensor: the axis of the mesh, by name or number, that the dim is
    split along, several axes as a tuple, or None for a dim that is not split. A pending tensor is computed first.
    Programs that use the tensor run on all devices of the mesh, and XLA chooses how their results are split. Other
    tensors that such a program uses are copied whole to each device, also those split over another mesh, which is slow.
    """
    if replicas().size > 1:
        raise XlaError(
            f"mark_sharding: this process is one of {replicas().size} replicas, which have one device each; start one "
            "process that has all devices"
        )
    if not is_a(t, Tensor):
        raise ArgumentError(f"mark_sharding: the first argument must be a Tensor, got {type(t).__name__}")
    if not is_xla_tensor(t):
        raise XlaError(f"mark_sharding: the tensor is on {t.device}; move it to xla_device() first")
    if len(partition_spec) != t.ndim:
        raise PreconditionError(
            f"Partition spec length ({len(partition_spec)}) should be equal to the input rank ({t.ndim})."
        )
    sharding = mesh.sharding(partition_spec)
    try:
        sharding.shard_shape(tuple(t.shape))
    except ValueError:
        raise ShapeError(
            f"mark_sharding: a tensor of size {list(t.shape)} cannot be split into equal parts by "
            f"{tuple(partition_spec)} on a mesh of {dict(mesh.shape())}; pad it, or split other dims"
        ) from None
    # Written below the tensor: identity, graph and aliases are those of before, only the array lies elsewhere.
    t._read().content = copied(t._array(), sharding)
    return t


def clear_sharding(t: Tensor) -> Tensor:
    """Gather a tensor that was split, on its first device; returns the tensor."""
    t._read().content = copied(t._array(), SingleDeviceSharding(jax_device(t.device)))
    return t


@dataclass(frozen=True)
class ShardingSpec:
    """A mesh, and how tensors are split over it.

    With `minibatch`, which is accepted, each host would load its own part of a batch; there is one host here.
    """

    mesh: Mesh
    partition_spec: PartitionSpec
    minibatch: bool = False

    def can_apply(self, t: Tensor) -> bool:
        """Whether the tensor has as many dims as the specification."""
        return t.ndim == len(self.partition_spec)

    def apply(self, t: Tensor) -> None:
        """Split the tensor, as `mark_sharding` does."""
        mark_sharding(t, self.mesh, self.partition_spec)
