"""Redistribution: from some placements to others, by the cheapest transfers along each dim of the mesh."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from weakref import WeakKeyDictionary, WeakValueDictionary

from weft._base.site import user_site
from weft._lazy.retyped import retyped
from weft._lazy.value import Value
from weft._tensor.tensor import Tensor, operand, wrap
from weft.distributed._group import ProcessGroup
from weft.distributed._observers import note_redistribution, observers, requested
from weft.distributed.device_mesh import DeviceMesh
from weft.distributed.tensor import _transfers as transfers
from weft.distributed.tensor._placements import Partial, Placement, Placements, Replicate, Shard, split_order
from weft.distributed.tensor._sharding import Sharding, labelled, local_part, type_of, type_text
from weft.distributed.tensor._transfers import Transfer
from weft.errors import DistError, ValueRangeError

_log = logging.getLogger(__name__)


def redistributed(value: Value, sharding: Sharding, spread: Sequence[int] = ()) -> Value:
    """A sharded value with the placements of `sharding`.

    Along the mesh dims `spread`, each rank uses the result, which is replicated there, for something of its own:
    gradients of it are added up over the ranks.
    """
    if value.role is None or not spread:
        return value if value.aval.owner is sharding else _redistributed(value, sharding, ())
    # A value that several operators use is moved once, and the gradients of its uses are sent once, as their sum.
    results = _spread.get(value)
    if results is None:
        results = _spread[value] = WeakValueDictionary()
    key = (sharding, tuple(spread))
    result = results.get(key)
    if result is None:
        result = results[key] = _redistributed(value, sharding, spread)
    return result


def with_gradient(part: Value, sharding: Sharding, placements: Placements) -> Value:
    """A plain value, which becomes a part as `sharding` says; its gradients lie as `placements` say."""

    def moved(gradient: Tensor) -> Tensor:
        value = redistributed(labelled(operand(gradient), sharding.of_cotangents()), target)
        return wrap(local_part(value))

    target = sharding.with_placements(placements)
    if target.local_shape != sharding.local_shape:
        raise ValueRangeError(
            f"from_local: gradients with the placements {list(map(str, placements))} have the size "
            f"{list(target.local_shape)}, and the local tensor has {list(sharding.local_shape)}"
        )
    return transfers.transferred(part, Transfer("from_local", lambda x: x.clone(), lambda: Transfer("to", moved, None)))


@dataclass(frozen=True)
class _Move:
    """How a value came to lie as it does: the sharded value that it was, and the parts after each step from there."""

    source: Value
    parts: tuple[Value, ...]


# no cell: values know where they came from, which shortens the way back and changes no element
_moves: WeakKeyDictionary[Value, _Move] = WeakKeyDictionary()
# no cell: values know where they came from, which shortens the way back and changes no element
_spread: WeakKeyDictionary[Value, WeakValueDictionary[tuple[Sharding, tuple[int, ...]], Value]] = WeakKeyDictionary()
"""Results for `spread`, by the value that they are made from.

