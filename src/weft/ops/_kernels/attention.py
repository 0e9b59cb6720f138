"""Attention without the array of scores, by kernels of our own on the CPU."""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

from __future__ import annotations

from typing import Any

import jax.ffi
import numpy as np

from weft.errors import ShapeError
from weft.ops._kernels.library import Array, is_float32, require_floats, require_shape, struct_like
from weft.ops._native import Native
from weft.ops._neural import are_heads, attention_scale


def _check_attention(operation: str, q: Array, k: Array, v: Array) -> None:
    fits = q.ndim == k.ndim == 4 and q.shape[0] == k.shape[0] and q.shape[3] == k.shape[3] and k.shape == v.shape
    if not fits or (q.shape[1] % k.shape[1] if k.shape[1] else q.shape[1]):
        raise ShapeError(
            f"{operation}: expected (batch, heads, time, features), equal for key and value, with heads of the query a "
            f"multiple of those of the key; got {q.shape}, {k.shape} and {v.shape}"
        )
    require_floats(operation, q, k, v)


def attention(q: Array, k: Array, v: Array, causal: bool, scale: float) -> tuple[Array, Array]:
    """softmax(scale q kᵀ) v, and the logarithm of each row's sum of exponentials (batch, heads, time, 1).

    q is (batch, heads, time, features), k and v (batch, key heads, keys, features); float32. A causal query sees the
    keys up to its own number. No array of time by keys is made.
    """
    _check_attention("attention", q, k, v)
    outs = (struct_like(q.shape, q), struct_like((*q.shape[:3], 1), q))
    out, lse = jax.ffi.ffi_call("weft_attention", outs)(q, k, v, causal=causal, scale=np.float32(scale))
    return out, lse


def attention_backward(
    g: Array, out: Array, lse: Array, q: Array, k: Array, v: Array, causal: bool, scale: float
) -> tuple[Array, Array, Array]:
    """The gradients of `attention`'s q, k and v, from that of its first result; `out` and `lse` are its results."""
    _check_attention("attention_backward", q, k, v)
    require_shape("attention_backward", "the gradient", g, q.shape)
    require_shape("attention_backward", "the output", out, q.shape)
    require_shape("attention_backward", "the logarithms", lse, (*q.shape[:3], 1))
    require_floats("attention_backward", g, out, lse)
    outs = (struct_like(q.shape, q), struct_like(k.shape, q), struct_like(k.shape, q))
    call = jax.ffi.ffi_call("weft_attention_backward", outs)
    dq, dk, dv = call(g, out, lse, q, k, v, causal=causal, scale=np.float32(scale))
    return dq, dk, dv


def _serves_attention(
    query: Array, key: Array, value: Array, attn_mask: Array | None, is_causal: bool, scale: Any, enable_gqa: bool
) -> bool:
    del is_causal, scale
    return attn_mask is None and are_heads(query, key, value, enable_gqa) and is_float32(query, key, value)


def _attention(
    query: Array, key: Array, value: Array, attn_mask: None, is_causal: bool, scale: float | None, *_: Any
) -> tuple[Array, Array]:
    del attn_mask
    return attention(query, key, value, is_causal, attention_scale(query, scale))


def _attention_vjp(
    g: Array,
    out: tuple[Array, Array],
    query: Array,
    key: Array,
    value: Array,
    attn_mask: None,
    is_causal: bool,
    scale: float | None,
    *_: Any,
) -> tuple[Array | None, ...]:
    del attn_mask
    factor = attention_scale(query, scale)
    return (*attention_backward(g, *out, query, key, value, is_causal, factor), None)


ATTENTION = Native("cpu", _serves_attention, _attention, _attention_vjp)
