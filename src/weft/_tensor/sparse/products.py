"""Products of matrices of which one or both are sparse."""

from __future__ import annotations

from math import prod

import numpy as np

from weft._tensor.codegen import op
from weft._tensor.composed import encoding_of, rule
from weft._tensor.sparse.coo import Coo, coalesced, coo, flat_index, matches, on_device, summed_at
from weft._tensor.sparse.encoding import is_sparse
from weft._tensor.tensor import Tensor
from weft.errors import DTypeError, ShapeError, UnsupportedShapeError
from weft.ops._type_names import scalar_name


def _require(name: str, a: Tensor, b: Tensor, dims: tuple[int, int]) -> None:
    """Raise `RuntimeError` unless two tensors of these numbers of dims can be multiplied."""
    for x, ndim, word in ((a, dims[0], "first"), (b, dims[1], "second")):
        if x.ndim != ndim:
            raise ShapeError(f"{name}: Expected dim {ndim} for the {word} argument, but got {x.ndim}")
        encoding = encoding_of(x)
        if encoding is not None and encoding.sparse_dim != x.ndim:
            raise UnsupportedShapeError(
                f"{name}: a factor has {encoding.sparse_dim} sparse and {x.ndim - encoding.sparse_dim} dense dims; "
                "products take tensors without dense dims, such as x.to_dense().to_sparse()"
            )
    inner = -1 if dims[1] == 1 else -2
    if a.shape[-1] != b.shape[inner] or a.shape[:-2] != b.shape[:-2]:
        sizes = " and ".join("x".join(map(str, x.shape)) for x in (a, b))
        raise ShapeError(f"{name}: mat1 and mat2 shapes cannot be multiplied ({sizes})")
    if a.dtype is not b.dtype:
        raise DTypeError(
            f"{name}: expected m1 and m2 to have the same dtype, but got: {scalar_name(a.dtype)} != "
            f"{scalar_name(b.dtype)}"
        )


def _by_dense(sparse: Tensor, dense: Tensor) -> Tensor:
    """(..., m, k) sparse by (..., k, n) dense: each stored element adds a multiple of a row."""
    encoding = encoding_of(sparse)
    *batch, m, k = sparse.shape
    indices = encoding.indices
    rows = flat_index(indices[:-1], (*batch, m))
    columns = flat_index(op.cat([indices[:-2], indices[-1:]]), (*batch, k))
    parts = dense.reshape((prod(batch) * k, dense.shape[-1])).index_select(0, columns) * encoding.values[:, None]
    return summed_at(parts, rows, prod(batch) * m).reshape((*batch, m, dense.shape[-1]))


def _by_sparse(a: Tensor, b: Tensor) -> Tensor:
    """The product of two sparse matrices, which is sparse. Waits for the indices."""
    one, two = encoding_of(coalesced(a)), encoding_of(coalesced(b))
    (rows, inner), (starts, columns) = one.indices.detach()._host(), two.indices.detach()._host()
    left, right = matches(inner, starts)  # for each element of `a`, those of `b` that it meets
    values = one.values.index_select(0, on_device(left, one.indices)) * two.values.index_select(
        0, on_device(right, two.indices)
    )
    indices = on_device(np.stack([rows[left], columns[right]]), one.indices)
    return coalesced(coo((a.shape[0], b.shape[1]), indices, values))


def _product(name: str, a: Tensor, b: Tensor) -> Tensor:
    _require(name, a, b, (2, 2))
    if is_sparse(a):
        return _by_sparse(a, b) if is_sparse(b) else _by_dense(a, b)
    return _by_dense(op.t(b), op.t(a)).t()


@rule(Coo, "mm")
def _mm(input: Tensor, mat2: Tensor) -> Tensor:
    return _product("mm", input, mat2)


@rule(Coo, "mv")
def _mv(input: Tensor, vec: Tensor) -> Tensor:
    _require("mv", input, vec, (2, 1))
    if is_sparse(vec):
        raise encoding_of(vec).refusal("mv")
    return _by_dense(input, vec[:, None])[:, 0]


@rule(Coo, "bmm")
def _bmm(input: Tensor, mat2: Tensor) -> Tensor:
    _require("bmm", input, mat2, (3, 3))
    if not is_sparse(input):
        return _bmm(op.transpose(mat2, 1, 2), op.transpose(input, 1, 2)).transpose(1, 2)
    if is_sparse(mat2):
        raise encoding_of(mat2).refusal("bmm")
    return _by_dense(input, mat2)


@rule(Coo, "matmul")
def _matmul(input: Tensor, other: Tensor) -> Tensor:
    match input.ndim, other.ndim:
        case 2, 2:
            return _product("mm", input, other)
        case 2, 1 if is_sparse(input):
            return _mv(input, other)
        case 1, 2 if is_sparse(other):
            return _mv(op.t(other), input)
        case 3, 3:
            return _bmm(input, other)
        case 3, 2 if is_sparse(other):
            whole = _product("mm", input.reshape((-1, input.shape[-1])), other)
            return whole.reshape((*input.shape[:-1], other.shape[-1]))
        case _:
            raise UnsupportedShapeError(
                f"matmul: there is no rule for sparse factors of {input.ndim} and {other.ndim} dims; use x.to_dense() "
                "first"
            )


@rule(Coo, "addmm")
def _addmm(input: Tensor, mat1: Tensor, mat2: Tensor, *, beta: object = 1, alpha: object = 1) -> Tensor:
    product = op.mul(_product("addmm", mat1, mat2), alpha)
    return op.add(op.mul(input, beta), product)


@rule(Coo, "addmv")
def _addmv(input: Tensor, mat: Tensor, vec: Tensor, *, beta: object = 1, alpha: object = 1) -> Tensor:
    return op.add(op.mul(input, beta), op.mul(_mv(mat, vec), alpha))


@rule(Coo, "linear")
def _linear(input: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    result = _matmul(input, op.t(weight))
    return result if bias is None else result + bias
