"""Scaled dot product attention."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp

from weft.errors import DTypeError, OutOfRangeError, ShapeError
from weft.ops._cudnn import CUDNN
from weft.ops._dims import Factors, PartOf, Sizes, broadcast_shapes, shared_letter
from weft.ops._kernels.attention import ATTENTION
from weft.ops._neural import attention_scale, dropout_mask, wide
from weft.ops._table import Arithmetic, Array, Cast, Key, defop
from weft.ops._type_names import c_name


def _repeated(x: Array, heads: int) -> Array:
    """`x` with each head repeated, so that there are `heads` of them."""
    return jnp.repeat(x, heads // x.shape[-3], axis=-3) if heads != x.shape[-3] else x


def _check(query: Array, key: Array, value: Array, mask: Array | None, is_causal: bool) -> None:
    if min(query.ndim, key.ndim, value.ndim) < 2:
        raise ShapeError(
            "Expected query, key, and value to all be  at least 2 dimensional, but got "
            f"query.dim: {query.ndim} key.dim: {key.ndim} and value.dim: {value.ndim} instead."
        )
    if not query.dtype == key.dtype == value.dtype:
        raise DTypeError(
            "Expected query, key, and value to have the same dtype, but got "
            f"query.dtype: {c_name(query)} key.dtype: {c_name(key)} and value.dtype: {c_name(value)} instead."
        )
    if query.shape[-1] != key.shape[-1] or key.shape[-2] != value.shape[-2]:
        raise ShapeError(
            "scaled_dot_product_attention(): query and key must have equally many features, and key and value equally "
            f"many positions, but got query {list(query.shape)}, key {list(key.shape)} and value {list(value.shape)}"
        )
    if mask is None:
        return
    if is_causal:
        raise ShapeError("_scaled_dot_product_attention: Explicit attn_mask should not be set when is_causal=True")
    if mask.dtype not in (jnp.bool_, jnp.float32, query.dtype):
        raise DTypeError(
            "Expected attn_mask dtype to be bool or float or to match query dtype, but got "
            f"attn_mask.dtype: {c_name(mask)} and  query.dtype: {c_name(query)} instead."
        )
    broadcast_shapes((*query.shape[:-1], key.shape[-2]), mask.shape)


def _check_heads(query: Array, key: Array, value: Array, enable_gqa: bool) -> None:
    if enable_gqa and min(query.ndim, key.ndim, value.ndim) > 2:
        heads = query.shape[-3]
        if heads % key.shape[-3] or heads % value.shape[-3]:
            raise ShapeError("Number of heads in key and value must divide the number of heads in query")
        return
    broadcast_shapes(query.shape[:-2], key.shape[:-2], value.shape[:-2])


def _scores(query: Array, key: Array, mask: Array | None, is_causal: bool, scale: float) -> Array:
    """query key' * scale + mask; what is masked is -inf."""
    scores = jnp.einsum("...te,...se->...ts", query * scale, key)
    if is_causal:
        rows = jax.lax.broadcasted_iota(jnp.int32, scores.shape, scores.ndim - 2)
        columns = jax.lax.broadcasted_iota(jnp.int32, scores.shape, scores.ndim - 1)
        return jnp.where(columns <= rows, scores, -jnp.inf)
    if mask is None:
        return scores
    return jnp.where(mask, scores, -jnp.inf) if mask.dtype == jnp.bool_ else scores + mask


def _softmax(scores: Array) -> tuple[Array, Array]:
    """softmax(scores) and log(sum(exp(scores))) (..., time, 1); rows where everything is masked are 0 and -inf."""
    peak = jax.lax.stop_gradient(jnp.max(scores, axis=-1, keepdims=True, initial=-jnp.inf))
    peak = jnp.where(jnp.isfinite(peak), peak, 0)
    weights = jnp.exp(scores - peak)
    total = jnp.sum(weights, axis=-1, keepdims=True)
    return weights / jnp.where(total == 0, 1, total), peak + jnp.log(total)


def _probabilities(query: Array, key: Array, mask: Array | None, is_causal: bool, scale: float) -> Array:
    """softmax(query key' * scale + mask); rows where everything is masked are 0."""
    return _softmax(_scores(query, key, mask, is_causal, scale))[0]


def _again(scores: Array, logsumexp: Array) -> Array:
    """The probabilities, from the scores and the logarithms that the forward pass has left."""
    return jnp.exp(scores - jnp.where(logsumexp == -jnp.inf, 0, logsumexp))


