"""Functional collectives that write their result to a tensor, under PyTorch's names. They wait for it."""

from __future__ import annotations

from collections.abc import Sequence

from weft._tensor.composite.create import empty
from weft._tensor.tensor import Tensor
from weft.distributed import _functional as functional
from weft.distributed import _p2p as p2p
from weft.distributed._async_tensor import waitable
from weft.distributed._world import AnyGroup, require_group
from weft.errors import PreconditionError, ValueRangeError


def all_gather_tensor_inplace(
    output_tensor: Tensor,
    input_tensor: Tensor,
    group: AnyGroup = None,
    async_op: bool = False,
    tag: str = "",
    gather_dim: int = 0,
) -> Tensor:
    """Write the tensors of all ranks, concatenated along a dim, to `output_tensor`."""
    _require_sync(async_op)
    return output_tensor.copy_(functional.all_gather_single(input_tensor, gather_dim, require_group(group)))


def reduce_scatter_tensor_inplace(
    output: Tensor,
    input: Tensor,
    op: str = "sum",
    group: AnyGroup = None,
    async_op: bool = False,
    scatter_dim: int = 0,
    tag: str = "",
) -> Tensor:
    """Write the reduction of all ranks' parts for this rank to `output`."""
    _require_sync(async_op)
    return output.copy_(functional.reduce_scatter_single(input, op, scatter_dim, require_group(group)))


def all_reduce_inplace(
    tensor: Tensor, op: str = "sum", group: AnyGroup = None, async_op: bool = False, tag: str = ""
) -> Tensor:
    """Write the reduction of the tensors of all ranks to the tensor."""
    _require_sync(async_op)
    return tensor.copy_(functional.all_reduce(tensor, op, require_group(group)))


def all_to_all_inplace(
    output: Tensor,
    input: Tensor,
    output_split_sizes: list[int] | None = None,
    input_split_sizes: list[int] | None = None,
    group: AnyGroup = None,
    async_op: bool = False,
    tag: str = "",
) -> Tensor:
    """Send a part of `input` to each rank, and write the received parts, concatenated, to `output`."""
    _require_sync(async_op)
    received = functional.all_to_all_single(input, output_split_sizes, input_split_sizes, require_group(group))
    return output.copy_(received)


def all_gather_inplace(
    tensor_list: Sequence[Tensor], tensor: Tensor, group: AnyGroup = None, async_op: bool = False, tag: str = ""
) -> Sequence[Tensor]:
    """Write the tensors of all ranks, which have one size, to those of a list, by rank."""
    _require_sync(async_op)
    if any(one.shape[:1] != tensor.shape[:1] for one in tensor_list):
        raise PreconditionError("Remapping variable size all_gather is not yet supported")
    whole = functional.all_gather_single(tensor, 0, require_group(group))
    for one, part in zip(tensor_list, whole.chunk(len(tensor_list)), strict=True):
        one.copy_(part.view(one.shape))
    return tensor_list


def isend_inplace(tensor: Tensor, dst: int | None, tag: int = 0, group: AnyGroup = None, group_dst: int = -1) -> Tensor:
    """Start to send a tensor to a rank; returns an empty tensor."""
    p2p.isend(tensor, dst, group, tag, _rank_in_group(dst, group_dst, "dst"))
    return waitable(empty(0))


def irecv_inplace(tensor: Tensor, src: int | None, tag: int = 0, group: AnyGroup = None, group_src: int = -1) -> Tensor:
    """Receive a tensor from a rank, and return it."""
    work = p2p.irecv(tensor, src, group, tag, _rank_in_group(src, group_src, "src"))
    if work is not None:
        work.wait()
    return waitable(tensor)


def batch_p2p_ops_inplace(
    op_list: Sequence[str],
    peer_list: Sequence[int],
    tag_list: Sequence[int],
    tensors: Sequence[Tensor],
    group_name: functional.Group,
) -> list[Tensor]:
    """Start all messages ("isend", "irecv"), and wait for those to be received; returns them, and empty tensors."""
    group, calls = functional.resolved(group_name), {"isend": p2p.isend, "irecv": p2p.irecv}
    each = zip(op_list, tensors, peer_list, tag_list, strict=True)
    works = p2p.batch_isend_irecv([p2p.P2POp(calls[op], x, peer, group, tag) for op, x, peer, tag in each])
    for op, work in zip(op_list, works, strict=True):
        if op == "irecv":
            work.wait()
    return [waitable(x if op == "irecv" else empty(0)) for op, x in zip(op_list, tensors, strict=True)]


def _require_sync(async_op: bool) -> None:
    if async_op:
        raise PreconditionError("Can't remap async version of inplace op to functional collective")


def _rank_in_group(rank: int | None, group_rank: int, name: str) -> int | None:
    """A rank in the group, if it is given by that."""
    if group_rank != -1 and rank is not None:
        raise ValueRangeError(f"Cannot specify both '{name}' and 'group_{name}' args as per eager impl")
    return None if group_rank == -1 else group_rank
