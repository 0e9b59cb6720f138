"""Messages between two ranks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from weft._tensor.tensor import Tensor
from weft.distributed._collectives import one_tensor, rank_of
from weft.distributed._group import ProcessGroup
from weft.distributed._work import Work
from weft.distributed._world import member_of, require_group
from weft.errors import IndexRangeError, ValueRangeError


def _peer(group: ProcessGroup, rank: int | None, group_rank: int | None, name: str) -> int:
    peer = rank_of(group, rank, group_rank, name)
    if peer == group.rank():
        raise ValueRangeError(
            "Invalid destination rank: destination rank should not be the same as the rank of the current process."
        )
    return peer


def isend(
    tensor: Tensor, dst: int | None = None, group: Any = None, tag: int = 0, group_dst: int | None = None
) -> Work | None:
    """Start to send a tensor to rank `dst`, which must receive it with the same tag."""
    source = one_tensor(tensor, "tensor", "isend")
    process_group = member_of(group, "isend", dst)
    return (
        None
        if process_group is None
        else process_group.start_send(source, _peer(process_group, dst, group_dst, "dst"), tag)
    )


def irecv(
    tensor: Tensor, src: int | None = None, group: Any = None, tag: int = 0, group_src: int | None = None
) -> Work | None:
    """Start to receive a tensor, of this shape and type, from rank `src`, or from any rank (None)."""
    target = one_tensor(tensor, "tensor", "irecv")
    process_group = member_of(group, "irecv", src)
    if process_group is None:
        return None
    anyone = src is None and group_src is None
    return process_group.start_receive(target, None if anyone else _peer(process_group, src, group_src, "src"), tag)


def send(
    tensor: Tensor,
    dst: int | None = None,
    group: ProcessGroup | None = None,
    tag: int = 0,
    group_dst: int | None = None,
) -> None:
    """Send a tensor to rank `dst`; returns when the tensor may be changed."""
    work = isend(tensor, dst, group, tag, group_dst)
    if work is not None:
        work.wait()


def recv(
    tensor: Tensor,
    src: int | None = None,
    group: ProcessGroup | None = None,
    tag: int = 0,
    group_src: int | None = None,
) -> int:
    """Receive a tensor from rank `src`, or from any (None); returns the sender. -1 for a rank outside of the group."""
    work = irecv(tensor, src, group, tag, group_src)
    return -1 if work is None else work.source_rank()


_PEER = {isend: "group_dst", irecv: "group_src"}


class P2POp:
    """A send or receive for `batch_isend_irecv`: `op` is `isend` or `irecv`."""

    def __init__(
        self,
        op: Callable[..., Any],
        tensor: Tensor,
        peer: int | None = None,
        group: ProcessGroup | None = None,
        tag: int = 0,
        group_peer: int | None = None,
    ) -> None:
        if op not in (isend, irecv):
            raise ValueRangeError(
                "Invalid ``op``. Expected ``op`` to be of type ``torch.distributed.isend`` or "
                "``torch.distributed.irecv``."
            )
        self.op = op
        self.tensor = one_tensor(tensor, "tensor", "P2POp")
        self.group = require_group(group)
        self.group_peer = rank_of(self.group, peer, group_peer, "peer")
        self.peer = self.group.ranks[self.group_peer]
        self.tag = tag

    def __repr__(self) -> str:
        ends = (self.group.rank(), self.group_peer)
        source, target = ends if self.op is isend else ends[::-1]
        return (
            f"P2POp({self.op.__name__} pg={self.group.group_name}, group_src={source}, group_dst={target},  "
            f"{self.tensor.shape}, {self.tensor.dtype})"
        )


def batch_isend_irecv(p2p_op_list: Sequence[P2POp]) -> list[Work]:
    """Start all of them; returns their works in order, which can be waited for in any order."""
    if not isinstance(p2p_op_list, (list, tuple)) or not all(isinstance(op, P2POp) for op in p2p_op_list):
        raise ValueRangeError(
            "Invalid ``p2p_op_list``. Each op is expected to to be of type ``torch.distributed.P2POp``."
        )
    if not p2p_op_list:
        raise IndexRangeError("batch_isend_irecv: ``p2p_op_list`` is empty; it must have one P2POp at least")
    works = [one.op(one.tensor, group=one.group, tag=one.tag, **{_PEER[one.op]: one.group_peer}) for one in p2p_op_list]
    return [work for work in works if work is not None]
