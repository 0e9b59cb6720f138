"""Sums, products and copies of sparse tensors."""

from __future__ import annotations

import numpy as np

from weft._base.dtype import DType
from weft._tensor.codegen import op
from weft._tensor.composed import encoding_of, rule
from weft._tensor.sparse.coo import Coo, coalesced, coo, empty_coo, host_index, masked, on_device
from weft._tensor.sparse.encoding import is_number, is_sparse
from weft._tensor.tensor import Results, Tensor
from weft.errors import ShapeError, UnsupportedShapeError
from weft.ops._dims import broadcast_shapes


@rule(Coo, "add")
def _add(input: Tensor, other: Tensor, *, alpha: object = 1) -> Tensor:
    if not (is_sparse(input) and is_sparse(other)):
        return _beside_dense(input, other, alpha)
    a, b = encoding_of(input), encoding_of(other)
    if a.size != b.size:
        raise ShapeError(f"add: expected sizes of 'self' and 'other' to match, but {list(a.size)} != {list(b.size)}")
    if a.sparse_dim != b.sparse_dim:
        raise ShapeError(
            "add: expected 'self' and 'other' to have same number of sparse dimensions, but "
            f"{a.sparse_dim} != {b.sparse_dim}"
        )
    values = op.cat([a.values, op.mul(b.values, alpha)])
    result = coo(a.size, op.cat([a.indices, b.indices], 1), values)
    return coalesced(result) if a.is_coalesced and b.is_coalesced else result


def _beside_dense(input: Tensor, other: Tensor, alpha: object) -> Tensor:
    """The dense sum of a sparse and a dense tensor, which adds only what is stored."""
    dense, sparse = (other, input) if is_sparse(input) else (input, other)
    if is_number(dense) or dense.shape != sparse.shape:
        raise UnsupportedShapeError(
            "add(sparse, dense) is not supported for a number, or for a dense tensor of another size: got sizes "
            f"{list(input.shape)} and {list(other.shape)}; use x.to_dense() first"
        )
    whole = encoding_of(sparse).whole_array()
    return op.add(whole, dense, alpha=alpha) if sparse is input else op.add(dense, whole, alpha=alpha)


@rule(Coo, "sub")
def _sub(input: Tensor, other: Tensor, *, alpha: object = 1) -> Tensor:
    return _add(input, op.neg(other), alpha=alpha)


@rule(Coo, "rsub")
def _rsub(input: Tensor, other: Tensor, *, alpha: object = 1) -> Tensor:
    return _add(other, op.neg(input), alpha=alpha)


@rule(Coo, "mul")
def _mul(input: Tensor, other: Tensor) -> Results:
    if not is_sparse(input):
        input, other = other, input
    encoding = encoding_of(input)
    if is_sparse(other):
        return _common_product(input, other)
    if is_number(other):
        return NotImplemented
    if not other.ndim:
        return encoding.with_values(op.mul(encoding.values, other))
    if broadcast_shapes(tuple(input.shape), tuple(other.shape)) != tuple(input.shape):
        raise ShapeError(
            f"mul: a sparse tensor of size {list(input.shape)} does not broadcast to that of a dense one, "
            f"{list(other.shape)}; use x.to_dense() first"
        )
    other = other.expand(tuple(encoding.size))
    return encoding.with_values(op.mul(encoding.values, encoding_of(masked(other, input)).values))


def _common_product(input: Tensor, other: Tensor) -> Tensor:
    """The product where both store an element."""
    if input.shape != other.shape:
        raise ShapeError(
            f"mul operands have incompatible sizes: {list(input.shape)} and {list(other.shape)}; sparse tensors do not "
            "broadcast"
        )
    a, b = encoding_of(coalesced(input)), encoding_of(coalesced(other))
    places = [host_index(encoding.indices, encoding.sizes) for encoding in (a, b)]
    _, ours, theirs = np.intersect1d(*places, assume_unique=True, return_indices=True)
    first = on_device(ours, a.indices)
    values = op.mul(a.values.index_select(0, first), b.values.index_select(0, on_device(theirs, b.indices)))
    return coo(a.size, a.indices.index_select(1, first), values, coalesced=True)


@rule(Coo, "true_divide")
def _true_divide(input: Tensor, other: Tensor) -> Results:
    if is_number(other):
        return NotImplemented
    if is_sparse(other) or other.ndim:
        raise UnsupportedShapeError(
            f"Sparse division requires a scalar or zero-dim dense tensor divisor (got shape {list(other.shape)} for "
            "divisor)"
        )
    encoding = encoding_of(input)
    return encoding.with_values(op.true_divide(encoding.values, other))


# --- copies -----------------------------------------------------------------------------------------------------


@rule(Coo, "clone")
def _clone(input: Tensor) -> Tensor:
    return encoding_of(input).each_part(op.clone)


@rule(Coo, "to_dtype")
def _to_dtype(input: Tensor, dtype: DType) -> Tensor:
    # An integer is no sum of numbers whose fractions were cut: what has equal indices is added up before.
    encoding = encoding_of(input if dtype.is_differentiable else coalesced(input))
    return encoding.with_values(op.to_dtype(encoding.values, dtype))


@rule(Coo, "alias")
def _alias(input: Tensor) -> Tensor:
    return encoding_of(input).each_part(op.alias)


@rule(Coo, "copy")
def _copy(input: Tensor, src: Tensor) -> Tensor:
    if not (is_sparse(input) and is_sparse(src)):
        raise ShapeError(
            "copy_() between dense and sparse Tensors is not implemented! Found self type and src type of different "
            "layouts; use to_sparse() or to_dense()"
        )
    if input.shape != src.shape:
        raise ShapeError(
            f"copy_: sizes {list(input.shape)} and {list(src.shape)} differ, and sparse tensors do not expand"
        )
    return _to_dtype(_clone(src), input.dtype)


@rule(Coo, "zero")
def _zero(input: Tensor) -> Tensor:
    return empty_coo(tuple(input.shape), encoding_of(input).sparse_dim, input)
