"""Embeddings whose table is split by rows: each process looks up the rows that it has, and what is sent are the sums.

So the table is never moved, and the backward pass sends nothing: its part of the gradient is on each process already.
"""

from __future__ import annotations

from collections.abc import Sequence

from weft._base.dtype import int32, int64
from weft._lazy.infer import Call
from weft._lazy.value import Value
from weft._tensor.codegen import op as rows
from weft._tensor.tensor import operand, wrap
from weft.distributed.tensor._placements import Partial, Placement, Replicate, Shard, none_is_empty
from weft.distributed.tensor._redistribute import redistributed
from weft.distributed.tensor._sharding import Sharding, labelled, local_part, sharding_of


def over_split_rows(call: Call, inputs: Sequence[Value]) -> tuple[Value, ...] | None:
    """The result of an embedding whose table is split by rows and whose indices all have; None for all other calls."""
    if call.op.name != "embedding":
        return None
    indices, table, *padding = inputs  # the number of a row is an input, too
    index_sharding, sharding = indices.aval.owner, table.aval.owner
    if not isinstance(sharding, Sharding) or not isinstance(index_sharding, Sharding) or len(sharding.size) != 2:
        return None
    static = dict(zip([p.name for p in call.op.params], call.static, strict=True))
    placements = _placements(index_sharding, sharding)
    if placements is None or static["scale_grad_by_freq"] or indices.aval.dtype not in (int32, int64):
        return None
    spread = [at for at, p in enumerate(index_sharding.placements) if isinstance(p, Shard)]
    own = wrap(local_part(redistributed(table, sharding, spread)))
    numbers = rows.row_numbers(wrap(local_part(indices)), sharding.size[0])
    shifted = numbers - sharding.local_parts()[0][0]
    is_own = (shifted >= 0) & (shifted < own.shape[0])
    vectors = rows.embedding(rows.where(is_own, shifted, 0), own)
    if padding:
        vectors = rows.where(rows.unsqueeze(numbers == wrap(padding[0]), -1), vectors.detach(), vectors)
    vectors = rows.where(rows.unsqueeze(is_own, -1), vectors, 0.0)
    size = (*index_sharding.size, sharding.size[1])
    return (labelled(operand(vectors), sharding_of(sharding.mesh, placements, size)),)


def _placements(indices: Sharding, table: Sharding) -> tuple[Placement, ...] | None:
    """How the vectors lie; None where the table is not split by rows, or something would have to be moved first.

    Nor where processes run recorded programs together, in which each would need numbers of its own.
    """
    if table.is_outside or indices.mesh != table.mesh or not any(p.is_shard(0) for p in table.placements):
        return None
    placements: list[Placement] = []
    parts = 1
    for at, (of_indices, of_table) in enumerate(zip(indices.placements, table.placements, strict=True)):
        match of_indices, of_table:
            case Replicate(), Shard(dim=0):
                parts *= table.mesh.shape[at]
                placements.append(Partial())
                if table.mesh.get_group(at).records:
                    return None
            case Replicate(), Shard(dim=1):
                placements.append(Shard(len(indices.size)))
            case Replicate() | Shard(), Replicate():
                placements.append(of_indices)
            case _:
                return None
    return tuple(placements) if table.size[0] % parts == 0 or _none_is_empty(table, parts) else None


def _none_is_empty(table: Sharding, parts: int) -> bool:
    """Whether all processes have rows, where one mesh dim splits them."""
    return parts in table.mesh.shape and none_is_empty(table.size[0], parts)
