"""Collectives between replicas that are part of the recorded program."""

from __future__ import annotations

from collections.abc import Sequence
from operator import index
from typing import overload

import weft
from weft._base.state import using
from weft._base.types import Arg, PyTree
from weft._tensor.codegen import op
from weft._tensor.tensor import Tensor
from weft.errors import ArgumentError, ValueRangeError, XlaError
from weft.ops._kinds import Groups
from weft.xla._buckets import CoalescingBuckets, require_length, require_tensors
from weft.xla._flags import flag
from weft.xla._replicas import replicas

REDUCE_SUM = "sum"
REDUCE_MUL = "mul"
REDUCE_AND = "and"
REDUCE_OR = "or"
REDUCE_MIN = "min"
REDUCE_MAX = "max"

_WORDS = {"sum": "sum", "mul": "prod", "and": "band", "or": "bor", "min": "min", "max": "max"}


@overload
def all_reduce(
    reduce_type: str,
    inputs: Tensor,
    scale: float = 1.0,
    groups: Sequence[Sequence[int]] | None = None,
    pin_layout: bool = True,
) -> Tensor: ...
@overload
def all_reduce(
    reduce_type: str,
    inputs: list[Tensor],
    scale: float = 1.0,
    groups: Sequence[Sequence[int]] | None = None,
    pin_layout: bool = True,
) -> list[Tensor]: ...
def all_reduce(
    reduce_type: str,
    inputs: Tensor | list[Tensor],
    scale: float = 1.0,
    groups: Sequence[Sequence[int]] | None = None,
    pin_layout: bool = True,
) -> Tensor | list[Tensor]:
    """The reduction of a tensor over the replicas, times `scale`; tensors of a list are reduced in place.

    reduce_type: "sum", "mul", "and", "or", "min" or "max". Only "sum" has a derivative; `core.functions.all_reduce`
    has others. With one replica, a tensor is cloned and a list is returned as it is, unless the environment variable
    XLA_ALWAYS_ALLREDUCE is set.
    """
    del pin_layout
    word, members = _word(reduce_type), _members(groups)
    alone = replicas().size == 1 and not flag("XLA_ALWAYS_ALLREDUCE")
    if isinstance(inputs, Tensor):
        return inputs.clone() if alone else _scaled(op.all_reduce(inputs, word, members), scale)
    require_tensors("inputs", [*inputs] if isinstance(inputs, tuple) else inputs, "a Tensor or a list of Tensors")
    if not alone:
        for tensor in inputs:
            _overwrite(tensor, _scaled(op.all_reduce(tensor.detach(), word, members), scale))
    return inputs


def all_gather(
    value: Tensor | list[Tensor],
    dim: int = 0,
    groups: Sequence[Sequence[int]] | None = None,
    output: Tensor | list[Tensor] | None = None,
    pin_layout: bool = True,
) -> Tensor | list[Tensor]:
    """The tensors of all replicas of a group, joined along `dim`; of a list, a list."""
    members = _members(groups)
    size = _size(members)
    if isinstance(value, Tensor):
        return _written(op.all_gather(value, dim, size, members), output)
    require_tensors("value", value, "a Tensor or a list of Tensors")
    if pin_layout:
        raise XlaError("For xm.all_gather with list of tensors input, pin_layout=True is not yet supported.")
    return _all_written([op.all_gather(x, dim, size, members) for x in value], output)


def _all_gather_using_all_reduce(  # pyright: ignore[reportUnusedFunction]  users import PyTorch's name
    value: Tensor, dim: int = 0, groups: Sequence[Sequence[int]] | None = None, pin_layout: bool = True
) -> Tensor:
    """`all_gather` of one tensor as a sum: each replica adds its part, with zeros in the places of the others."""
    ordinal = replicas().ordinal
    group = next((group for group in groups or () if ordinal in group), range(replicas().size))
    parts = [value if member == ordinal else weft.zeros_like(value) for member in group]
    return all_reduce(REDUCE_SUM, weft.cat(parts, dim), groups=groups, pin_layout=pin_layout)


def all_gather_bucketized(
    input_list: list[Tensor],
    dim: int = 0,
    groups: Sequence[Sequence[int]] | None = None,
    output: list[Tensor] | None = None,
    pin_layout: bool = False,
    bucket_cap_mb: int = 160,
) -> list[Tensor]:
    """`all_gather` of a list, in buckets of `bucket_cap_mb` MiB."""
    if pin_layout:
        raise XlaError("For xm.all_gather_bucketized, pin_layout=True is not yet supported.")

    def gather(value: PyTree, output: PyTree = None) -> PyTree:
        return all_gather(value, dim, groups, output, pin_layout=False)

    return CoalescingBuckets(gather, input_list, output, bucket_cap_mb=bucket_cap_mb)()


def reduce_scatter(
    reduce_type: str,
    input: Tensor | list[Tensor],
    scale: float,
    scatter_dim: int,
    shard_count: int,
    groups: Sequence[Sequence[int]] | None = None,
    output: Tensor | list[Tensor] | None = None,
    pin_layout: bool = True,
) -> Tensor | list[Tensor]:
    """The reduction over a group, times `scale`, split into `shard_count` parts along a dim: one for each replica."""
    del pin_layout
    word, members = _word(reduce_type), _members(groups)
    _require_count("reduce_scatter", "shard_count", shard_count, _size(members))

    def part(x: Tensor) -> Tensor:
        return _scaled(op.reduce_scatter(x, word, scatter_dim, shard_count, members), scale)

    if isinstance(input, Tensor):
        return _written(part(input), output)
    require_tensors("input", input, "a Tensor or a list of Tensors")
    return _all_written([part(x) for x in input], output)


