"""Attention without the array of scores, by kernels of our own on the CPU."""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import jax.ffi
import jax.numpy as jnp
import numpy as np

from weft.errors import ShapeError
from weft.ops._attention import DropoutOptions, gradients
from weft.ops._kernels.library import Array, is_float32, require_floats, require_shape, struct_like
from weft.ops._native import Native
from weft.ops._neural import attention_scale, dropout_mask

_TASKS = 32  # of the backward pass: at least so many, as far as there are keys, for as many cores
_KEYS = 256  # of a task of the backward pass: at least so many, since each has a sum of its own of the query's gradient


def _check_attention(operation: str, q: Array, k: Array, v: Array, mask: Array | None, kept: Array | None) -> None:
    fits = q.ndim == k.ndim == v.ndim == 4 and q.shape[0] == k.shape[0] and q.shape[3] == k.shape[3]
    if not fits or k.shape[:3] != v.shape[:3] or (q.shape[1] % k.shape[1] if k.shape[1] else q.shape[1]):
        raise ShapeError(
            f"{operation}: expected (batch, heads, time, features), the features equal for query and key, all else for "
            f"key and value, with heads of the query a multiple of those of the key; got {q.shape}, {k.shape} and "
            f"{v.shape}"
        )
    scores = (*q.shape[:3], k.shape[2])
    if mask is not None and not (mask.ndim == 4 and all(map(_fits, mask.shape, scores))):
        raise ShapeError(f"{operation}: the mask has shape {mask.shape}, which does not broadcast to {scores}")
    if kept is not None:
        require_shape(operation, "the array of weights that are kept", kept, scores)
    require_floats(operation, q, k, v, *(() if mask is None or mask.dtype == jnp.bool_ else (mask,)))


def _fits(size: int, whole: int) -> bool:
    return size in (1, whole)


def _or_empty(array: Array | None) -> Array:
    """The array, or one without elements, which stands for none."""
    return jnp.zeros((0,), jnp.bool_) if array is None else array


def attention(
    q: Array,
    k: Array,
    v: Array,
    causal: bool,
    scale: float,
    mask: Array | None = None,
    kept: Array | None = None,
    kept_factor: float = 1.0,
) -> tuple[Array, Array]:
    """softmax(scale q kᵀ + mask) v, and the logarithm of each row's sum of exponentials (batch, heads, time, 1).

    q is (batch, heads, time, features), k (batch, key heads, keys, features) and v (batch, key heads, keys, value
    features); float32. A causal query sees the keys up to its own number. `mask` is 4-D and broadcasts to the scores
    (batch, heads, time, keys): float32, or bool and true where a key is seen. Rows in which none is are 0. `kept` has
    the shape of the scores: where it is false the weight is dropped, others are multiplied by `kept_factor`. No array
    of time by keys is made.
    """
    _check_attention("attention", q, k, v, mask, kept)
    outs = (struct_like((*q.shape[:3], v.shape[3]), q), struct_like((*q.shape[:3], 1), q))
    call = jax.ffi.ffi_call("weft_attention", outs)
    factors = {"scale": np.float32(scale), "kept_factor": np.float32(kept_factor)}
    out, lse = call(q, k, v, _or_empty(mask), _or_empty(kept), causal=causal, **factors)
    return out, lse


