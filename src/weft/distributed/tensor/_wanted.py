"""What callers say of placements and sizes, checked and completed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TypeAlias

from weft._base.guards import is_list_or_tuple
from weft._tensor.dim_names import position
from weft._tensor.tensor import Tensor
from weft.distributed import _objects
from weft.distributed._collectives import broadcast
from weft.distributed.device_mesh import DeviceMesh
from weft.distributed.tensor._placements import Partial, Placement, Placements, Replicate, Shard, require_reduction
from weft.errors import DistError, PreconditionError, ValueRangeError, WeftError

WantedPlacements: TypeAlias = Placement | Sequence[Placement] | Mapping[str, object] | None
"""Placements, by mesh dims, or mesh dims by the names of the tensor's; None for the usual ones."""


def placements_for(
    placements: WantedPlacements,
    mesh: DeviceMesh,
    ndim: int,
    named: Tensor | None = None,
    *,
    miscounted: type[WeftError] = ValueRangeError,
    no_such_dim: type[WeftError] = PreconditionError,
) -> Placements:
    """Placements for each dim of a mesh, as given for a tensor of `ndim` dims; None replicates.

    Dims of the tensor are made non-negative. A mapping gives, by the names of dims of `named`, a mesh dim or several.
    PyTorch's functions differ in what they raise for a wrong number of placements, and for a dim that there is not.
    """
    if placements is None:
        return (Replicate(),) * mesh.ndim
    if isinstance(placements, Mapping) and named is not None:
        return _by_name(placements, mesh, named)
    entries: Sequence[object] = [placements] if isinstance(placements, Placement) else list(placements)
    if len(entries) != mesh.ndim:
        raise miscounted(
            "`placements` must have the same length as `device_mesh.ndim`! Found placements length: "
            f"{len(entries)}, and device_mesh.ndim: {mesh.ndim}."
        )
    reductions = {placement.reduce_op for placement in entries if isinstance(placement, Partial)}
    if len(reductions) > 1 and reductions != {"sum", "avg"}:
        raise ValueRangeError(
            "Mixed Partial reduce types are not supported in the same placement list, as their order would matter. "
            f"Found reduce ops: {sorted(reductions)}"
        )
    return tuple([_checked(placement, ndim, no_such_dim) for placement in entries])


def _checked(placement: object, ndim: int, no_such_dim: type[WeftError]) -> Placement:
    if isinstance(placement, Partial):
        require_reduction(placement.reduce_op)
    if not isinstance(placement, Shard):
        if not isinstance(placement, Placement):
            raise DistError(f"a placement is Shard(dim), Replicate() or Partial(), but got {placement!r}")
        return placement
    if not -ndim <= placement.dim < ndim:
        raise no_such_dim(f"{placement!r}: the tensor has {ndim} dims")
    return replace(placement, dim=placement.dim % ndim)


def _by_name(placements: Mapping[str, object], mesh: DeviceMesh, tensor: Tensor) -> Placements:
    result: list[Placement] = [Replicate()] * mesh.ndim
    for name, entry in placements.items():
        for mesh_dim in entry if is_list_or_tuple(entry) else (entry,):
            at = mesh.dim_of(mesh_dim)
            if result[at] != Replicate():
                raise ValueRangeError(f"placements by name: mesh dim {mesh_dim!r} is given twice, in {placements!r}")
            result[at] = Shard(position(tensor, name))
    return tuple(result)


def size_of_parts(
    local: Tensor, mesh: DeviceMesh, placements: Placements, shape: Sequence[int] | None
) -> tuple[int, ...]:
    """The size of the tensor of which `local` is a part: as given, or that of equal parts."""
    if shape is not None:
        return tuple(shape)
    size = list(local.shape)
    for placement, count in zip(placements, mesh.shape, strict=True):
        if isinstance(placement, Shard):
            size[placement.dim] *= count
    return tuple(size)


def require_common(local: Tensor, mesh: DeviceMesh, placements: Placements) -> Tensor:
    """The tensor, which is that of the first rank where it is replicated; `ValueError` if types or sizes differ."""
    result = local
    for at, placement in enumerate(placements):
        group = mesh.get_group(at)
        # Compared on all ranks, so that all raise: a broadcast of tensors that differ would otherwise fail somewhere
        # within.
        facts: list[object] = [None] * group.size()
        own = str(local.dtype), tuple(local.shape), local.stride(), local.requires_grad
        _objects.all_gather_object(facts, own, group)
        if len(set(facts)) > 1:
            raise ValueRangeError(
                f"from_local: the parts along mesh dim {at} differ in type, size, strides or requires_grad: {facts}"
            )
        if isinstance(placement, Replicate):
            result = result.detach().clone()
            broadcast(result, group.ranks[0], group)
    return result
