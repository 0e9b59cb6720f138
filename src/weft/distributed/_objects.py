"""Collectives over Python objects, which are pickled; so all ranks must trust each other.

Ranks have proved to each other that they know the job's key before anything is unpickled.
"""

from __future__ import annotations

import pickle
from collections.abc import Sequence

import numpy as np

from weft._base.device import DeviceLike
from weft._base.dtype import int64, uint8
from weft._base.guards import is_list
from weft._base.types import Result
from weft._tensor.composite.create import zeros
from weft._tensor.convert import from_host, tensor
from weft._tensor.kind_names import kind_of
from weft._tensor.tensor import Tensor
from weft.distributed import _collectives, _p2p
from weft.distributed._arguments import or_first, rank_of, require_list_at_root, require_rank, root_of
from weft.distributed._group import ProcessGroup
from weft.distributed._world import AnyGroup, member_of
from weft.errors import ArgumentError, IndexRangeError, OutOfRangeError, ValueRangeError, WeftError


def _packed(obj: object, name: str) -> Tensor:
    """The pickle of an object, which errors call `name`."""
    try:
        data = pickle.dumps(obj, protocol=pickle.HIGHEST_PROTOCOL)
    except (AttributeError, TypeError, pickle.PicklingError) as error:
        raise type(error)(
            f"{name} cannot be pickled: {error}; objects travel as pickles, which functions and classes can if they "
            "are defined at the top of a module"
        ) from error
    return from_host(np.frombuffer(data, np.uint8))


def _all_packed(objects: Sequence[object], name: str) -> list[Tensor]:
    return [_packed(obj, f"{name}[{at}]") for at, obj in enumerate(objects)]


def _unpacked(data: Tensor, size: int) -> Result:
    return pickle.loads(data._host()[:size].tobytes())


def _sizes_and_data(obj: object, group: ProcessGroup, operation: str) -> tuple[list[int], Tensor]:
    """The sizes of all ranks' pickles, and this rank's pickle padded to the largest size."""
    packed = _packed(obj, f"{operation}: obj")
    group.await_ranks(operation)
    sizes = [zeros(1, dtype=int64) for _ in range(group.size())]
    _collectives.all_gather(sizes, tensor([packed.numel()]), group)
    counts = [int(size) for size in sizes]
    data = zeros(max(counts), dtype=uint8)
    data[: packed.numel()] = packed
    return counts, data


def all_gather_object(object_list: list[Result], obj: object, group: AnyGroup = None) -> None:
    """Put the object of rank i into `object_list[i]`, on all ranks; further entries are kept."""
    process_group = member_of(group, "all_gather_object")
    if process_group is None:
        return
    _require_length(object_list, process_group.size(), "object_list", IndexRangeError, more=True)
    sizes, data = _sizes_and_data(obj, process_group, "all_gather_object")
    parts = [zeros(data.numel(), dtype=uint8) for _ in sizes]
    _collectives.all_gather(parts, data, process_group)
    object_list[: len(sizes)] = [_unpacked(part, size) for part, size in zip(parts, sizes, strict=True)]


def gather_object(
    obj: object,
    object_gather_list: list[Result] | None = None,
    dst: int | None = None,
    group: AnyGroup = None,
    group_dst: int | None = None,
) -> None:
    """Put the object of rank i into `object_gather_list[i]` of rank `dst` (by default 0); other ranks give no list.

    Further entries of the list are kept.
    """
    process_group = member_of(group, "gather_object", dst)
    if process_group is None:
        return
    root = rank_of(process_group, *or_first(dst, group_dst, process_group), "dst")
    is_root = process_group.rank() == root
    require_list_at_root(object_gather_list, "object_gather_list", "destination", is_root=is_root)
    require_rank(root, process_group, "dst")
    # Pickles differ in length, and collectives take equal sizes: lengths first, then bytes filled up to the longest.
    sizes, data = _sizes_and_data(obj, process_group, "gather_object")
    parts = [zeros(data.numel(), dtype=uint8) for _ in sizes] if is_root else None
    _collectives.gather(data, parts, group=process_group, group_dst=root)
    if parts is not None and object_gather_list is not None:
        _require_length(object_gather_list, len(sizes), "object_gather_list", IndexRangeError, more=True)
        object_gather_list[: len(sizes)] = [_unpacked(part, size) for part, size in zip(parts, sizes, strict=True)]


