"""Differentiable collectives, which return new tensors.

The derivative of a collective is a collective that sends gradients back, so all ranks must run backward passes
together, as they run forward passes.

Where all processes run recorded programs together (`ProcessGroup.records`), collectives are operators of these.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, TypeAlias

from weft._base.device import device
from weft._base.dtype import DType
from weft._tensor.composite.create import empty, empty_like, zeros_like
from weft._tensor.tensor import Tensor
from weft.autograd._context import Ctx
from weft.autograd.function import Function
from weft.distributed import _collectives as plain
from weft.distributed import _recorded as recorded
from weft.distributed._arguments import root_of
from weft.distributed._reduce_op import ReduceOp, Reduction
from weft.distributed._world import AnyGroup, require_group

if TYPE_CHECKING:
    from weft.distributed._group import ProcessGroup

Kind: TypeAlias = tuple[tuple[int, ...], DType, device]
"""Shape, type and device of a tensor."""

Sizes: TypeAlias = Sequence[int] | None
"""The sizes of the parts that ranks get; None for equal ones."""


def _clone(tensor: Tensor) -> Tensor:
    return tensor.detach().clone()


def _sum_of_own_part(grads: Sequence[Tensor], group: ProcessGroup) -> Tensor:
    """The sum of all ranks' gradients for this rank's part."""
    own = empty_like(grads[0])
    plain.reduce_scatter(own, list(grads), ReduceOp.SUM, group)
    return own


def _equal_parts(like: Tensor, inputs: Sequence[object], group: ProcessGroup) -> bool:
    """Whether there is an input of the shape and type of `like` for each rank."""
    kind = like.shape, like.dtype
    return len(inputs) == group.size() and all(isinstance(x, Tensor) and (x.shape, x.dtype) == kind for x in inputs)


def _shared(grad: Tensor, op: Reduction, group: ProcessGroup) -> Tensor:
    """The share of a result's gradient that belongs to each of the reduced values."""
    return grad / group.size() if op is ReduceOp.AVG else grad


class _Collective(Function):
    """A function whose `ctx` has sizes and groups only."""

    _of_no_tensors = True


class _AllReduce(_Collective):
    @staticmethod
    def forward(ctx: Ctx, op: Reduction, group: ProcessGroup, tensor: Tensor) -> Tensor:
        ctx.op, ctx.group = op, group
        if group.records:
            return recorded.all_reduce(tensor.detach(), op)
        tensor = _clone(tensor)
        plain.all_reduce(tensor, op, group)
        return tensor

    @staticmethod
    def backward(ctx: Ctx, *grads: Tensor) -> tuple[Tensor | None, ...]:
        return None, None, _AllReduce.apply(ctx.op, ctx.group, grads[0])


class _Broadcast(_Collective):
    @staticmethod
    def forward(ctx: Ctx, src: int, group: ProcessGroup, tensor: Tensor) -> Tensor:
        ctx.src, ctx.group = src, group
        tensor = _clone(tensor)
        plain.broadcast(tensor, group=group, group_src=src)
        return tensor

    @staticmethod
    def backward(ctx: Ctx, *grads: Tensor) -> tuple[Tensor | None, ...]:
        reduced = _Reduce.apply(ctx.src, ReduceOp.SUM, ctx.group, grads[0])
        return None, None, reduced if ctx.group.rank() == ctx.src else zeros_like(reduced)


class _Reduce(_Collective):
    @staticmethod
    def forward(ctx: Ctx, dst: int, op: Reduction, group: ProcessGroup, tensor: Tensor) -> Tensor:
        ctx.dst, ctx.op, ctx.group = dst, op, group
        tensor = _clone(tensor)
        plain.reduce(tensor, op=op, group=group, group_dst=dst)
        return tensor

    @staticmethod
    def backward(ctx: Ctx, *grads: Tensor) -> tuple[Tensor | None, ...]:
        return None, None, None, _Broadcast.apply(ctx.dst, ctx.group, _shared(grads[0], ctx.op, ctx.group))


