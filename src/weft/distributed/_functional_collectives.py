"""Functional collectives, under PyTorch's names: they return new tensors, and are differentiable.

Results need not be waited for. Of tensors on the meta device, which have no data to send, they give those of the size
that the results have. `group` is a process group or its name, a mesh with one dim, or a mesh and the number of
a dim. Where its ranks run recorded programs together, all but those with uneven parts are operators of these.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from weft._base.site import warn_user
from weft._base.state import ambient
from weft._tensor.codegen import op as rows
from weft._tensor.composite.create import empty
from weft._tensor.tensor import Tensor
from weft.distributed import _collectives as collectives
from weft.distributed import _recorded as recorded
from weft.distributed._group import ProcessGroup
from weft.distributed._observers import is_collective
from weft.distributed._reduce_op import ReduceOp
from weft.distributed._world import own_groups, require_group
from weft.distributed.device_mesh import DeviceMesh
from weft.distributed.nn import functional
from weft.errors import PreconditionError, ShapeError, ValueRangeError

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


def wait_tensor(tensor: Tensor) -> Tensor:
    """The tensor itself."""
    return tensor


@is_collective("all_reduce")
def all_reduce(self: Tensor, reduceOp: str, group: Group, tag: str = "") -> Tensor:
    """The reduction of the tensors of all ranks; `reduceOp` is a word such as "sum"."""
    operation, group = _operation(reduceOp), _resolved(group)
    return self.clone() if self.is_meta else functional.all_reduce(self, operation, group)


@is_collective("broadcast")
def broadcast(self: Tensor, src: int, group: Group, tag: str = "") -> Tensor:
    """The tensor of the group's rank `src`, on all ranks."""
    group = _resolved(group)
    return self.clone() if self.is_meta else functional.broadcast(self, group.ranks[src], group)


@is_collective("all_gather_into_tensor")
def all_gather_single(self: Tensor, gather_dim: int, group: Group, tag: str = "") -> Tensor:
    """The tensors of all ranks, concatenated along a dim."""
    group = _resolved(group)
    if self.is_meta:
        return rows.cat([self] * group.size(), gather_dim)
    if group.records:
        return recorded.all_gather(self, gather_dim, group.size())
    if gather_dim == 0 and self.ndim and not _has_gradients(self):
        output = empty((group.size() * self.shape[0], *self.shape[1:]), dtype=self.dtype, device=self.device)
        collectives.all_gather_into_tensor(output, self, group)
        return output
    return rows.cat(functional.all_gather(self, group), gather_dim)


def _has_gradients(tensor: Tensor) -> bool:
    return tensor.requires_grad and ambient().grad


@is_collective("reduce_scatter_tensor")
def reduce_scatter_single(self: Tensor, reduceOp: str, scatter_dim: int, group: Group, tag: str = "") -> Tensor:
    """The reduction of all ranks' parts for this rank; a dim is divided into equal parts, by rank."""
    operation, group = _operation(reduceOp), _resolved(group)
    size = group.size()
    if self.shape[scatter_dim] % size:
        raise ShapeError(
            f"input dimension {scatter_dim} ({self.shape[scatter_dim]}) must be a multiple of group_size {size}"
        )
    if self.is_meta:
        return self.narrow(scatter_dim, 0, self.shape[scatter_dim] // size).clone()
    if operation is ReduceOp.AVG:
        return reduce_scatter_single(self, "sum", scatter_dim, group) / size
    if group.records and recorded.is_linear(operation):
        return recorded.reduce_scatter(self, operation, scatter_dim, size)
    if scatter_dim == 0 and not _has_gradients(self):
        output = empty((self.shape[0] // size, *self.shape[1:]), dtype=self.dtype, device=self.device)
        collectives.reduce_scatter_tensor(output, self, operation, group)
        return output
    parts = self.split(self.shape[scatter_dim] // size, scatter_dim)
    return functional.reduce_scatter(parts[0], parts, operation, group)


@is_collective("all_to_all_single")
def all_to_all_single(
    self: Tensor,
    output_split_sizes: list[int] | None,
    input_split_sizes: list[int] | None,
    group: Group,
    tag: str = "",
) -> Tensor:
    """Send a part of the tensor, along the first dim, to each rank; returns the received parts, concatenated."""
    length = self.shape[0] if output_split_sizes is None else sum(output_split_sizes)
    output = empty((length, *self.shape[1:]), dtype=self.dtype, device=self.device)
    return functional.all_to_all_single(output, self, output_split_sizes, input_split_sizes, _resolved(group))


def _resolved(group: Group) -> ProcessGroup:
    """The process group that an argument names; `ValueError` for anything else."""
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
        case list():
            warn_user("ranks as a group are deprecated: give a process group, its name, or a mesh", FutureWarning)
            return _first(lambda one: list(one.ranks) == group, f"of the ranks {group}")
        case _:
            return require_group(group)


def _first(fits: Callable[[ProcessGroup], bool], text: str) -> ProcessGroup:
    for group in own_groups():
        if fits(group):
            return group
    raise ValueRangeError(f"this process is in no group {text}; its groups are {own_groups()}")


def _operation(word: str) -> Any:
    operation = _OPERATIONS.get(word.lower())
    if operation is None:
        raise ValueRangeError(f"reduceOp must be one of {', '.join(_OPERATIONS)}, but got {word!r}")
    return operation


all_gather_tensor = all_gather_tensor_autograd = all_gather_single_autograd = all_gather_single
reduce_scatter_tensor = reduce_scatter_tensor_autograd = reduce_scatter_single_autograd = reduce_scatter_single
all_to_all_single_autograd = all_to_all_single