def reduce_scatter_bucketized(
    reduce_type: str,
    input_list: list[Tensor],
    scale: float,
    scatter_dim: int,
    shard_count: int,
    groups: Sequence[Sequence[int]] | None = None,
    output: list[Tensor] | None = None,
    pin_layout: bool = False,
    bucket_cap_mb: int = 160,
) -> list[Tensor]:
    """`reduce_scatter` of a list, in buckets of `bucket_cap_mb` MiB."""

    def scatter(input: PyTree, output: PyTree = None) -> PyTree:
        return reduce_scatter(reduce_type, input, scale, scatter_dim, shard_count, groups, output, pin_layout)

    return CoalescingBuckets(scatter, input_list, output, bucket_cap_mb=bucket_cap_mb)()


def all_to_all(
    value: Tensor,
    split_dimension: int,
    concat_dimension: int,
    split_count: int,
    groups: Sequence[Sequence[int]] | None = None,
    pin_layout: bool = True,
) -> Tensor:
    """Part i of the tensor along `split_dimension` goes to member i; received parts are joined along the other dim."""
    del pin_layout
    members = _members(groups)
    _require_count("all_to_all", "split_count", split_count, _size(members))
    return op.all_to_all(value, split_dimension, concat_dimension, split_count, members)


def collective_permute(value: Tensor, pairs: Sequence[Sequence[int]]) -> Tensor:
    """The tensor of the source of this replica's pair (source, target); zeros where no pair has it as its target."""
    routes = _ordinals("collective_permute: pairs", pairs)
    if any(len(route) != 2 for route in routes):
        raise ValueRangeError(f"collective_permute: pairs are [source, target], got {[[*route] for route in routes]}")
    for side in zip(*routes, strict=True):
        if len(set(side)) < len(side) or not all(0 <= ordinal < replicas().size for ordinal in side):
            raise ValueRangeError(
                f"collective_permute: each ordinal from 0 to {replicas().size - 1} may be a source once and a target "
                f"once, got {[list(route) for route in routes]}"
            )
    return op.collective_permute(value, routes)


def collective_broadcast(
    tensors: list[Tensor],
    root_ordinal: int = 0,
    groups: Sequence[Sequence[int]] | None = None,
    pin_layout: bool = True,
) -> None:
    """Give the tensors, in place, the values that they have on one replica; on groups without it, zeros."""
    del pin_layout
    if not 0 <= root_ordinal < replicas().size:
        raise ValueRangeError(f"collective_broadcast: there is no ordinal {root_ordinal} among {replicas().size}")
    members = _members(groups)
    require_tensors("tensors", [*tensors] if isinstance(tensors, tuple) else tensors)
    for tensor in tensors:
        _overwrite(tensor, op.collective_broadcast(tensor.detach(), root_ordinal, members))


# --- arguments ----------------------------------------------------------------------------------------------------


def _word(reduce_type: str) -> str:
    if reduce_type not in _WORDS:
        raise ValueRangeError(f"a reduction is one of {', '.join(_WORDS)}, got {reduce_type!r}")
    return _WORDS[reduce_type]


def _members(groups: Sequence[Sequence[int]] | None) -> Groups:
    """The groups as they are compiled; None for one group of all replicas."""
    if not groups:
        return None
    members = _ordinals("groups", groups)
    if len({len(group) for group in members}) > 1:
        raise AssertionError("Replica groups must have the same number of replicas/shards.")
    if sorted(ordinal for group in members for ordinal in group) != list(range(replicas().size)):
        raise ValueRangeError(
            f"groups must have each ordinal from 0 to {replicas().size - 1} once, got {[list(g) for g in members]}"
        )
    return None if len(members) == 1 and members[0] == tuple(range(replicas().size)) else members


def _ordinals(name: str, lists: Sequence[Sequence[int]]) -> tuple[tuple[int, ...], ...]:
    """Lists of ordinals as they are compiled; `TypeError` for anything else."""
    try:
        return tuple([tuple([index(ordinal) for ordinal in one]) for one in lists])
    except TypeError:
        raise ArgumentError(f"{name} must be lists of ordinals, such as [[0, 1], [2, 3]], got {lists!r}") from None


def _size(members: Groups) -> int:
    return replicas().size if members is None else len(members[0])


def _require_count(name: str, parameter: str, count: int, size: int) -> None:
    if count != size:
        raise ValueRangeError(f"{name}: {parameter} must be the number of replicas of a group, {size}, got {count}")


def _scaled(x: Tensor, scale: float) -> Tensor:
    return x if scale == 1.0 else x * scale


# --- results ------------------------------------------------------------------------------------------------------


def _overwrite(tensor: Tensor, value: Tensor) -> None:
    with using(grad=False):
        tensor.copy_(value)


def _written(result: Tensor, output: object) -> Tensor:
    if output is None:
        return result
    if not isinstance(output, Tensor):
        raise ArgumentError(f"`output` needs to be a Tensor, but given {type(output)}.")
    _overwrite(output, result)
    return output


def _all_written(results: list[Tensor], output: Arg) -> list[Tensor]:
    if output is None:
        return results
    require_tensors("output", output)
    require_length("output", output, "input", results)
    for target, result in zip(output, results, strict=True):
        _overwrite(target, result)
    return output