class _AllGather(_Collective):
    @staticmethod
    def forward(ctx: Ctx, group: ProcessGroup, tensor: Tensor) -> tuple[Tensor, ...]:
        ctx.group = group
        parts = [empty_like(tensor) for _ in range(group.size())]
        plain.all_gather(parts, tensor.detach(), group)
        return tuple(parts)

    @staticmethod
    def backward(ctx: Ctx, *grads: Tensor) -> tuple[Tensor | None, ...]:
        return None, _sum_of_own_part(grads, ctx.group)


class _Gather(_Collective):
    @staticmethod
    def forward(ctx: Ctx, dst: int, group: ProcessGroup, tensor: Tensor) -> tuple[Tensor, ...]:
        ctx.dst, ctx.group = dst, group
        parts = [zeros_like(tensor) for _ in range(group.size())]
        plain.gather(tensor.detach(), parts if group.rank() == dst else None, group=group, group_dst=dst)
        return tuple(parts)

    @staticmethod
    def backward(ctx: Ctx, *grads: Tensor) -> tuple[Tensor | None, ...]:
        return None, None, _Scatter.apply(ctx.dst, ctx.group, *grads)


class _Scatter(_Collective):
    @staticmethod
    def forward(ctx: Ctx, src: int, group: ProcessGroup, *tensors: Tensor) -> Tensor:
        ctx.src, ctx.group = src, group
        own = empty_like(tensors[0])
        inputs = [t.detach() for t in tensors] if group.rank() == src else None
        plain.scatter(own, inputs, group=group, group_src=src)
        return own

    @staticmethod
    def backward(ctx: Ctx, *grads: Tensor) -> tuple[Tensor | None, ...]:
        return None, None, *_Gather.apply(ctx.src, ctx.group, grads[0])


class _ReduceScatter(_Collective):
    @staticmethod
    def forward(ctx: Ctx, op: Reduction, group: ProcessGroup, tensor: Tensor, *inputs: Tensor) -> Tensor:
        ctx.op, ctx.group = op, group
        if group.records and _equal_parts(tensor, inputs, group):
            return recorded.reduce_scatter_all([x.detach() for x in inputs], op)
        own = empty_like(tensor)
        plain.reduce_scatter(own, [x.detach() for x in inputs], op, group)
        return own

    @staticmethod
    def backward(ctx: Ctx, *grads: Tensor) -> tuple[Tensor | None, ...]:
        return None, None, None, *_AllGather.apply(ctx.group, _shared(grads[0], ctx.op, ctx.group))


class _AllToAll(_Collective):
    @staticmethod
    def forward(ctx: Ctx, group: ProcessGroup, shapes: Sequence[Sequence[int]], *inputs: Tensor) -> tuple[Tensor, ...]:
        ctx.group, ctx.shapes = group, [tuple(x.shape) for x in inputs]
        outputs = [empty(shape, dtype=inputs[0].dtype, device=inputs[0].device) for shape in shapes]
        plain.all_to_all(outputs, [x.detach() for x in inputs], group)
        return tuple(outputs)

    @staticmethod
    def backward(ctx: Ctx, *grads: Tensor) -> tuple[Tensor | None, ...]:
        return None, None, *_AllToAll.apply(ctx.group, ctx.shapes, *grads)


class _AllToAllSingle(_Collective):
    @staticmethod
    def forward(
        ctx: Ctx, group: ProcessGroup, kind: Kind, output_sizes: Sizes, input_sizes: Sizes, tensor: Tensor
    ) -> Tensor:
        ctx.group, ctx.kind, ctx.output_sizes, ctx.input_sizes = group, _kind_of(tensor), output_sizes, input_sizes
        shape, dtype, device = kind
        output = empty(shape, dtype=dtype, device=device)
        if not tensor.is_meta:  # there is nothing to send
            plain.all_to_all_single(output, tensor.detach(), input_sizes, output_sizes, group)
        return output

    @staticmethod
    def backward(ctx: Ctx, *grads: Tensor) -> tuple[Tensor | None, ...]:
        back = _AllToAllSingle.apply(ctx.group, ctx.kind, ctx.input_sizes, ctx.output_sizes, grads[0])
        return None, None, None, None, back


