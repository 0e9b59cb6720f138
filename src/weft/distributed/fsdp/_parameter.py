"""Parameters of which each rank keeps a part."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from weft._base.dtype import DType
from weft._base.state import using
from weft._lazy.aval import Aval, aval_of, named, owned
from weft._lazy.value import Value
from weft._tensor.base import new_handle
from weft._tensor.tensor import Tensor, operand, wrap
from weft.distributed.device_mesh import DeviceMesh
from weft.distributed.fsdp._data_parallel import DataParallel
from weft.distributed.fsdp._flat import FlatSlot, own_part
from weft.distributed.tensor._dtensor import DTensor
from weft.distributed.tensor._placements import Placements, Replicate, Shard, in_order
from weft.distributed.tensor._sharding import labelled, local_part, sharding_of
from weft.errors import PreconditionError, ValueRangeError
from weft.nn import Module, Parameter

PlacementFunction = Callable[[Parameter], Shard | None]


class ShardedParameter:
    """A parameter of which each rank keeps its part, and which modules have as a whole while they compute.

    owners       the modules that have it, with its names there
    sharded      the part, as a distributed tensor: what optimizers update
    slot         how it is divided, where it is split for tensor parallelism: how this rank's part of it is
    accumulated  gradients of passes that do not reduce, of the whole
    reduced      gradients that are reduced within one copy alone (HSDP), of the part
    """

    def __init__(
        self, original: Parameter, owners: Sequence[tuple[Module, str]], ranks: DataParallel, shard: Shard | None
    ) -> None:
        self.owners = list(owners)
        value = operand(original)
        self._aval = value.aval
        dim = _dim_of(shard, original)
        self.slot = FlatSlot(value.aval.shape, dim, ranks.parts, ranks.index)
        with using(grad=False):
            part = own_part(wrap(local_part(value)), self.slot)
            sharding = sharding_of(*_layout(original, ranks, dim), original.shape)
            whole = wrap(labelled(operand(part), sharding))
        self.sharded = Parameter(whole, original.requires_grad)
        self.accumulated: Tensor | None = None
        self.reduced: Tensor | None = None

    def install(self) -> None:
        """Let the modules have the part."""
        self.register(self.sharded)

    def register(self, tensor: Tensor) -> None:
        """Let the modules have this tensor as their parameter."""
        for module, name in self.owners:
            vars(module)["_parameters"][name] = tensor  # also one that is no `Parameter`, while modules compute

    def dtype_in(self, param_dtype: DType | None) -> DType:
        """Its type where modules compute with it."""
        own = self.sharded.dtype
        return param_dtype if param_dtype is not None and own.is_floating_point else own

    def whole_type(self, dtype: DType) -> Aval:
        """The type of the whole parameter, in this element type."""
        plain = named(aval_of(self.slot.shape, dtype, device=self.sharded.device), self._aval.names)
        return owned(plain, self._aval.owner)

    def handle_on(self, value: Value) -> Tensor:
        """The parameter that modules have as a whole."""
        owner = value.aval.owner
        handle: Tensor = new_handle(Parameter if owner is None else owner.type_like(Parameter))
        handle._value = value
        return handle


def _dim_of(shard: object, original: Parameter) -> int:
    if shard is None:
        return 0
    if not isinstance(shard, Shard):
        raise ValueRangeError(f"Invalid shard_placement_fn result: {shard}; return Shard(dim), or None for Shard(0)")
    if not -original.ndim <= shard.dim < original.ndim:
        raise PreconditionError(f"Shard dim {shard.dim} is invalid for {original.ndim}D tensor: {original.shape}")
    return shard.dim % original.ndim


def _layout(original: Parameter, ranks: DataParallel, dim: int) -> tuple[DeviceMesh, Placements]:
    """The mesh and the placements of the sharded parameter.

    One that is split for tensor parallelism is split further, over the mesh of both.
    """
    if not isinstance(original, DTensor):
        return ranks.mesh, ranks.placements(dim)
    if any(not isinstance(p, (Shard, Replicate)) for p in original.placements):
        raise ValueRangeError(f"fully_shard takes parameters that are split or replicated, got {original.placements}")
    mesh = DeviceMesh.concatenated([ranks.mesh, original.device_mesh])
    # Tensor parallelism splits first and this splits its parts, although its mesh dim stands in front: `in_order` says
    # so in the placements (`_StridedShard`).
    placements = (*ranks.placements(dim), *original.placements)
    outer = ranks.mesh.ndim
    return mesh, in_order(placements, (*range(outer, mesh.ndim), *range(outer)), mesh.shape)


def require_parameter(name: str, parameter: Parameter) -> None:
    """Raise for a parameter that cannot be sharded."""
    if not parameter.ndim:
        raise ValueRangeError(
            f"fully_shard doesn't support scalar parameters. Change {name} to a 1D tensor with numel equal to 1."
        )