def _summed(g: Array, like: Array) -> Array:
    """Gradient `g` of a broadcast or head-repeated input, summed to the input's shape."""
    if g.ndim > 2 and like.ndim > 2 and g.shape[-3] != like.shape[-3] and like.shape[-3] > 1:
        heads = like.shape[-3]
        g = g.reshape(*g.shape[:-3], heads, g.shape[-3] // heads, *g.shape[-2:]).sum(axis=-3)
    g = g.sum(axis=tuple(range(g.ndim - like.ndim)))
    axes = tuple(d for d in range(g.ndim) if like.shape[d] == 1 and g.shape[d] != 1)
    return g.sum(axis=axes, keepdims=True).astype(like.dtype)


def _operands(query: Array, key: Array, value: Array) -> tuple[Array, Array, Array]:
    """The three inputs in the accumulation type, with keys and values repeated to the number of heads."""
    if query.ndim > 2 and key.ndim > 2 and value.ndim > 2:
        heads = max(query.shape[-3], key.shape[-3], value.shape[-3])
        key, value = _repeated(key, heads), _repeated(value, heads)
    return wide(query), wide(key), wide(value)


def _over_time(scores: Array, x: Array) -> Array:
    """scores' x. XLA:CPU copies the first factor of a product to transpose it. So the product is written with x first,
    which is smaller: twice as fast where there are four times as many positions as features.
    """
    return jnp.swapaxes(jnp.einsum("...te,...ts->...es", x, scores), -1, -2)


def _gradients(
    g: Array,
    out: Array,
    probabilities: Array,
    thin: Callable[[Array], Array],
    query: Array,
    key: Array,
    value: Array,
    mask: Array | None,
    scale: float,
) -> tuple[Array | None, ...]:
    """Gradients of query, key, value and mask; `thin` applies the dropout, or does nothing.

    The derivative of the softmax needs sum(dP * P). That equals sum(g * out), which is cheaper
    (https://arxiv.org/abs/2205.14135).
    """
    q, k, v = _operands(query, key, value)
    g, out = wide(g), wide(out)
    g_value = _over_time(thin(probabilities), g)
    g_weights = thin(jnp.einsum("...te,...se->...ts", g, v))
    g_scores = probabilities * (g_weights - jnp.sum(g * out, axis=-1, keepdims=True))
    g_query = jnp.einsum("...ts,...se->...te", g_scores, k) * scale
    g_key = _over_time(g_scores, q) * scale
    g_mask = None
    if mask is not None and mask.dtype != jnp.bool_:
        g_mask = _summed(g_scores, mask)
    return _summed(g_query, query), _summed(g_key, key), _summed(g_value, value), g_mask


def _attention_vjp(
    g: Array,
    out: Any,
    query: Array,
    key: Array,
    value: Array,
    attn_mask: Array | None = None,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> tuple[Array | None, ...]:
    del enable_gqa
    y, logsumexp = out
    q, k, _ = _operands(query, key, value)
    probabilities = _again(_scores(q, k, attn_mask, is_causal, attention_scale(query, scale)), logsumexp)
    return _gradients(g, y, probabilities, lambda p: p, query, key, value, attn_mask, attention_scale(query, scale))


def _attention_dims(shapes: Sequence[Sizes], static: Mapping[str, Any]) -> Factors:
    """Batch dims may be split, and heads unless several query heads share a key head; time and features are whole.

    The result has the names of the query, but for its last dim, which is the value's.
    """
    query, key, value, *mask = shapes
    lead = tuple(range(len(query) - 2))
    ndim = len(query)
    whole = {"s", "e", "v", "t"} | ({len(lead) - 1} if static.get("enable_gqa") else set())
    shared = (*lead[:-1], PartOf(lead[-1])) if static.get("enable_gqa") and lead else lead
    met = PartOf("e")
    masks = tuple(((*lead, "t", "s")[ndim - len(m) :]) for m in mask)
    ins = (
        (*lead, "t", met),
        (*shared[len(lead) - len(key) + 2 :], "s", met),
        (*shared[len(lead) - len(value) + 2 :], "s", "v"),
        *masks,
    )
    return Factors(ins, ((*lead, "t", "v"),), frozenset(whole))


@defop(
    grad_name="ScaledDotProductFlashAttentionForCpu",
    dims=_attention_dims,
    cast=Cast.LOWER,
    aux=1,
    vjp=_attention_vjp,
    function=False,
    method=False,
    native=[CUDNN, ATTENTION],
)
def attention(
    query: Array,
    key: Array,
    value: Array,
    attn_mask: Array | None = None,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> tuple[Array, Array]:
    """softmax(query key' * scale + mask) value over the last two dims (time, features).

    `scale` defaults to 1 / sqrt(features). The second output is log(sum(exp(scores))) (..., time, 1), from which the
    derivative computes the probabilities again: they need not be kept.
    """
    _check(query, key, value, attn_mask, is_causal)
    _check_heads(query, key, value, enable_gqa)
    q, k, v = _operands(query, key, value)
    probabilities, logsumexp = _softmax(_scores(q, k, attn_mask, is_causal, attention_scale(query, scale)))
    return jnp.einsum("...ts,...se->...te", probabilities, v).astype(query.dtype), logsumexp


def _mask_sizes(shapes: Sequence[Sizes], static: Mapping[str, Any]) -> Sizes:
    """The sizes of the probabilities, of which some are dropped."""
    query, key, *_ = shapes
    shares_heads = static["enable_gqa"] and min(len(query), len(key)) > 2
    batch = (*key[:-3], query[-3]) if shares_heads else key[:-2]
    return (*broadcast_shapes(query[:-2], batch), query[-2], key[-2])


def _dropped(kept: Array, p: float) -> Callable[[Array], Array]:
    return lambda x: jnp.where(kept, x * (0.0 if p >= 1 else 1 / (1 - p)), jnp.zeros_like(x))


def _attention_dropout_vjp(
    g: Array,
    out: Any,
    query: Array,
    key: Array,
    value: Array,
    attn_mask: Array | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
    *,
    rng: Key,
) -> tuple[Array | None, ...]:
    del rng, is_causal, enable_gqa
    y, probabilities, kept = out
    thin = _dropped(kept, dropout_p)
    return _gradients(g, y, probabilities, thin, query, key, value, attn_mask, attention_scale(query, scale))


@defop(
    grad_name="ScaledDotProductFlashAttentionForCpu",
    dims=_attention_dims,
    drawn=_mask_sizes,
    cast=Cast.LOWER,
    aux=2,
    vjp=_attention_dropout_vjp,
    function=False,
    method=False,
)
def attention_dropout(
    query: Array,
    key: Array,
    value: Array,
    attn_mask: Array | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
    *,
    rng: Key,
) -> tuple[Array, Array, Array]:
    """`attention` with dropout on the probabilities. The other outputs are the probabilities and the dropout mask."""
    if not 0 <= dropout_p <= 1:
        raise OutOfRangeError(f"dropout probability has to be between 0 and 1, but got {dropout_p}")
    _check(query, key, value, attn_mask, is_causal)
    _check_heads(query, key, value, enable_gqa)
    q, k, v = _operands(query, key, value)
    probabilities = _probabilities(q, k, attn_mask, is_causal, attention_scale(query, scale))
    kept = dropout_mask(rng, probabilities.shape, dropout_p)
    y = jnp.einsum("...ts,...se->...te", _dropped(kept, dropout_p)(probabilities), v)
    return y.astype(query.dtype), probabilities, kept


# --- attention to a part of the keys --------------------------------------------------------------------------


def _block_dims(shapes: Sequence[Sizes], static: Mapping[str, Any]) -> Factors:
    factors = _attention_dims(shapes, static)
    (out,) = factors.outs
    return Factors(factors.ins, (out, (*out[:-1], "one")), factors.whole)


@defop(
    dims=_block_dims,
    outputs=("output", "logsumexp"),
    arithmetic=Arithmetic.OWN,
    differentiable=False,
    function=False,
    method=False,
)
def attention_block(
    query: Array,
    key: Array,
    value: Array,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> tuple[Array, Array]:
    """Attention to some of the keys, in the accumulation type, and log(sum(exp(scores))) over them (..., time, 1).

    Attention to all keys is the sum of such blocks, each times exp(its logarithm - that over all keys).
    """
    _check(query, key, value, None, is_causal)
    _check_heads(query, key, value, enable_gqa)
    q, k, v = _operands(query, key, value)
    scores = _scores(q, k, None, is_causal, attention_scale(query, scale))
    total = jax.nn.logsumexp(scores, axis=-1, keepdims=True)
    return jnp.einsum("...ts,...se->...te", jnp.exp(scores - total), v), total


def _block_backward_dims(shapes: Sequence[Sizes], static: Mapping[str, Any]) -> Factors:
    """Nothing is split: blocks are made of the parts of a sequence that a process already has."""
    factors = _block_dims(shapes[3:], static)
    letters = frozenset(letter for dims in (*factors.ins, *factors.outs) for letter in map(shared_letter, dims))
    return Factors((factors.outs[0], *factors.outs, *factors.ins), factors.ins, letters)


@defop(
    dims=_block_backward_dims,
    outputs=("grad_query", "grad_key", "grad_value"),
    arithmetic=Arithmetic.OWN,
    differentiable=False,
    function=False,
    method=False,
)
def attention_block_backward(
    grad: Array,
    output: Array,
    logsumexp: Array,
    query: Array,
    key: Array,
    value: Array,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> tuple[Array | None, ...]:
    """What some of the keys contribute to the gradients of attention to all keys, in the accumulation type.

    `grad`, `output` and `logsumexp` are those over all keys; the probabilities are computed from the last again.
    """
    del enable_gqa
    q, k, _ = _operands(query, key, value)
    probabilities = _again(_scores(q, k, None, is_causal, attention_scale(query, scale)), logsumexp)
    inputs = wide(query), wide(key), wide(value)
    return _gradients(grad, output, probabilities, lambda p: p, *inputs, None, attention_scale(query, scale))[:3]
