"""Products of arrays over contracted dims, as products of matrices."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import numpy as np

from weft._lazy.interpreter.table import Array, Function, Params, Types, computed_in, primitive
from weft._lazy.native import native

_Dims = tuple[int, ...]


@primitive("dot_general")
def _dot_general(params: Params, ins: Types, outs: Types) -> Function:
    numbers: tuple[tuple[_Dims, _Dims], tuple[_Dims, _Dims]] = params["dimension_numbers"]
    (left, right), (left_batch, right_batch) = numbers
    shape, dtype = outs[0]
    inner = computed_in(np.result_type(*[computed_in(t.dtype) for t in (*ins, outs[0])]))
    as_left = _as_matrices(ins[0].shape, left_batch, left, inner, last=True)
    as_right = _as_matrices(ins[1].shape, right_batch, right, inner, last=False)

    multiply = matmul_of(inner)

    def dot(x: Array, y: Array) -> Array:
        return multiply(as_left(x), as_right(y)).reshape(shape).astype(dtype, copy=False)

    return dot


def matmul_of(dtype: np.dtype) -> Function:
    """The function for products of matrices with elements of this type: for floats a kernel of the extension."""
    return getattr(native, "matmul", np.matmul) if dtype.type in (np.float32, np.float64) else np.matmul


def _as_matrices(
    shape: tuple[int, ...], batch: Sequence[int], contracted: Sequence[int], dtype: np.dtype, *, last: bool
) -> Function:
    """A function that makes an array into matrices: (*batch, free, contracted), or, unless `last`, with these swapped.

    Their elements have the type `dtype`.
    """
    free = [d for d in range(len(shape)) if d not in (*batch, *contracted)]
    order = (*batch, *free, *contracted) if last else (*batch, *contracted, *free)
    groups = (free, contracted) if last else (contracted, free)
    sizes = (*[shape[d] for d in batch], *[prod(shape[d] for d in group) for group in groups])
    moves = order != tuple(range(len(shape)))
    reshapes = sizes != tuple(shape[d] for d in order)

    def matrices(x: Array) -> Array:
        if x.dtype != dtype:
            x = x.astype(dtype)
        if moves:
            x = x.transpose(order)
        if reshapes:
            x = x.reshape(sizes)
        return x.copy() if 0 in x.strides else x  # NumPy does not use BLAS for broadcast arrays

    return matrices