def broadcast_object_list(
    object_list: list[Result],
    src: int | None = None,
    group: AnyGroup = None,
    device: DeviceLike | None = None,
    group_src: int | None = None,
) -> None:
    """Put the objects of rank `src` (by default 0) into the lists of all ranks, which must have one length."""
    del device
    process_group = member_of(group, "broadcast_object_list", src)
    if process_group is None:
        return
    if not hasattr(object_list, "__len__"):
        raise ArgumentError(f"broadcast_object_list: object_list must be a list, but got {kind_of(object_list)}")
    root = _root(process_group, src, group_src, "src")
    mine = process_group.rank() == root
    # Packed before anything is sent: an object that cannot be pickled leaves no exchange half done.
    packed = _all_packed(object_list, "broadcast_object_list: object_list") if mine else []
    process_group.await_ranks("broadcast_object_list")
    sizes = tensor([p.numel() for p in packed] or [0] * len(object_list), dtype=int64)
    _collectives.broadcast(sizes, group=process_group, group_src=root)
    counts: list[int] = sizes.tolist()
    data = from_host(np.concatenate([p._host() for p in packed])) if packed else zeros(sum(counts), dtype=uint8)
    _collectives.broadcast(data, group=process_group, group_src=root)
    if not mine:
        for at, part in enumerate(data.split(counts)):
            object_list[at] = _unpacked(part, counts[at])


def scatter_object_list(
    scatter_object_output_list: list[Result],
    scatter_object_input_list: Sequence[object] | None = None,
    src: int | None = None,
    group: AnyGroup = None,
    group_src: int | None = None,
) -> None:
    """Put object i of the list of rank `src` (by default 0) into the first place of rank i's output list."""
    process_group = member_of(group, "scatter_object_list", src)
    if process_group is None:
        return
    if not is_list(scatter_object_output_list) or not scatter_object_output_list:
        raise ValueRangeError("Expected argument scatter_object_output_list to be a list of size at least 1.")
    root = _root(process_group, src, group_src, "src")
    packed: list[Tensor] = []
    if process_group.rank() == root:
        if scatter_object_input_list is None:
            raise ValueRangeError("source rank must provide non-None scatter_object_input_list")
        _require_length(
            scatter_object_input_list, process_group.size(), "scatter_object_input_list", OutOfRangeError, more=False
        )
        packed = _all_packed(scatter_object_input_list, "scatter_object_list: scatter_object_input_list")
    process_group.await_ranks("scatter_object_list")
    sizes = tensor([p.numel() for p in packed] or [0] * process_group.size(), dtype=int64)
    _collectives.broadcast(sizes, group=process_group, group_src=root)
    counts = sizes.tolist()
    parts: list[Tensor] = []
    for part in packed:
        # Collectives take equal sizes, and pickles differ in length.
        padded = zeros(max(counts), dtype=uint8)
        padded[: part.numel()] = part
        parts.append(padded)
    mine = zeros(max(counts), dtype=uint8)
    _collectives.scatter(mine, parts or None, group=process_group, group_src=root)
    scatter_object_output_list[0] = _unpacked(mine, counts[process_group.rank()])


def send_object_list(
    object_list: Sequence[object],
    dst: int | None = None,
    group: ProcessGroup | None = None,
    device: DeviceLike | None = None,
    group_dst: int | None = None,
    use_batch: bool = False,
) -> None:
    """Send objects to rank `dst`, which calls `recv_object_list` with a list of this length."""
    del device, use_batch  # for communicators of pairs of ranks, which do not exist here
    packed = _all_packed(object_list, "send_object_list: object_list")
    _p2p.send(tensor([p.numel() for p in packed], dtype=int64), dst, group, group_dst=group_dst)
    _p2p.send(from_host(np.concatenate([p._host() for p in packed])), dst, group, group_dst=group_dst)


def recv_object_list(
    object_list: list[Result],
    src: int | None = None,
    group: ProcessGroup | None = None,
    device: DeviceLike | None = None,
    group_src: int | None = None,
    use_batch: bool = False,
) -> int:
    """Put the objects sent by rank `src`, or by any rank, into the list; returns the rank that has sent them."""
    del device, use_batch
    process_group = member_of(group, "recv_object_list", src)
    if process_group is None:
        return -1
    if src is not None or group_src is not None:
        _p2p.require_other(process_group, rank_of(process_group, src, group_src, "src"), "src")
    sizes = zeros(len(object_list), dtype=int64)
    source = _p2p.recv(sizes, src, group, group_src=group_src)
    counts = sizes.tolist()
    data = zeros(sum(counts), dtype=uint8)
    # From the same rank: with any source, the data of another sender might come first.
    _p2p.recv(data, source, group)
    for at, part in enumerate(data.split(counts)):
        object_list[at] = _unpacked(part, counts[at])
    return source


def _root(group: ProcessGroup, rank: int | None, group_rank: int | None, name: str) -> int:
    return root_of(group, *or_first(rank, group_rank, group), name)


def _require_length(entries: object, count: int, name: str, error: type[WeftError], *, more: bool) -> None:
    """Raise `error` unless a list has one entry for each rank; with `more`, it may be longer."""
    if not is_list(entries):
        raise ArgumentError(f"`{name}` must be a list, but got {kind_of(entries)}")
    if len(entries) < count or (len(entries) > count and not more):
        raise error(f"`{name}` must be a list with a place for each of the {count} ranks, but got {entries!r}")
