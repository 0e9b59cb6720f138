"""The formulas of attention and of its gradients, over the whole array of scores."""

# pyright: reportUnknownMemberType=false

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp

from weft.ops._kinds import Array
from weft.ops._reduce import wide


class DropoutOptions(NamedTuple):
    """Which of the weights are kept, and the probability with which one is dropped."""

    kept: Array
    p: float

    @property
    def factor(self) -> float:
        """What the weights that are kept are multiplied by."""
        return 0.0 if self.p >= 1 else 1 / (1 - self.p)

    def thinned(self, weights: Array) -> Array:
        return jnp.where(self.kept, weights * self.factor, jnp.zeros_like(weights))


def operands(query: Array, key: Array, value: Array) -> tuple[Array, Array, Array]:
    """The three inputs in the accumulation type, with keys and values repeated to the number of heads."""
    if query.ndim > 2 and key.ndim > 2 and value.ndim > 2:
        heads = max(query.shape[-3], key.shape[-3], value.shape[-3])
        key, value = _repeated(key, heads), _repeated(value, heads)
    return wide(query), wide(key), wide(value)


def _repeated(x: Array, heads: int) -> Array:
    """`x` with each head repeated, so that there are `heads` of them."""
    return jnp.repeat(x, heads // x.shape[-3], axis=-3) if heads != x.shape[-3] else x


def scores(query: Array, key: Array, mask: Array | None, is_causal: bool, scale: float) -> Array:
    """query key' * scale + mask; what is masked is -inf."""
    scores = jnp.einsum("...te,...se->...ts", query * scale, key)
    if is_causal:
        rows = jax.lax.broadcasted_iota(jnp.int32, scores.shape, scores.ndim - 2)
        columns = jax.lax.broadcasted_iota(jnp.int32, scores.shape, scores.ndim - 1)
        scores = jnp.where(columns <= rows, scores, -jnp.inf)
    if mask is None:
        return scores
    return jnp.where(mask, scores, -jnp.inf) if mask.dtype == jnp.bool_ else scores + mask


def softmax(scores: Array) -> tuple[Array, Array]:
    """softmax(scores) and log(sum(exp(scores))) (..., time, 1); rows where everything is masked are 0 and -inf."""
    peak = jax.lax.stop_gradient(jnp.max(scores, axis=-1, keepdims=True, initial=-jnp.inf))
    peak = jnp.where(jnp.isfinite(peak), peak, 0)
    weights = jnp.exp(scores - peak)
    total = jnp.sum(weights, axis=-1, keepdims=True)
    return weights / jnp.where(total == 0, 1, total), peak + jnp.log(total)


def again(scores: Array, logsumexp: Array) -> Array:
    """The probabilities, from the scores and the logarithms that the forward pass has left."""
    return jnp.exp(scores - jnp.where(logsumexp == -jnp.inf, 0, logsumexp))


def _over_time(scores: Array, x: Array) -> Array:
    """scores' x. XLA:CPU copies the first factor of a product to transpose it. So the product is written with x first,
    which is smaller: twice as fast where there are four times as many positions as features.
    """
    return jnp.swapaxes(jnp.einsum("...te,...ts->...es", x, scores), -1, -2)


def gradients(
    g: Array,
    out: Array,
    logsumexp: Array,
    query: Array,
    key: Array,
    value: Array,
    mask: Array | None,
    is_causal: bool,
    scale: float,
    dropout: DropoutOptions | None = None,
) -> tuple[Array | None, ...]:
    """Gradients of query, key, value and mask, from the results of the forward pass and the gradient of the first.

    The derivative of the softmax needs sum(dP * P). That equals sum(g * out), which is cheaper
    (https://arxiv.org/abs/2205.14135).
    """
    q, k, v = operands(query, key, value)
    g, out = wide(g), wide(out)
    probabilities = again(scores(q, k, mask, is_causal, scale), logsumexp)
    thinned = probabilities if dropout is None else dropout.thinned(probabilities)
    g_value = _over_time(thinned, g)
    g_weights = jnp.einsum("...te,...se->...ts", g, v)
    if dropout is not None:
        g_weights = dropout.thinned(g_weights)
    g_scores = probabilities * (g_weights - jnp.sum(g * out, axis=-1, keepdims=True))
    g_query = jnp.einsum("...ts,...se->...te", g_scores, k) * scale
    g_key = _over_time(g_scores, q) * scale
    g_mask = None
    if mask is not None and mask.dtype != jnp.bool_:
        g_mask = _summed(g_scores, mask)
    return _summed(g_query, query), _summed(g_key, key), _summed(g_value, value), g_mask


def _summed(g: Array, like: Array) -> Array:
    """Gradient `g` of a broadcast or head-repeated input, summed to the input's shape."""
    if g.ndim > 2 and like.ndim > 2 and g.shape[-3] != like.shape[-3] and like.shape[-3] > 1:
        heads = like.shape[-3]
        g = g.reshape(*g.shape[:-3], heads, g.shape[-3] // heads, *g.shape[-2:]).sum(axis=-3)
    g = g.sum(axis=tuple(range(g.ndim - like.ndim)))
    axes = tuple(d for d in range(g.ndim) if like.shape[d] == 1 and g.shape[d] != 1)
    return g.sum(axis=axes, keepdims=True).astype(like.dtype)
