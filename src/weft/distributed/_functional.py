"""Functional collectives: they return new tensors, and are differentiable.

Results need not be waited for, and have a `wait()`. Of tensors on the meta device, which have no data to send, they
give those of the size that the results have. `group` is a process group or its name, a mesh with one dim, or a mesh and
the number of a dim. Where its ranks run recorded programs together, all but those with uneven parts are operators of
these.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import wraps
from typing import ParamSpec

from weft._base.guards import is_list_or_tuple
from weft._base.site import warn_user
from weft._base.state import ambient
from weft._tensor.codegen import op as rows
from weft._tensor.composite.create import empty
from weft._tensor.tensor import Tensor
from weft.distributed import _collectives as collectives
from weft.distributed import _recorded as recorded
from weft.distributed._arguments import require_rank
from weft.distributed._async_tensor import AsyncCollectiveTensor as AsyncCollectiveTensor
from weft.distributed._async_tensor import waitable
from weft.distributed._coalescing import coalescing_manager
from weft.distributed._group import ProcessGroup
from weft.distributed._observers import collective, is_collective
from weft.distributed._reduce_op import ReduceOp
from weft.distributed._world import own_groups, require_group
from weft.distributed.device_mesh import DeviceMesh
from weft.distributed.nn import functional
from weft.errors import DistError, PreconditionError, ValueRangeError

P = ParamSpec("P")
Group = ProcessGroup | str | DeviceMesh | tuple[DeviceMesh, int] | list[int]

_OPERATIONS = {
    "sum": ReduceOp.SUM,
    "avg": ReduceOp.AVG,
    "product": ReduceOp.PRODUCT,
    "min": ReduceOp.MIN,
    "max": ReduceOp.MAX,
    "band": ReduceOp.BAND,
    "bor": ReduceOp.BOR,
    "bxor": ReduceOp.BXOR,
}


REDUCE_OP_TO_STR = {operation: word for word, operation in _OPERATIONS.items()}
RANK_TYPES = Group


def wait_tensor(tensor: Tensor) -> Tensor:
    """The tensor itself, as a plain one."""
    return tensor.wait() if isinstance(tensor, AsyncCollectiveTensor) else tensor


def _waitable(function: Callable[P, Tensor]) -> Callable[P, Tensor]:
    """Let users wait for the result of a function."""

    @wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> Tensor:
        return waitable(function(*args, **kwargs))

    return call


@_waitable
@is_collective("all_reduce")
def all_reduce(self: Tensor, reduceOp: str, group: Group, tag: str = "") -> Tensor:
    """The reduction of the tensors of all ranks; `reduceOp` is a word such as "sum"."""
    operation, group = _operation(reduceOp), resolved(group)
    return self.clone() if self.is_meta else functional.all_reduce(self, operation, group)


@_waitable
@is_collective("broadcast")
def broadcast(self: Tensor, src: int, group: Group, tag: str = "") -> Tensor:
    """The tensor of the group's rank `src`, on all ranks."""
    group = resolved(group)
    return (
        self.clone()
        if self.is_meta
        else functional.broadcast(self, group.ranks[require_rank(src, group, "src")], group)
    )


@_waitable
@is_collective("all_gather_into_tensor")
def all_gather_single(self: Tensor, gather_dim: int, group: Group, tag: str = "") -> Tensor:
    """The tensors of all ranks, concatenated along a dim."""
    group = resolved(group)
    if self.is_meta:
        return rows.cat([self] * group.size(), gather_dim)
    if group.records:
        return recorded.all_gather(self, gather_dim, group.size())
    if gather_dim == 0 and self.ndim and not _has_gradients(self):
        output = _resized(self, group.size() * self.shape[0])
        collectives.all_gather_into_tensor(output, self, group)
        return output
    return rows.cat(functional.all_gather(self, group), gather_dim)


def _has_gradients(tensor: Tensor) -> bool:
    return tensor.requires_grad and ambient().grad


