"""The sum of sparse tensors, one of each rank, which differ in how many elements they store."""

from __future__ import annotations

from collections.abc import Sequence

from weft._base.dtype import int64
from weft._base.layout import sparse_coo
from weft._base.types import Arg
from weft._tensor.codegen import op
from weft._tensor.composite.create import zeros
from weft._tensor.convert import tensor
from weft._tensor.sparse.coo import coalesced, coo
from weft._tensor.sparse.tensor import SparseTensor
from weft._tensor.tensor import Tensor
from weft._tensor.view import replace_value
from weft.distributed._group import ProcessGroup
from weft.distributed._reduce_op import ReduceOp, as_reduction
from weft.distributed._work import Work, completed
from weft.errors import OutOfRangeError, ShapeError, UnsupportedCallError

_NAME = "all_reduce"


def all_reduce_sparse(x: SparseTensor, reduction: object, group: ProcessGroup | None, *, async_op: bool) -> Work | None:
    """`all_reduce` of tensors in coordinates; all of them get the coalesced sum.

    How many elements come must be known before they do. So with `async_op`, too, this returns when all is done.
    """
    if x.layout is not sparse_coo:
        raise UnsupportedCallError(f"{_NAME}: `tensor` has layout {x.layout}; use x.to_sparse_coo() or x.to_dense()")
    if as_reduction(reduction) is not ReduceOp.SUM:
        raise OutOfRangeError(
            f"{_NAME} of sparse tensors only works with ReduceOp.SUM, not {reduction}; use x.to_dense()"
        )
    if group is None:
        return None
    mine = x.detach().coalesce()
    # Ranks store different numbers of elements, and collectives need sizes in advance.
    counts = _stored_by_all_ranks(mine, group)
    indices = _gathered(mine.indices(), [(mine.sparse_dim(), count) for count in counts], group)
    values = _gathered(mine.values(), [(count, *mine.values().shape[1:]) for count in counts], group)
    replace_value(x, coalesced(coo(x.shape, op.cat(indices, 1), op.cat(values, 0)))._read())
    return completed(_NAME, [x]) if async_op else None


def _stored_by_all_ranks(x: Arg, group: ProcessGroup) -> list[int]:
    """How many elements the tensors of all ranks store, which must have one shape."""
    facts = [*x.shape, x.sparse_dim(), x._nnz()]
    places = [zeros(len(facts), dtype=int64) for _ in range(group.size())]
    group.run(_NAME, lambda xs: group.own_backend.all_gather(xs[0]), [tensor(facts)], places, async_op=False)
    of_all = [place.tolist() for place in places]
    for rank, others in enumerate(of_all):
        if others[:-1] != facts[:-1]:
            raise ShapeError(
                f"{_NAME}: Sparse dimensions do not match: rank {group.rank()} has shape {list(x.shape)} with "
                f"{x.sparse_dim()} sparse dims, and rank {rank} {others[:-2]} with {others[-2]}"
            )
    return [others[-1] for others in of_all]


def _gathered(part: Tensor, shapes: Sequence[tuple[int, ...]], group: ProcessGroup) -> list[Tensor]:
    backend, places = group.own_backend, [zeros(shape, dtype=part.dtype) for shape in shapes]
    group.run(_NAME, lambda xs: backend.all_to_all([xs[0]] * len(shapes), shapes), [part], places, async_op=False)
    return places