def _kind_of(tensor: Tensor) -> Kind:
    return tuple(tensor.shape), tensor.dtype, tensor.device


def broadcast(tensor: Tensor, src: int, group: AnyGroup = None) -> Tensor:
    """The tensor of rank `src`, on all ranks."""
    group = require_group(group)
    if group.records:
        return recorded.broadcast(tensor, root_of(group, src, None, "src"))
    return _Broadcast.apply(root_of(group, src, None, "src"), group, tensor)


def all_reduce(tensor: Tensor, op: Reduction = ReduceOp.SUM, group: AnyGroup = None) -> Tensor:
    """The reduction of the tensors of all ranks. Gradients are reduced in the same way."""
    group = require_group(group)
    if group.records and recorded.is_linear(op):  # what is not has no derivative as an operator
        return recorded.all_reduce(tensor, op)
    return _AllReduce.apply(op, group, tensor)


def reduce(tensor: Tensor, dst: int, op: Reduction = ReduceOp.SUM, group: AnyGroup = None) -> Tensor:
    """The reduction of the tensors of all ranks on rank `dst`; the rank's own tensor on the others."""
    group = require_group(group)
    return _Reduce.apply(root_of(group, dst, None, "dst"), op, group, tensor)


def all_gather(tensor: Tensor, group: AnyGroup = None) -> tuple[Tensor, ...]:
    """The tensors of all ranks, by rank."""
    group = require_group(group)
    return recorded.all_gather_parts(tensor, group.size()) if group.records else _AllGather.apply(group, tensor)


def gather(tensor: Tensor, dst: int = 0, group: AnyGroup = None) -> tuple[Tensor, ...]:
    """The tensors of all ranks, by rank, on rank `dst`; zeros on the others."""
    group = require_group(group)
    return _Gather.apply(root_of(group, dst, None, "dst"), group, tensor)


def scatter(tensors: Sequence[Tensor], src: int = 0, group: AnyGroup = None) -> Tensor:
    """This rank's entry of the tensors of rank `src`; other ranks give tensors of the same shapes."""
    group = require_group(group)
    return _Scatter.apply(root_of(group, src, None, "src"), group, *tensors)


def reduce_scatter(
    output: Tensor, input_list: Sequence[Tensor], op: Reduction = ReduceOp.SUM, group: AnyGroup = None
) -> Tensor:
    """The reduction of all ranks' entries of `input_list` for this rank; `output` gives shape and type."""
    group = require_group(group)
    if group.records and recorded.is_linear(op) and _equal_parts(output, input_list, group):
        return recorded.reduce_scatter_all(input_list, op)
    return _ReduceScatter.apply(op, group, output, *input_list)


def all_to_all(
    output_tensor_list: Sequence[Tensor], input_tensor_list: Sequence[Tensor], group: AnyGroup = None
) -> tuple[Tensor, ...]:
    """All ranks' entries for this rank, by rank; `output_tensor_list` gives the shapes."""
    shapes = [tuple(x.shape) for x in output_tensor_list]
    return _AllToAll.apply(require_group(group), shapes, *input_tensor_list)


def all_to_all_single(
    output: Tensor,
    input: Tensor,
    output_split_sizes: Sizes = None,
    input_split_sizes: Sizes = None,
    group: AnyGroup = None,
) -> Tensor:
    """Send a part of `input`, along the first dim, to each rank; returns the received parts, concatenated.

    `output` gives the shape. Parts have equal sizes, or those in `input_split_sizes` and `output_split_sizes`.
    """
    group = require_group(group)
    equal = not (output_split_sizes or input_split_sizes) and (output.shape, output.dtype) == (input.shape, input.dtype)
    if group.records and equal and input.ndim and not len(input) % group.size():
        return recorded.all_to_all(input, group.size())
    return _AllToAllSingle.apply(group, _kind_of(output), input_split_sizes, output_split_sizes, input)