If several operators use a value in this way, their gradients are added up here first, and sent once.
"""


def _redistributed(value: Value, sharding: Sharding, spread: Sequence[int]) -> Value:
    parts: tuple[Value, ...] | None = None
    # What was gathered before is used in parts now: its gradients are reduce-scattered to where it came from, instead
    # of being all-reduced and cut.
    if spread and value.aval.owner is sharding and (move := _moves.get(value)) and _gathers(move.source, spread):
        value, parts = move.source, move.parts
    now = _sharding(value)
    if now.mesh != sharding.mesh:
        raise DistError(f"all tensors must be on one mesh, but got {now.mesh} and {sharding.mesh}")
    if now.is_outside:
        return retyped(value, type_of(value.aval, sharding))
    plain, after = local_part(value), list[Value]()
    if steps := _coalesced(now, _steps(now.placements, sharding.placements)):
        if parts is None and (observers() or _log.isEnabledFor(logging.DEBUG)):
            _announce(value, now, sharding, sends=any(_leaves(now, at) for dims, _ in steps for at in dims))
        with requested():
            after = _stepwise(plain, now, steps, spread, parts)
        plain = after[-1]
    for group in _groups(now.mesh, [at for at in spread if not isinstance(now.placements[at], Shard)]):
        plain = transfers.transferred(plain, transfers.spread(group))
    result = retyped(plain, type_of(value.aval, sharding))
    if result.role is not None and steps and not spread:
        _moves[result] = _Move(value, tuple(after))
    return result


def _groups(mesh: DeviceMesh, mesh_dims: Sequence[int]) -> list[ProcessGroup]:
    """The groups of the ranks along some mesh dims: one for all of them, if there is one."""
    if len(mesh_dims) > 1 and (whole := mesh.group_over(mesh_dims)) is not None:
        return [whole]
    return [mesh.get_group(at) for at in mesh_dims if mesh.shape[at] > 1]


def _gathers(source: Value, spread: Sequence[int]) -> bool:
    """Whether a value that is whole along the mesh dims `spread` was split there before.

    Then its ranks' gradients are added up by a reduce-scatter on their way to the parts, and not before.
    """
    placements = _sharding(source).placements
    return any(isinstance(placements[at], Shard) for at in spread)


def _sharding(value: Value) -> Sharding:
    sharding = value.aval.owner
    assert isinstance(sharding, Sharding), "only sharded values are moved"
    return sharding


def _announce(value: Value, now: Sharding, target: Sharding, *, sends: bool) -> None:
    text = f"{type_text(value.aval)} to {target} over {list(now.mesh.shape)} devices"
    _log.debug("redistribution of %s, own part %d bytes, at %s", text, value.aval.nbytes, user_site())
    note_redistribution(text, sends=sends)


def _stepwise(
    plain: Value,
    now: Sharding,
    steps: Sequence[Step],
    spread: Sequence[int],
    parts: Sequence[Value] | None,
) -> list[Value]:
    """The part after each step from the sharding `now`; nothing is sent if these were the `parts` before."""
    placements, results = list(now.placements), list[Value]()
    for number, (dims, target) in enumerate(steps):
        past = None if parts is None else parts[number]
        scatters = dims[0] in spread
        plain = _moved(plain, now.with_placements(placements), dims, target, scatters=scatters, past=past)
        for at in dims:
            placements[at] = target
        results.append(plain)
    return results


def _leaves(now: Sharding, at: int) -> bool:
    """Whether a move along the mesh dim `at` sends something: whoever has all of a tensor needs nothing of others."""
    return now.mesh.shape[at] > 1 and not isinstance(now.placements[at], Replicate)


Step = tuple[tuple[int, ...], Placement]
"""The mesh dims along which something moves at once, and their next placement."""


def _coalesced(now: Sharding, steps: Sequence[tuple[int, Placement]]) -> list[Step]:
    """The steps, in which reductions of one kind that follow each other are one, if one group has all their ranks."""
    result: list[Step] = []
    for (source, target), run in groupby(steps, lambda step: (now.placements[step[0]], step[1])):
        dims = tuple(at for at, _ in run)
        is_reduction = isinstance(source, Partial) and target == Replicate()
        is_one = is_reduction and now.mesh.group_over(dims) is not None
        result += [(dims, target)] if is_one else [((at,), target) for at in dims]
    return result


def _steps(now: Placements, target: Placements) -> list[tuple[int, Placement]]:
    """The mesh dims along which something moves, in order, each with its next placement.

    What makes parts smaller comes first, and what makes them larger last, so that least is sent. Where several mesh
    dims split one dim of the tensor, before or afterwards, all of them are joined first.
    """
    changed = [at for at, (a, b) in enumerate(zip(now, target, strict=True)) if a != b]
    if not changed:
        return []
    # Mesh dims that split different dims of the tensor do not touch each other, so their order is free.
    if not _meet(now, target):
        changed.sort(key=lambda at: isinstance(now[at], Shard) - isinstance(target[at], Shard))
        return [step for at in changed for step in _along(at, now[at], target[at])]
    before, after = split_order(now), split_order(target)
    # A later split of the same dim divides the parts of an earlier one: it must be undone first, from the inside out.
    first = min(map(after.index, changed)) if before == after else 0
    steps: list[tuple[int, Placement]] = []
    for at in reversed(before[first:]):
        if isinstance(now[at], Shard):
            steps.append((at, Replicate()))
    for at in after[first:]:
        placement = Replicate() if isinstance(now[at], Shard) else now[at]
        if placement != target[at]:
            steps += _along(at, placement, target[at])
    return steps


def _along(at: int, now: Placement, target: Placement) -> list[tuple[int, Placement]]:
    """The steps along one mesh dim. What is to be reduced later is whole before that."""
    if isinstance(target, Partial) and not isinstance(now, Replicate):
        return [(at, Replicate()), (at, target)]
    return [(at, target)]


def _meet(now: Placements, target: Placements) -> bool:
    """Whether a dim of the tensor is split by several mesh dims, before or afterwards."""
    splits = {(p.dim, at) for side in (now, target) for at, p in enumerate(side) if isinstance(p, Shard)}
    return len({dim for dim, _ in splits}) < len(splits)


def _with(placements: Placements, at: int, placement: Placement) -> Placements:
    return (*placements[:at], placement, *placements[at + 1 :])


def _moved(
    plain: Value, now: Sharding, dims: tuple[int, ...], target: Placement, *, scatters: bool, past: Value | None
) -> Value:
    """A step along some mesh dims, or the result that it had in the `past`."""
    mesh, at = now.mesh, dims[0]
    source = now.placements[at]
    # A mesh dim of one rank has nobody to exchange with.
    if all(mesh.shape[dim] == 1 for dim in dims):
        return plain
    split = now if isinstance(source, Shard) else now.with_placements(_with(now.placements, at, target))
    parts = split.local_parts(at)
    match source, target:
        case Shard(dim=dim), Replicate():
            transfer = transfers.gather(mesh, at, dim, parts[dim][1], scatters=scatters)
        case Shard(dim=dim), Shard(dim=other):
            transfer = transfers.all_to_all(mesh, at, dim, parts[dim][1], other, parts[other][1])
        case Replicate(), Shard(dim=dim):
            transfer = transfers.take(mesh, at, dim, parts[dim][1])
        case Partial(reduce_op=reduce_op), Replicate():
            (group,) = _groups(mesh, dims)
            transfer = transfers.all_reduce(group, reduce_op)
        case Partial(reduce_op=reduce_op), Shard(dim=dim):
            transfer = transfers.reduce_scatter(mesh, at, dim, parts[dim][1], reduce_op)
        case Replicate(), Partial(reduce_op=reduce_op):
            transfer = transfers.unreduced(mesh, at, reduce_op)
        case _:
            raise DistError(f"no transfer leads from {source} to {target}")
    return transfers.transferred(plain, transfer, past)
