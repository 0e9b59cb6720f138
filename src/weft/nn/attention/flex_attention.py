"""Attention whose scores and mask are given as functions of positions."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import NamedTuple

from weft._base.dtype import float32
from weft._base.site import warn_user
from weft._tensor.composite.pointwise import where
from weft._tensor.composite.query import promote_types
from weft._tensor.tensor import Tensor
from weft.errors import SettingError, UnsupportedShapeError, ValueRangeError
from weft.nn.attention._block_mask import DEFAULT_SPARSE_BLOCK_SIZE, MaskMod, ScoreMod, indices, sliced_mask_mod
from weft.nn.attention._block_mask import BlockMask as BlockMask
from weft.nn.attention._block_mask import and_masks as and_masks
from weft.nn.attention._block_mask import create_block_mask as create_block_mask
from weft.nn.attention._block_mask import create_mask as create_mask
from weft.nn.attention._block_mask import noop_mask as noop_mask
from weft.nn.attention._block_mask import or_masks as or_masks

# the names under which libraries import them
_DEFAULT_SPARSE_BLOCK_SIZE, _mask_mod_signature, _score_mod_signature = DEFAULT_SPARSE_BLOCK_SIZE, MaskMod, ScoreMod


class AuxRequest(NamedTuple):
    """Which further results `flex_attention` returns."""

    lse: bool = False
    max_scores: bool = False


class AuxOutput(NamedTuple):
    """The further results, each (batch, heads, queries) in float32 or wider: log-sum-exp and maximum of the scores."""

    lse: Tensor | None = None
    max_scores: Tensor | None = None


def flex_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    score_mod: ScoreMod | None = None,
    block_mask: BlockMask | None = None,
    scale: float | None = None,
    enable_gqa: bool = False,
    return_lse: bool = False,
    kernel_options: Mapping[str, object] | None = None,
    *,
    return_aux: AuxRequest | None = None,
) -> Tensor | tuple[Tensor, AuxOutput] | tuple[Tensor, Tensor | None]:
    """Attended values (batch, heads, queries, features of values), computed in float32 or wider.

    `query` is (batch, heads, queries, features), `key` and `value` (batch, heads, keys, …); with `enable_gqa`, several
    heads of queries share one of keys. `score_mod(scores, batch, head, q_idx, kv_idx)` gives the scores to take the
    softmax of, and pairs that `block_mask` hides have none. Rows that see no key are zero.

    Both functions are called once, on all pairs: the positions are int32 tensors that broadcast to (batch, heads,
    queries, keys), each with elements along one dim, and the scores have this shape. PyTorch maps the functions over
    single pairs, which is the same for all that work element by element, such as `bias[head, q_idx - kv_idx]`.
    Functions that index in two steps, `ids[batch][q_idx]`, are to index in one: `ids[batch, q_idx]`. Gradients flow to
    tensors that the functions use.

    Also returns the log-sum-exp of the scores with `return_lse`, and `AuxOutput` with `return_aux`. `kernel_options`
    are for PyTorch's kernels, and have no effect.
    """
    del kernel_options
    _check(query, key, value, enable_gqa)
    if return_lse and return_aux is not None:
        raise ValueRangeError("Cannot specify both return_lse and return_aux; give return_aux=AuxRequest(lse=True)")
    scores = _scores(query, key, score_mod, block_mask, scale)  # (batch, heads, queries, keys)
    sees_none = (scores == -math.inf).all(-1, keepdim=True)
    scores = where(sees_none, 0.0, scores)
    weights = where(sees_none, 0.0, scores.softmax(-1))
    output = (weights @ _shared(value, query).to(scores.dtype)).to(query.dtype)
    if return_aux is not None:
        return output, _further(scores, sees_none, return_aux)
    if return_lse:
        warn_user("return_lse is deprecated; please use return_aux=AuxRequest(lse=True) instead.")
        return output, _further(scores, sees_none, AuxRequest(lse=True)).lse
    return output


def _check(query: Tensor, key: Tensor, value: Tensor, enable_gqa: bool) -> None:
    if not query.ndim == key.ndim == value.ndim == 4:
        dims = [x.ndim for x in (query, key, value)]
        raise UnsupportedShapeError(f"NYI: query, key, and value must be 4D tensors, got {dims} dims")
    if not query.dtype is key.dtype is value.dtype:
        raise ValueRangeError(
            f"Expected query, key, and value to have the same dtype, but got query.dtype: {query.dtype}, key.dtype: "
            f"{key.dtype}, and value.dtype: {value.dtype} instead."
        )
    heads, key_heads = query.shape[1], key.shape[1]
    if not enable_gqa and heads != key_heads:
        raise ValueRangeError(
            f"Expect query and key/value to have the same number of heads but got Hq={heads} and Hkv={key_heads}. Try "
            "setting enable_gqa=True for GQA."
        )
    if heads % key_heads:
        raise ValueRangeError(
            f"Expect number of query heads to be a multiple of kv heads for GQA but got Hq={heads} and Hkv={key_heads}."
        )
    if key.shape[0] not in (1, query.shape[0]):
        raise ValueRangeError(
            "Expect query and key/value to have the same batch size, but got "
            f"Bq={query.shape[0]}, and Bkv={key.shape[0]}."
        )


def _shared(x: Tensor, query: Tensor) -> Tensor:
    """Keys or values with as many heads as the queries."""
    return x if x.shape[1] == query.shape[1] else x.repeat_interleave(query.shape[1] // x.shape[1], 1)


def _scores(
    query: Tensor, key: Tensor, score_mod: ScoreMod | None, block_mask: BlockMask | None, scale: float | None
) -> Tensor:
    products = query @ _shared(key, query).transpose(-2, -1)
    wide = promote_types(query.dtype, float32)
    scores = products.to(wide) * (query.shape[-1] ** -0.5 if scale is None else scale)
    batch, heads, queries, keys = scores.shape
    positions = indices(batch, heads, queries, keys, query.device)
    if score_mod is not None:
        scores = score_mod(scores, *positions).to(wide)
    if block_mask is not None:
        _check_lengths(block_mask, queries, keys)
        scores = where(block_mask.mask_mod(*positions), scores, -math.inf)
    return scores


def _check_lengths(block_mask: BlockMask, queries: int, keys: int) -> None:
    if block_mask.mask_mod is sliced_mask_mod:
        raise SettingError("Cannot use mask_mod from a sliced BlockMask")
    if block_mask.seq_lengths != (queries, keys):
        raise ValueRangeError(
            f"block_mask was created for block_mask.shape={block_mask.shape} but got q_len={queries} and kv_len={keys}."
            " Create a block mask for these lengths; the upper left part of this one is "
            "block_mask._adjust(q_len, kv_len)."
        )


def _further(scores: Tensor, sees_none: Tensor, request: AuxRequest) -> AuxOutput:
    hidden = sees_none.squeeze(-1)
    lse = where(hidden, -math.inf, scores.logsumexp(-1)) if request.lse else None
    largest = where(hidden, -math.inf, scores.detach().amax(-1)) if request.max_scores else None
    return AuxOutput(lse, largest)
