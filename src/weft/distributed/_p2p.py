"""Messages between two ranks."""

from __future__ import annotations

from weft._base.guards import is_list_or_tuple_of
from weft._base.types import AnyCallable
from weft._tensor.kind_names import kind_of
from weft._tensor.tensor import Tensor
from weft.distributed._arguments import one_tensor, rank_of, require_rank
from weft.distributed._group import ProcessGroup
from weft.distributed._work import Work
from weft.distributed._world import AnyGroup, member_of, require_group
from weft.errors import ArgumentError, DistError, IndexRangeError, OutOfRangeError, ValueRangeError, WeftError

_ROLES = {"dst": "destination", "src": "source"}


def require_other(group: ProcessGroup, peer: int, name: str, error: type[WeftError] = ValueRangeError) -> None:
    """Raise `error` if a rank of the group is this one. PyTorch's functions differ in what they raise there."""
    if peer == group.rank():
        role = _ROLES[name]
        raise error(f"Invalid {role} rank: {role} rank should not be the same as the rank of the current process.")


def _require_tag(tag: int) -> None:
    if not hasattr(tag, "__index__"):
        raise ArgumentError(f"the tag of a message must be an integer, but got {kind_of(tag)} {tag!r}")
    if tag < 0:
        raise OutOfRangeError(f"Tag must be nonnegative, but got {tag}")


def isend(
    tensor: Tensor, dst: int | None = None, group: AnyGroup = None, tag: int = 0, group_dst: int | None = None
) -> Work | None:
    """Start to send a tensor to rank `dst`, which must receive it with the same tag."""
    return _start_send(tensor, dst, group, tag, group_dst, "isend", DistError)


def _start_send(
    tensor: Tensor,
    dst: int | None,
    group: AnyGroup,
    tag: int,
    group_dst: int | None,
    operation: str,
    own: type[WeftError],
) -> Work | None:
    """`isend`, which raises `own` if this rank is told to send to itself."""
    source = one_tensor(tensor, "tensor", operation)
    process_group = member_of(group, operation, dst)
    if process_group is None:
        return None
    peer = rank_of(process_group, dst, group_dst, "dst")
    require_other(process_group, peer, "dst", own)
    _require_tag(tag)
    return process_group.start_send(source, require_rank(peer, process_group, "dst"), tag)


def irecv(
    tensor: Tensor, src: int | None = None, group: AnyGroup = None, tag: int = 0, group_src: int | None = None
) -> Work | None:
    """Start to receive a tensor, of this shape and type, from rank `src`, or from any rank (None)."""
    target = one_tensor(tensor, "tensor", "irecv")
    process_group = member_of(group, "irecv", src)
    if process_group is None:
        return None
    _require_tag(tag)
    if src is None and group_src is None:
        return process_group.start_receive(target, None, tag)
    peer = rank_of(process_group, src, group_src, "src")
    require_other(process_group, peer, "src", DistError)
    return process_group.start_receive(target, require_rank(peer, process_group, "src"), tag)


def send(
    tensor: Tensor,
    dst: int | None = None,
    group: ProcessGroup | None = None,
    tag: int = 0,
    group_dst: int | None = None,
) -> None:
    """Send a tensor to rank `dst`; returns when the tensor may be changed."""
    work = _start_send(tensor, dst, group, tag, group_dst, "send", ValueRangeError)
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
        op: AnyCallable,
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
        self.group_peer = require_rank(rank_of(self.group, peer, group_peer, "peer"), self.group, "peer")
        self.peer = self.group.ranks[self.group_peer]
        self.tag = tag

    def __repr__(self) -> str:
        ends = (self.group.rank(), self.group_peer)
        source, target = ends if self.op is isend else ends[::-1]
        return (
            f"P2POp({self.op.__name__} pg={self.group.group_name}, group_src={source}, group_dst={target},  "
            f"{self.tensor.shape}, {self.tensor.dtype})"
        )


def batch_isend_irecv(p2p_op_list: object) -> list[Work]:
    """Start all of them; returns their works in order, which can be waited for in any order."""
    if not is_list_or_tuple_of(p2p_op_list, P2POp):
        raise ValueRangeError(
            "Invalid ``p2p_op_list``. Each op is expected to to be of type ``torch.distributed.P2POp``."
        )
    if not p2p_op_list:
        raise IndexRangeError("batch_isend_irecv: ``p2p_op_list`` is empty; it must have one P2POp at least")
    works = [one.op(one.tensor, group=one.group, tag=one.tag, **{_PEER[one.op]: one.group_peer}) for one in p2p_op_list]
    return [work for work in works if work is not None]
