"""Sums and norms of sparse tensors, and softmax over what is stored."""

from __future__ import annotations

import numpy as np

from weft._base.dtype import DType
from weft._base.guards import is_tuple
from weft._base.types import Arg
from weft._tensor.codegen import op
from weft._tensor.composed import encoding_of, rule
from weft._tensor.sparse.coo import Coo, coalesced, coo, host_index, on_device, summed_at
from weft._tensor.sparse.encoding import is_sparse
from weft._tensor.tensor import Tensor
from weft.errors import UnsupportedCallError
from weft.ops._dims import wrap_dim


@rule(Coo, "sum")
def total(input: Tensor, dim: Arg = None, keepdim: bool = False, *, dtype: DType | None = None) -> Tensor:
    """Sums over dims: dense if all sparse dims are among them, else sparse."""
    encoding = encoding_of(input)
    dims = range(input.ndim) if dim is None or dim == () else (dim,) if isinstance(dim, int) else dim
    gone = {wrap_dim(d, input.ndim) for d in dims}
    if len(gone) == input.ndim and not keepdim:
        return op.sum(encoding.values, dtype=dtype)
    inner = [d - encoding.sparse_dim + 1 for d in gone if d >= encoding.sparse_dim]
    values = op.sum(encoding.values, inner, dtype=dtype) if inner else op.to_dtype(encoding.values, _type(input, dtype))
    kept = [d for d in range(encoding.sparse_dim) if d not in gone]
    size = [n for d, n in enumerate(input.shape) if d not in gone]
    if not kept:
        result = op.sum(values, 0)
    else:
        rows = op.stack([encoding.indices[d] for d in kept])
        result = coalesced(coo(size, rows, values))
    for d in sorted(gone) if keepdim else ():
        result = op.unsqueeze(result, d)
    return result


def _type(x: Tensor, dtype: DType | None) -> DType:
    return dtype or op.sum(op.zeros((), dtype=x.dtype)).dtype


@rule(Coo, "vector_norm")
def _vector_norm(
    x: Tensor, ord: float = 2, dim: object = None, keepdim: bool = False, *, dtype: object = None
) -> Tensor:
    if ord <= 0 or (dim not in (None, ()) and len(dim if is_tuple(dim) else (dim,)) != x.ndim):
        raise UnsupportedCallError(
            f"norm: of a sparse tensor, norms of positive order over all dims can be computed, but got p={ord} and "
            f"dim={dim}; use x.to_dense() first"
        )
    norm = op.vector_norm(encoding_of(coalesced(x)).values, ord, dtype=dtype)
    return norm.reshape((1,) * x.ndim) if keepdim else norm


def softmax_of(x: Tensor, dim: int, *, log: bool) -> Tensor:
    """Softmax along `dim` over the stored elements: those that are not stored count as minus infinity."""
    x = coalesced(x)
    encoding = encoding_of(x)
    at = wrap_dim(dim, x.ndim)
    if at >= encoding.sparse_dim:
        function = op.log_softmax if log else op.softmax
        return encoding.with_values(function(encoding.values, at - encoding.sparse_dim + 1))
    others = [d for d in range(encoding.sparse_dim) if d != at]
    indices = encoding.indices.detach()
    if others:
        rest = indices.index_select(0, on_device(np.array(others), indices))
        _, groups = np.unique(host_index(rest, [x.shape[d] for d in others]), return_inverse=True)
    else:
        groups = np.zeros(encoding.count, np.int64)
    count, group = int(groups.max(initial=-1)) + 1, on_device(groups, indices)
    values = encoding.values.detach()
    places = group.reshape((-1, *[1] * (values.ndim - 1))).expand(tuple(values.shape))
    lowest = op.full((count, *values.shape[1:]), -float("inf"), dtype=x.dtype, device=x.device)
    peak = lowest.scatter_reduce(0, places, values, "amax").index_select(0, group)
    shifted = encoding.values - peak
    total = summed_at(shifted.exp(), group, count).index_select(0, group)
    return encoding.with_values(shifted - total.log() if log else shifted.exp() / total)


def require_sparse(x: Tensor, name: str) -> None:
    """Raise for a dense argument of a function of `weft.sparse`."""
    if not is_sparse(x):
        raise UnsupportedCallError(
            f"Could not run 'aten::_sparse_{name}' with arguments from the '{x.device.type.upper()}' backend: "
            f"sparse.{name}() takes a sparse tensor; use x.to_sparse(), or weft.{name}"
        )