@_waitable
@is_collective("reduce_scatter_tensor")
def reduce_scatter_single(self: Tensor, reduceOp: str, scatter_dim: int, group: Group, tag: str = "") -> Tensor:
    """The reduction of all ranks' parts for this rank; a dim is divided into equal parts, by rank."""
    operation, group = _operation(reduceOp), resolved(group)
    size = group.size()
    if self.shape[scatter_dim] % size:
        raise _not_a_multiple(self, scatter_dim, size)
    if self.is_meta:
        return self.narrow(scatter_dim, 0, self.shape[scatter_dim] // size).clone()
    if operation is ReduceOp.AVG:
        return reduce_scatter_single(self, "sum", scatter_dim, group) / size
    if group.records and recorded.is_linear(operation):
        return recorded.reduce_scatter(self, operation, scatter_dim, size)
    # Parts along the first dim lie in memory as the ranks take them, so nothing is copied before it is sent.
    if scatter_dim == 0 and not _has_gradients(self):
        output = _resized(self, self.shape[0] // size)
        collectives.reduce_scatter_tensor(output, self, operation, group)
        return output
    parts = self.split(self.shape[scatter_dim] // size, scatter_dim)
    return functional.reduce_scatter(parts[0], parts, operation, group)


@_waitable
@is_collective("all_to_all_single")
def all_to_all_single(
    self: Tensor,
    output_split_sizes: list[int] | None,
    input_split_sizes: list[int] | None,
    group: Group,
    tag: str = "",
) -> Tensor:
    """Send a part of the tensor, along the first dim, to each rank; returns the received parts, concatenated."""
    if output_split_sizes is None or input_split_sizes is None:
        if output_split_sizes is not input_split_sizes:
            raise PreconditionError(
                "output_split_sizes and input_split_sizes must either be specified together or both set to None"
            )
    elif not _are_ints((*output_split_sizes, *input_split_sizes)):
        raise PreconditionError(f"All split sizes must be int, got {output_split_sizes} and {input_split_sizes}")
    output = _resized(self, self.shape[0] if output_split_sizes is None else sum(output_split_sizes))
    return functional.all_to_all_single(output, self, output_split_sizes, input_split_sizes, resolved(group))


@_waitable
@is_collective("all_to_all_single")
def permute_tensor(self: Tensor, src_dst: list[int], group: Group, tag: str = "") -> Tensor:
    """The tensor of the rank that sends to this one: rank `at` of the group sends to rank `src_dst[at]`.

    All tensors have the same size along the first dim. A rank to which none sends gets an empty tensor.
    """
    group = resolved(group)
    size, rank = group.size(), group.rank()
    if len(src_dst) != size or not all(0 <= target < size for target in src_dst):
        raise ValueRangeError(f"src_dst has the target of each of the {size} ranks of the group, but got {src_dst}")
    sent, received = [0] * size, [0] * size
    sent[src_dst[rank]] = self.shape[0]
    for source, target in enumerate(src_dst):
        if target == rank:
            received[source] = self.shape[0]
    return all_to_all_single(self, received, sent, group)


# --- of several tensors -----------------------------------------------------------------------------------------


def all_reduce_coalesced(self: Sequence[Tensor], reduceOp: str, group: Group, tag: str = "") -> list[Tensor]:
    """The reduction of each tensor over all ranks, by one operation; `reduceOp` is a word such as "sum"."""
    operation, group = _operation(reduceOp), resolved(group)
    with collective("all_reduce_coalesced", [x._read() for x in self]):
        if not self or not _go_together(self, group):
            return [all_reduce(x, reduceOp, group) for x in self]
        results = [x.detach().clone() for x in self]
        collectives.all_reduce_coalesced(results, operation, group)
    return [waitable(x) for x in results]


def all_gather_single_coalesced(self: Sequence[Tensor], group: Group, tag: str = "") -> list[Tensor]:
    """For each tensor those of all ranks, concatenated along the first dim, by one operation."""
    group = resolved(group)
    with collective("all_gather_into_tensor_coalesced", [x._read() for x in self]):
        if not _go_together(self, group):
            return [all_gather_single(x, 0, group) for x in self]
        results = [_resized(x, x.shape[0] * group.size()) for x in self]
        with coalescing_manager(group):
            for result, x in zip(results, self, strict=True):
                collectives.all_gather_into_tensor(result, x.detach(), group)
    return [waitable(x) for x in results]


def reduce_scatter_single_coalesced(
    inputs: Sequence[Tensor], reduceOp: str, scatter_dim: Sequence[int], group: Group, tag: str = ""
) -> list[Tensor]:
    """For each tensor the reduction of all ranks' parts for this rank, by one operation; one dim of each is divided."""
    operation, group = _operation(reduceOp), resolved(group)
    if len(scatter_dim) != len(inputs):
        raise PreconditionError(
            f"Length of scatter_dim ({len(scatter_dim)}) must equal length of inputs ({len(inputs)})"
        )
    size = group.size()
    for x, dim in zip(inputs, scatter_dim, strict=True):
        if x.shape[dim] % size:
            raise _not_a_multiple(x, dim, size)
    with collective("reduce_scatter_tensor_coalesced", [x._read() for x in inputs]):
        if operation is ReduceOp.AVG or not _go_together(inputs, group):
            return [reduce_scatter_single(x, reduceOp, dim, group) for x, dim in zip(inputs, scatter_dim, strict=True)]
        # Parts of any dim are stacked along the first one, where the collective divides.
        joined = [rows.cat(x.detach().chunk(size, dim), 0) for x, dim in zip(inputs, scatter_dim, strict=True)]
        results = [_resized(x, x.shape[0] // size) for x in joined]
        with coalescing_manager(group):
            for result, x in zip(results, joined, strict=True):
                collectives.reduce_scatter_tensor(result, x, operation, group)
    return [waitable(x) for x in results]


def _are_ints(sizes: Iterable[object]) -> bool:
    return all(isinstance(size, int) for size in sizes)


def _go_together(tensors: Sequence[Tensor], group: ProcessGroup) -> bool:
    """Whether one operation sends the tensors. Where gradients flow, each has a derivative of its own."""
    return not group.records and not any(x.is_meta or not x.ndim or _has_gradients(x) for x in tensors)


def _resized(like: Tensor, length: int) -> Tensor:
    """A new tensor that differs in its length only."""
    return empty((length, *like.shape[1:]), dtype=like.dtype, device=like.device)


def _not_a_multiple(x: Tensor, dim: int, size: int) -> PreconditionError:
    return PreconditionError(f"input dimension {dim} ({x.shape[dim]}) must be a multiple of group_size {size}")


def resolved(group: object) -> ProcessGroup:
    """The process group that an argument names; an error for anything else."""
    match group:
        case DeviceMesh() if group.ndim != 1:
            raise PreconditionError(f"Only 1D mesh is supported, pass in (DeviceMesh, int) for a dim of {group!r}")
        case DeviceMesh():
            return group.get_group()
        case (DeviceMesh() as mesh, int() as dim):
            return mesh.get_group(dim)
        case tuple():
            raise ValueRangeError(f"Invalid tuple for group must be (DeviceMesh, int), got {group!r}")
        case str():
            return _first(lambda one: one.group_name == group, f"named {group!r}")
        case _ if is_list_or_tuple(group):
            warn_user("ranks as a group are deprecated: give a process group, its name, or a mesh", FutureWarning)
            return group_of_ranks(group)
        case _:
            return require_group(group)


def group_of_ranks(ranks: Sequence[object]) -> ProcessGroup:
    """The first group of these ranks, in this order; `RuntimeError` if there is none."""
    return _first(lambda one: list(one.ranks) == list(ranks), f"of the ranks {ranks}")


def _first(fits: Callable[[ProcessGroup], bool], text: str) -> ProcessGroup:
    for group in own_groups():
        if fits(group):
            return group
    raise DistError(f"this process is in no group {text}; its groups are {own_groups()}")


def _operation(word: str) -> ReduceOp:
    operation = _OPERATIONS.get(word.lower())
    if operation is None:
        raise DistError(f"Unrecognized reduce_op: {word}; reduceOp must be one of {', '.join(_OPERATIONS)}")
    return operation


all_gather_tensor = all_gather_tensor_autograd = all_gather_single_autograd = all_gather_single
reduce_scatter_tensor = reduce_scatter_tensor_autograd = reduce_scatter_single_autograd = reduce_scatter_single
all_to_all_single_autograd = all_to_all_single
all_gather_into_tensor_coalesced = all_gather_single_coalesced
reduce_scatter_tensor_coalesced = reduce_scatter_single_coalesced
