"""`torch_xla.core.functions`: collectives for models, and the choice of boxes.

The gradients are those of this replica's own loss with respect to its own tensor, and nothing is exchanged for them.
(Those of `xla_model`'s collectives are of the sum of all losses.) So they suit a loss that is the same on all replicas.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, cast

import weft
from weft._base.types import Result
from weft._tensor.tensor import Tensor
from weft.autograd.function import Function
from weft.errors import ShapeError
from weft.xla import _collectives
from weft.xla._boxes import nms as nms
from weft.xla._replicas import replicas

if TYPE_CHECKING:
    from weft.autograd._context import Ctx


class _AllReduce(Function):
    @staticmethod
    def forward(
        ctx: Ctx, value: Tensor, reduce_type: str, scale: float, groups: Sequence[Sequence[int]] | None
    ) -> Result:
        result = _collectives.all_reduce(reduce_type, value, scale, groups)
        ctx.reduce_type, ctx.scale = reduce_type, scale
        ctx.save_for_backward(value, result)
        return result

    @staticmethod
    def backward(ctx: Ctx, *grads: Tensor) -> Result:
        (grad,) = grads
        value, result = ctx.saved_tensors
        if ctx.reduce_type == "sum":
            own = grad * ctx.scale
        elif (
            ctx.reduce_type == "mul"
        ):  # the product of the others' elements; unknown, and taken as 0, where its own is 0
            own = weft.where(value != 0, grad * result / value, 0.0)
        else:  # "min" or "max": tensors of bits have no gradients
            own = weft.where(value * ctx.scale == result, grad * ctx.scale, 0.0)
        return own, None, None, None


class _AllGather(Function):
    @staticmethod
    def forward(ctx: Ctx, value: Tensor, dim: int) -> Result:
        ctx.dim, ctx.size = dim, value.shape[dim]
        return _collectives.all_gather(value, dim)

    @staticmethod
    def backward(ctx: Ctx, *grads: Tensor) -> Result:
        (grad,) = grads
        return grad.narrow(ctx.dim, replicas().ordinal * ctx.size, ctx.size), None


def all_reduce(
    reduce_type: str, value: Tensor, scale: float = 1.0, groups: Sequence[Sequence[int]] | None = None
) -> Tensor:
    """`xla_model.all_reduce` of a tensor, with derivatives of "sum", "mul", "min" and "max"."""
    return _AllReduce.apply(value, reduce_type, scale, groups)


def all_gather(value: Tensor, dim: int = 0) -> Tensor:
    """`xla_model.all_gather` of a tensor among all replicas, whose gradient is this replica's part."""
    return _AllGather.apply(value, dim)


def distributed_mm(w: Tensor, x: Tensor, split: int = 1) -> Tensor:
    """The product `W @ x`, where each replica has some columns of W: (n, k) and (k * replicas, m) -> (n, m).

    `x` may differ between replicas. For a large m, `split` is the number of parts of its columns that are multiplied
    one after another.
    """
    job = replicas()
    if x.shape[0] != w.shape[1] * job.size:
        raise ShapeError(
            f"distributed_mm: x must have {job.size} (replicas) times as many rows as w has columns, got w of size "
            f"{list(w.shape)} and x of size {list(x.shape)}"
        )
    if x.shape[1] % split:
        raise ShapeError(f"distributed_mm: the {x.shape[1]} columns of x cannot be split into {split} equal parts")
    products: list[Tensor] = []
    # One part after another: only that part of `x` and of the product is whole on each replica at a time.
    for part in cast("Any", x).chunk(split, 1):
        rows = all_gather(part, 1).narrow(0, job.ordinal * w.shape[1], w.shape[1])
        products.append(all_reduce("sum", w @ rows).narrow(1, job.ordinal * part.shape[1], part.shape[1]))
    return weft.cat(products, 1)
