"""cuDNN's attention, on NVIDIA's GPUs: linear in memory, since no array of scores is made."""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp

from weft.ops._jax import vjp
from weft.ops._kinds import Array
from weft.ops._native import Native

_MOST_FEATURES = 128  # of a head, on every GPU that has this kernel
_HALVES = (jnp.float16, jnp.bfloat16)


def _are_heads(query: Array, key: Array, value: Array, enable_gqa: bool) -> bool:
    """Whether all are (batch, heads, time, features), as the kernel takes them: not empty, of equal features.

    Several heads of the query may share one of the key.
    """
    if not query.ndim == key.ndim == 4 or key.shape != value.shape or not (query.size and key.size):
        return False
    (batch, heads, _, features), shared = query.shape, key.shape[1]
    grouped = heads == shared or (enable_gqa and heads % shared == 0)
    return grouped and key.shape[0] == batch and key.shape[3] == features


def _serves(query: Array, key: Array, value: Array, attn_mask: Array | None, is_causal: bool, enable_gqa: bool) -> bool:
    """16-bit floats (batch, heads, time, features), without a mask, as the kernel takes them."""
    features = query.shape[-1]
    fits = query.dtype in _HALVES and features % 8 == 0 and features <= _MOST_FEATURES and attn_mask is None
    return fits and _are_heads(query, key, value, enable_gqa) and (not is_causal or query.shape[2] == key.shape[2])


def _attend(query: Array, key: Array, value: Array, is_causal: bool, scale: float | None) -> tuple[Array, Array]:
    q, k, v = (jnp.swapaxes(x, 1, 2) for x in (query, key, value))
    out, logsumexp = jax.nn.dot_product_attention(
        q, k, v, is_causal=is_causal, scale=scale, implementation="cudnn", return_residual=True
    )
    return jnp.swapaxes(out, 1, 2), logsumexp


def _forward(query: Array, key: Array, value: Array, is_causal: bool, scale: float | None) -> tuple[Array, Array]:
    """The outputs, by the kernel that the derivative computes them with: XLA finds that the two calls are equal.

    jax rounds the logarithms to 16 bits. Only derivatives of the derivative read them.
    """
    out, logsumexp = vjp(partial(_attend, is_causal=is_causal, scale=scale), query, key, value)[0]
    return out, jnp.swapaxes(logsumexp, 1, 2).astype(jnp.float32)[..., None]


def _backward(
    g: Array, query: Array, key: Array, value: Array, is_causal: bool, scale: float | None
) -> tuple[Array | None, ...]:
    (_, logsumexp), pull = vjp(partial(_attend, is_causal=is_causal, scale=scale), query, key, value)
    return (*pull((g, jnp.zeros_like(logsumexp))), None)


CUDNN = Native("cuda", _serves, _forward, _backward)
