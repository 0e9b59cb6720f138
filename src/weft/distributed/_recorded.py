"""Collectives as operators of the program that all ranks of a job run together, for groups whose `records` is true.

They are differentiable, and exchange nothing until the program runs. All ranks must record the same ones.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from weft._comm.groups.reductions import check_reduction
from weft._tensor.codegen import op as rows
from weft._tensor.tensor import Tensor
from weft.distributed._arguments import reduction_of
from weft.distributed._reduce_op import PremulSum, ReduceOp, Reduction, word_of
from weft.errors import DTypeError, ValueRangeError, WeftError


def is_linear(op: Reduction) -> bool:
    """Whether the operator of a reduction has a derivative."""
    return isinstance(op, PremulSum) or op in (ReduceOp.SUM, ReduceOp.AVG)


def all_reduce(x: Tensor, op: Reduction) -> Tensor:
    """The reduction of the tensors of all ranks."""
    return rows.all_reduce(*_operands(x, op, "all_reduce", ValueRangeError))


def reduce_scatter(x: Tensor, op: Reduction, dim: int, size: int) -> Tensor:
    """This rank's part, along a dim, of the reduction of the tensors of all ranks."""
    return rows.reduce_scatter(*_operands(x, op, "reduce_scatter"), dim, size)


def reduce_scatter_all(xs: Sequence[Tensor], op: Reduction) -> Tensor:
    """The reduction of the tensors that all ranks have given for this one."""
    return rows.squeeze(reduce_scatter(rows.stack(list(xs)), op, 0, len(xs)), 0)


def all_gather(x: Tensor, dim: int, size: int) -> Tensor:
    """The tensors of all ranks, joined along a dim."""
    return rows.all_gather(x, dim, size)


def all_gather_parts(x: Tensor, size: int) -> tuple[Tensor, ...]:
    """The tensors of all ranks, by rank."""
    whole = all_gather(rows.unsqueeze(x, 0), 0, size)
    return tuple([part.clone() for part in whole.unbind(0)])


def all_to_all(x: Tensor, size: int) -> Tensor:
    """Equal parts along the first dim go to the ranks; the parts received, joined."""
    return rows.all_to_all(x, 0, 0, size)


def broadcast(x: Tensor, root: int) -> Tensor:
    """The tensor of the rank `root`."""
    return rows.collective_broadcast(x, root)


def _operands(x: Tensor, op: Reduction, name: str, error: type[WeftError] = DTypeError) -> tuple[Tensor, str]:
    """The tensor that is reduced, and the row's word for how."""
    op = reduction_of(op, [x], name, error)
    check_reduction(word_of(op), np.dtype(x.dtype.numpy))
    if isinstance(op, PremulSum):
        return (x * op.factor).to(x.dtype), "sum"
    return x, word_of(op)
