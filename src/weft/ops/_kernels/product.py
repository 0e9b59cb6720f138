"""Matrix products, by kernels of our own on the CPU."""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

from __future__ import annotations

import math
from collections.abc import Callable

import jax
import jax.ffi
import jax.numpy as jnp

from weft.errors import DTypeError, ShapeError
from weft.ops._kernels.library import (
    Array,
    available,
    has_bfloat16,
    require_library,
    require_shape,
    struct_like,
)
from weft.ops._kinds import Scalar
from weft.ops._native import Native

_WORDS = {"float32": "f32", "float64": "f64", "bfloat16": "bf16"}
_LEAST = 1 << 15  # multiplications; below, a call costs more than it saves
_SHORT = 16  # terms of a sum and columns; with fewer, moving numbers is what costs, and XLA does that in other loops
_MANY = 256  # rows of one product, from which on a second factor may be copied for it


def matmul(
    a: Array, b: Array, transpose_a: bool = False, transpose_b: bool = False, bias: Array | None = None
) -> Array:
    """op(a) @ op(b) + bias: (…, m, k) by (…, k, n) with equal leading dims, plus (n,).

    `transpose_a` says that `a` is (…, k, m), and `transpose_b` that `b` is (…, n, k). The dtypes are float32, float64
    and, where `has_bfloat16` says so, bfloat16: this is added up in float32 and rounded once.
    """
    if a.dtype.name not in _WORDS or b.dtype != a.dtype:
        raise DTypeError(
            f"matmul: the native kernel takes two of float32, float64 or bfloat16, got {a.dtype} and {b.dtype}"
        )
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
    name, arrays = ("product", (a, b)) if bias is None else ("biased_product", (a, b, bias))
    call = jax.ffi.ffi_call(f"weft_{name}_{_WORDS[a.dtype.name]}", struct_like((*a.shape[:-2], m, n), a))
    return call(*arrays, transpose_a=transpose_a, transpose_b=transpose_b)


def _pays(batch: int, rows: int, sums: int, columns: int) -> bool:
    """Whether the kernel is faster than XLA for products of matrices (rows, sums) and (sums, columns)."""
    return rows > 1 and min(sums, columns) >= _SHORT and batch * rows * sums * columns >= _LEAST


def multiplied(
    a: Array, b: Array, transpose_a: bool = False, transpose_b: bool = False, bias: Array | None = None
) -> Array:
    """op(a) op(b) + bias, by the faster of the two."""
    sums, rows = a.shape[-2:] if transpose_a else a.shape[:-3:-1]
    columns = b.shape[-2 if transpose_b else -1]
    if _pays(math.prod(a.shape[:-2]), rows, sums, columns):
        return matmul(a, b, transpose_a, transpose_b, bias)
    left, right = (
        jnp.swapaxes(x, -1, -2) if transposed else x for x, transposed in ((a, transpose_a), (b, transpose_b))
    )
    y = jnp.matmul(left, right)
    return y if bias is None else y + bias


def _has_kernel(*arrays: Array | None) -> bool:
    """Whether the library multiplies arrays of these types, which have to be one."""
    names = {x.dtype.name for x in arrays if x is not None}
    if len(names) != 1 or not names <= set(_WORDS) or not available():
        return False
    return names != {"bfloat16"} or has_bfloat16()


# --- the rows' bodies -----------------------------------------------------------------------------------------


def _serves_linear(input: Array, weight: Array, bias: Array | None = None) -> bool:
    if input.ndim < 2 or weight.ndim != 2 or not (bias is None or bias.shape == weight.shape[:1]):
        return False
    columns, sums = weight.shape
    return _pays(1, math.prod(input.shape[:-1]), sums, columns) and _has_kernel(input, weight, bias)


def linear(input: Array, weight: Array, bias: Array | None = None) -> Array:
    y = multiplied(input.reshape(-1, input.shape[-1]), weight, transpose_b=True, bias=bias)
    return y.reshape(*input.shape[:-1], weight.shape[0])


def _linear_vjp(g: Array, input: Array, weight: Array, bias: Array | None) -> tuple[Array | None, ...]:
    g, x = g.reshape(-1, g.shape[-1]), input.reshape(-1, input.shape[-1])
    g_input = multiplied(g, weight).reshape(input.shape)
    return g_input, multiplied(g, x, transpose_a=True), None if bias is None else jnp.sum(g, 0)


def _serves_product(a: Array, b: Array) -> bool:
    """A second factor that is a transposed view is copied for the kernel, not for XLA: rows have to be worth that."""
    if min(a.ndim, b.ndim) < 2 or not (b.ndim == 2 or a.shape[:-2] == b.shape[:-2]):
        return False
    batch, rows = (1, math.prod(a.shape[:-1])) if b.ndim == 2 else (math.prod(a.shape[:-2]), a.shape[-2])
    return (batch > 1 or rows >= _MANY) and _pays(batch, rows, *b.shape[-2:]) and _has_kernel(a, b)


def _rows_of(a: Array, b: Array) -> Array:
    """The first factor with as many dims as the second: one matrix multiplies all rows of a batch."""
    return a.reshape(-1, a.shape[-1]) if b.ndim == 2 else a


def _product(a: Array, b: Array) -> Array:
    return multiplied(_rows_of(a, b), b).reshape(*a.shape[:-1], b.shape[-1])


def _product_vjp(g: Array, out: object, a: Array, b: Array) -> tuple[Array, Array]:
    del out
    g, rows = _rows_of(g, b), _rows_of(a, b)
    return multiplied(g, b, transpose_b=True).reshape(a.shape), multiplied(rows, g, transpose_a=True)


def added(add: Callable[..., Array]) -> Native:
    """The body of a row that computes `add(input, a @ b, beta, alpha)`, which is linear in both arrays."""

    def serves(input: Array, a: Array, b: Array, beta: Scalar = 1, alpha: Scalar = 1) -> bool:
        del beta, alpha
        return _serves_product(a, b) and input.dtype == a.dtype

    def impl(input: Array, a: Array, b: Array, beta: Scalar = 1, alpha: Scalar = 1) -> Array:
        return add(input, multiplied(a, b), beta, alpha)

    def vjp(
        g: Array, out: object, input: Array, a: Array, b: Array, beta: Scalar = 1, alpha: Scalar = 1
    ) -> tuple[Array, ...]:
        del out
        zeros = jnp.zeros_like(input), jnp.zeros_like(g)
        g_input, g_product = jax.vjp(lambda start, product: add(start, product, beta, alpha), *zeros)[1](g)
        return g_input, *_product_vjp(g_product, None, a, b)

    return Native("cpu", serves, impl, vjp)


LINEAR = Native("cpu", _serves_linear, linear, _linear_vjp)
PRODUCT = Native("cpu", _serves_product, _product, _product_vjp)
