"""Scaled dot product attention."""

from __future__ import annotations

from collections.abc import Sequence

import jax
import jax.numpy as jnp

from weft.errors import DTypeError, OutOfRangeError, ShapeError
from weft.ops._attention import DropoutOptions, gradients, operands, scores, softmax
from weft.ops._cudnn import CUDNN
from weft.ops._dims import Factors, PartOf, Sizes, Static, broadcast_shapes, shared_letter
from weft.ops._kernels.attention import ATTENTION, ATTENTION_DROPOUT
from weft.ops._kinds import Array, Arrays, Key
from weft.ops._neural import attention_scale, dropout_mask
from weft.ops._reduce import wide
from weft.ops._table import INTERNAL, LOWERED, NO_DERIVATIVE, OWN_ARITHMETIC, Derivative, Shards, defop
from weft.ops._type_names import c_name


def _check(query: Array, key: Array, value: Array, mask: Array | None) -> None:
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


def _attention_vjp(
    g: Array,
    out: Arrays,
    query: Array,
    key: Array,
    value: Array,
    attn_mask: Array | None,
    is_causal: bool,
    scale: float | None,
) -> tuple[Array | None, ...]:
    attended, logsumexp = out
    return gradients(g, attended, logsumexp, query, key, value, attn_mask, is_causal, attention_scale(query, scale))


def _attention_dims(shapes: Sequence[Sizes], static: Static) -> Factors:
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
    derivative=Derivative(vjp=_attention_vjp, aux=1, name="ScaledDotProductFlashAttentionForCpu"),
    dims=_attention_dims,
    types=LOWERED,
    public=INTERNAL,
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
    _check(query, key, value, attn_mask)
    _check_heads(query, key, value, enable_gqa)
    q, k, v = operands(query, key, value)
    probabilities, logsumexp = softmax(scores(q, k, attn_mask, is_causal, attention_scale(query, scale)))
    return jnp.einsum("...ts,...se->...te", probabilities, v).astype(query.dtype), logsumexp


def _mask_sizes(shapes: Sequence[Sizes], static: Static) -> Sizes:
    """The sizes of the probabilities, of which some are dropped."""
    query, key, *_ = shapes
    shares_heads = static["enable_gqa"] and min(len(query), len(key)) > 2
    batch = (*key[:-3], query[-3]) if shares_heads else key[:-2]
    return (*broadcast_shapes(query[:-2], batch), query[-2], key[-2])


def _attention_dropout_vjp(
    g: Array,
    out: Arrays,
    query: Array,
    key: Array,
    value: Array,
    attn_mask: Array | None,
    dropout_p: float,
    is_causal: bool,
    scale: float | None,
) -> tuple[Array | None, ...]:
    y, logsumexp, kept = out
    factor = attention_scale(query, scale)
    return gradients(
        g, y, logsumexp, query, key, value, attn_mask, is_causal, factor, dropout=DropoutOptions(kept, dropout_p)
    )


@defop(
    derivative=Derivative(vjp=_attention_dropout_vjp, aux=2, name="ScaledDotProductFlashAttentionForCpu"),
    dims=_attention_dims,
    shards=Shards(drawn=_mask_sizes),
    types=LOWERED,
    public=INTERNAL,
    native=[ATTENTION_DROPOUT],
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
    """`attention` with dropout on the probabilities; the last output is which of them are kept."""
    if not 0 <= dropout_p <= 1:
        raise OutOfRangeError(f"dropout probability has to be between 0 and 1, but got {dropout_p}")
    _check(query, key, value, attn_mask)
    _check_heads(query, key, value, enable_gqa)
    q, k, v = operands(query, key, value)
    probabilities, logsumexp = softmax(scores(q, k, attn_mask, is_causal, attention_scale(query, scale)))
    kept = dropout_mask(rng, probabilities.shape, dropout_p)
    y = jnp.einsum("...ts,...se->...te", DropoutOptions(kept, dropout_p).thinned(probabilities), v)
    return y.astype(query.dtype), logsumexp, kept


# --- attention to a part of the keys --------------------------------------------------------------------------


def _block_dims(shapes: Sequence[Sizes], static: Static) -> Factors:
    factors = _attention_dims(shapes, static)
    (out,) = factors.outs
    return Factors(factors.ins, (out, (*out[:-1], "one")), factors.whole)


@defop(
    dims=_block_dims, outputs=("output", "logsumexp"), types=OWN_ARITHMETIC, derivative=NO_DERIVATIVE, public=INTERNAL
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
    _check(query, key, value, None)
    _check_heads(query, key, value, enable_gqa)
    q, k, v = operands(query, key, value)
    of_block = scores(q, k, None, is_causal, attention_scale(query, scale))
    total = jax.nn.logsumexp(of_block, axis=-1, keepdims=True)
    return jnp.einsum("...ts,...se->...te", jnp.exp(of_block - total), v), total


def _block_backward_dims(shapes: Sequence[Sizes], static: Static) -> Factors:
    """Nothing is split: blocks are made of the parts of a sequence that a process already has."""
    factors = _block_dims(shapes[3:], static)
    letters = frozenset(letter for dims in (*factors.ins, *factors.outs) for letter in map(shared_letter, dims))
    return Factors((factors.outs[0], *factors.outs, *factors.ins), factors.ins, letters)


@defop(
    dims=_block_backward_dims,
    outputs=("grad_query", "grad_key", "grad_value"),
    types=OWN_ARITHMETIC,
    derivative=NO_DERIVATIVE,
    public=INTERNAL,
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
    inputs = wide(query), wide(key), wide(value)
    return gradients(grad, output, logsumexp, *inputs, None, is_causal, attention_scale(query, scale))[:3]
