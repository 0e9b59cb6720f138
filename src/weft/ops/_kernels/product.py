"""Matrix products, by kernels of our own on the CPU."""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

from __future__ import annotations

import math
from typing import Any

import jax.ffi
import jax.numpy as jnp

from weft.errors import DTypeError, ShapeError
from weft.ops._kernels.library import Array, is_float32, require_library, require_shape, struct_like
from weft.ops._native import Native

_LEAST_PRODUCT = 1 << 18  # multiplications; below, a call costs more than it saves
_FEW = 64  # rows of a product that XLA computes on one thread
_LONG = 1024  # sums, as in gradients of weights, for which XLA copies the first factor


def matmul(
    a: Array, b: Array, transpose_a: bool = False, transpose_b: bool = False, bias: Array | None = None
) -> Array:
    """op(a) @ op(b) + bias: (…, m, k) by (…, k, n) with equal leading dims, plus (n,); float32 or float64.

    `transpose_a` says that `a` is (…, k, m), and `transpose_b` that `b` is (…, n, k).
    """
    if a.dtype not in (jnp.float32, jnp.float64) or b.dtype != a.dtype:
        raise DTypeError(f"matmul: the native kernel takes two of float32 or float64, got {a.dtype} and {b.dtype}")
    if a.ndim < 2 or b.ndim != a.ndim or a.shape[:-2] != b.shape[:-2]:
        raise ShapeError(f"matmul: expected matrices, or equal batches of them, got {a.shape} and {b.shape}")
    m, k = a.shape[:-3:-1] if transpose_a else a.shape[-2:]
    n, same = b.shape[-2:] if transpose_b else b.shape[:-3:-1]
    if k != same:
        raise ShapeError(f"matmul: {k} columns of the first matrices do not meet {same} rows of the second")
    if bias is not None:
        require_shape("matmul", "bias", bias, (n,))
        if bias.dtype != a.dtype:
            raise DTypeError(f"matmul: the bias is {bias.dtype}, and the matrices are {a.dtype}")
    require_library("matmul")
    word = "f32" if a.dtype == jnp.float32 else "f64"
    name, arrays = ("product", (a, b)) if bias is None else ("biased_product", (a, b, bias))
    call = jax.ffi.ffi_call(f"weft_{name}_{word}", struct_like((*a.shape[:-2], m, n), a))
    return call(*arrays, transpose_a=transpose_a, transpose_b=transpose_b)


def _pays(rows: int, sums: int, columns: int, transposed: bool) -> bool:
    """Whether the kernel is faster than XLA for a product of matrices (rows, sums) and (sums, columns)."""
    if rows * sums * columns < _LEAST_PRODUCT:
        return False
    return sums >= max(_LONG, 2 * rows, 2 * columns) if transposed else rows <= _FEW


def multiplied(a: Array, b: Array, transpose_a: bool = False, transpose_b: bool = False) -> Array:
    """op(a) op(b), by the faster of the two."""
    sums, rows = a.shape[-2:] if transpose_a else a.shape[:-3:-1]
    columns = b.shape[-2 if transpose_b else -1]
    if _pays(rows, sums, columns, transpose_a):
        return matmul(a, b, transpose_a, transpose_b)
    left = jnp.swapaxes(a, -1, -2) if transpose_a else a
    return jnp.matmul(left, jnp.swapaxes(b, -1, -2) if transpose_b else b)


def _is_served(rows: int, sums: int, columns: int) -> bool:
    """Whether the kernel is faster for the product or for the gradient of its second factor."""
    return _pays(rows, sums, columns, False) or _pays(sums, rows, columns, True)


def _serves_linear(input: Array, weight: Array, bias: Array | None) -> bool:
    if input.ndim < 2 or weight.ndim != 2 or not (bias is None or bias.shape == weight.shape[:1]):
        return False
    columns, sums = weight.shape
    return _is_served(math.prod(input.shape[:-1]), sums, columns) and is_float32(input, weight, bias)


def linear(input: Array, weight: Array, bias: Array | None = None) -> Array:
    y = multiplied(input.reshape(-1, input.shape[-1]), weight, transpose_b=True)
    y = y.reshape(*input.shape[:-1], weight.shape[0])
    return y if bias is None else y + bias


def _linear_vjp(g: Array, out: Any, input: Array, weight: Array, bias: Array | None) -> tuple[Array | None, ...]:
    del out
    g, x = g.reshape(-1, g.shape[-1]), input.reshape(-1, input.shape[-1])
    g_input = multiplied(g, weight).reshape(input.shape)
    return g_input, multiplied(g, x, transpose_a=True), None if bias is None else jnp.sum(g, 0)


def _serves_product(a: Array, b: Array) -> bool:
    if min(a.ndim, b.ndim) < 2 or a.ndim != b.ndim or a.shape[:-2] != b.shape[:-2]:
        return False
    rows, sums = a.shape[-2:]
    return _is_served(rows, sums, b.shape[-1]) and is_float32(a, b)


def _product(a: Array, b: Array) -> Array:
    return multiplied(a, b)


def _product_vjp(g: Array, out: Any, a: Array, b: Array) -> tuple[Array, Array]:
    del out
    return multiplied(g, b, transpose_b=True), multiplied(a, g, transpose_a=True)


LINEAR = Native("cpu", _serves_linear, linear, _linear_vjp)
PRODUCT = Native("cpu", _serves_product, _product, _product_vjp)