def attention_backward(
    g: Array,
    out: Array,
    lse: Array,
    q: Array,
    k: Array,
    v: Array,
    causal: bool,
    scale: float,
    mask: Array | None = None,
    kept: Array | None = None,
    kept_factor: float = 1.0,
) -> tuple[Array, Array, Array]:
    """The gradients of `attention`'s q, k and v, from that of its first result; `out` and `lse` are its results."""
    _check_attention("attention_backward", q, k, v, mask, kept)
    require_shape("attention_backward", "the gradient", g, (*q.shape[:3], v.shape[3]))
    require_shape("attention_backward", "the output", out, g.shape)
    require_shape("attention_backward", "the logarithms", lse, (*q.shape[:3], 1))
    require_floats("attention_backward", g, out, lse)
    # Queries' gradients are added up over parts of the keys, so that few heads also keep all cores busy. The number
    # depends on sizes alone, never on threads: the bits must not.
    parts = min(-(-_TASKS // max(1, k.shape[0] * k.shape[1])), max(1, k.shape[2] // _KEYS))
    outs = (struct_like((parts, *q.shape), q), struct_like(k.shape, q), struct_like(v.shape, q))
    call = jax.ffi.ffi_call("weft_attention_backward", outs)
    factors = {"scale": np.float32(scale), "kept_factor": np.float32(kept_factor)}
    dqs, dk, dv = call(q, k, v, _or_empty(mask), _or_empty(kept), g, out, lse, causal=causal, **factors)
    return jnp.sum(dqs, axis=0), dk, dv


# --- the native bodies of the rows ----------------------------------------------------------------------------


def _heads(shape: Sequence[int]) -> tuple[int, ...]:
    """A shape (..., heads, time, features) with all dims before the heads as one, or with 1 for dims that it lacks."""
    *batch, heads, time, features = (1,) * (3 - len(shape)) + tuple(shape)
    return math.prod(batch), heads, time, features


def _mask_shape(mask: Array, ndim: int) -> tuple[int, ...]:
    return (1,) * (ndim - mask.ndim) + mask.shape


def _serves(query: Array, key: Array, value: Array, mask: Array | None, enable_gqa: bool) -> bool:
    """float32, none empty, with equal batch dims; a mask has all of these or broadcasts over all."""
    ndim = query.ndim
    if not ndim == key.ndim == value.ndim or not (query.size and key.size and value.size):
        return False
    (batch, heads, queries, features), (_, shared, keys, key_features) = _heads(query.shape), _heads(key.shape)
    grouped = shared in (1, heads) or (enable_gqa and heads % shared == 0)
    fits = query.shape[:-3] == key.shape[:-3] and key.shape[:-1] == value.shape[:-1] and features == key_features
    if not (grouped and fits and is_float32(query, key, value)):
        return False
    if mask is None:
        return True
    if mask.ndim > ndim or mask.dtype not in (jnp.bool_, jnp.float32):
        return False
    shape = _mask_shape(mask, ndim)
    batches = math.prod(shape[:-3]) == 1 or shape[:-3] == query.shape[:-3]
    return batches and all(map(_fits, _heads(shape), (batch, heads, queries, keys)))


def _serves_attention(query: Array, key: Array, value: Array, attn_mask: Array | None, enable_gqa: bool) -> bool:
    return _serves(query, key, value, attn_mask, enable_gqa)


def _serves_dropout(query: Array, key: Array, value: Array, attn_mask: Array | None, enable_gqa: bool) -> bool:
    return _serves(query, key, value, attn_mask, enable_gqa)


def _masks(query: Array, mask: Array | None, dropout: DropoutOptions | None) -> dict[str, Any]:
    """The arguments of the kernels for a mask and for dropout."""
    arguments: dict[str, Any] = {}
    if mask is not None:
        arguments["mask"] = mask.reshape(_heads(_mask_shape(mask, query.ndim)))
    if dropout is not None:
        arguments |= {"kept": dropout.kept.reshape(_heads(dropout.kept.shape)), "kept_factor": dropout.factor}
    return arguments


def _attention(
    query: Array,
    key: Array,
    value: Array,
    attn_mask: Array | None,
    is_causal: bool,
    scale: float | None,
    *_: object,
    dropout: DropoutOptions | None = None,
) -> tuple[Array, Array]:
    q, k, v = (x.reshape(_heads(x.shape)) for x in (query, key, value))
    masks = _masks(query, attn_mask, dropout)
    out, lse = attention(q, k, v, is_causal, attention_scale(query, scale), **masks)
    time = query.shape[:-1]
    return out.reshape((*time, value.shape[-1])), lse.reshape((*time, 1))


def _attention_vjp(
    g: Array,
    out: tuple[Array, Array],
    query: Array,
    key: Array,
    value: Array,
    attn_mask: Array | None,
    is_causal: bool,
    scale: float | None,
    *_: object,
    dropout: DropoutOptions | None = None,
) -> tuple[Array | None, ...]:
    attended, logsumexp = out
    factor = attention_scale(query, scale)
    g_out, y, lse, q, k, v = (x.reshape(_heads(x.shape)) for x in (g, attended, logsumexp, query, key, value))
    results = attention_backward(g_out, y, lse, q, k, v, is_causal, factor, **_masks(query, attn_mask, dropout))
    g_mask = None
    if attn_mask is not None and attn_mask.dtype != jnp.bool_:
        # The formula needs all scores. Where no gradient of the mask is wanted, XLA leaves it out.
        g_mask = gradients(g, attended, logsumexp, query, key, value, attn_mask, is_causal, factor, dropout)[3]
    return (*(g.reshape(x.shape) for g, x in zip(results, (query, key, value), strict=True)), g_mask)


def _attention_dropout(
    query: Array,
    key: Array,
    value: Array,
    attn_mask: Array | None,
    dropout_p: float,
    is_causal: bool,
    scale: float | None,
    rng: Any,
) -> tuple[Array, Array, Array]:
    dropout = DropoutOptions(dropout_mask(rng, (*query.shape[:-1], key.shape[-2]), dropout_p), dropout_p)
    return *_attention(query, key, value, attn_mask, is_causal, scale, dropout=dropout), dropout.kept


def _attention_dropout_vjp(
    g: Array,
    out: tuple[Array, Array, Array],
    query: Array,
    key: Array,
    value: Array,
    attn_mask: Array | None,
    dropout_p: float,
    is_causal: bool,
    scale: float | None,
) -> tuple[Array | None, ...]:
    y, logsumexp, kept = out
    dropout = DropoutOptions(kept, dropout_p)
    return _attention_vjp(g, (y, logsumexp), query, key, value, attn_mask, is_causal, scale, dropout=dropout)


ATTENTION = Native("cpu", _serves_attention, _attention, _attention_vjp)
ATTENTION_DROPOUT = Native("cpu", _serves_dropout, _attention_dropout, _attention_dropout_vjp)
