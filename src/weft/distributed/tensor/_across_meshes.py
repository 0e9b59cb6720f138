"""Redistribution from one mesh to another."""

from __future__ import annotations

from weft._lazy.value import Value
from weft._tensor.tensor import Tensor, operand, wrap
from weft.distributed.tensor._redistribute import redistributed
from weft.distributed.tensor._sharding import Sharding, labelled, local_part
from weft.distributed.tensor._transfers import Transfer, transferred
from weft.errors import DistError


def moved_to_mesh(value: Value, target: Sharding) -> Value:
    """A sharded value on another mesh, in which this process has a place, too. Each process has it whole on the way."""
    source: Sharding = value.aval.owner  # pyright: ignore[reportAssignmentType]  only called for sharded values
    if target.mesh.coordinate is None:
        raise DistError(f"redistribute: rank {target.mesh.get_rank()} has no place in {target.mesh}")
    return labelled(transferred(local_part(value), _to_mesh(source, target)), target)


def _to_mesh(source: Sharding, target: Sharding) -> Transfer:
    def run(x: Tensor) -> Tensor:
        whole = local_part(redistributed(labelled(operand(x), source), source.replicated()))
        return wrap(local_part(redistributed(labelled(whole, target.replicated()), target))).clone()

    return Transfer("to_mesh", run, lambda: _to_mesh(target.of_cotangents(), source.of_cotangents()))
