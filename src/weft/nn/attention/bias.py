"""Causal masks for queries and keys of different lengths, as PyTorch names them."""

from __future__ import annotations

from enum import IntEnum
from typing import Any, Self

from weft._base.dtype import bool_
from weft._base.guards import is_a
from weft._tensor.composite.create import ones
from weft._tensor.overriding import disabled
from weft._tensor.tensor import Tensor
from weft.errors import PreconditionError


class CausalVariant(IntEnum):
    """Whether query i sees the keys up to i, or up to i + keys - queries, so that the last query sees all."""

    UPPER_LEFT = 1
    LOWER_RIGHT = 2


class CausalBias(Tensor):
    """A bool mask (queries, keys) for `attn_mask` of `scaled_dot_product_attention`: true where a query sees a key."""

    __torch_function__ = disabled

    variant: CausalVariant
    seq_len_q: int
    seq_len_kv: int

    def __new__(cls, variant: CausalVariant, seq_len_q: int, seq_len_kv: int) -> Self:
        """A mask of this variant."""
        if not is_a(variant, CausalVariant):
            raise PreconditionError(f"variant must be CausalVariant, got {type(variant)}")
        offset = seq_len_kv - seq_len_q if variant is CausalVariant.LOWER_RIGHT else 0
        mask: Any = ones(seq_len_q, seq_len_kv, dtype=bool_).tril(offset).as_subclass(cls)
        mask.variant, mask.seq_len_q, mask.seq_len_kv = variant, seq_len_q, seq_len_kv
        return mask

    def __init__(self, variant: CausalVariant, seq_len_q: int, seq_len_kv: int) -> None:
        """Nothing is left to do: `__new__` has made the mask."""

    def __repr__(self) -> str:
        return repr(self.as_subclass(Tensor))


def causal_upper_left(*size: int) -> CausalBias:
    """The mask of `is_causal=True`: query i sees the keys up to i. `size` is (queries, keys)."""
    return CausalBias(CausalVariant.UPPER_LEFT, *_lengths("causal_upper_left", size))


def causal_lower_right(*size: int) -> CausalBias:
    """The mask with which the last query sees all keys, as in decoding. `size` is (queries, keys)."""
    return CausalBias(CausalVariant.LOWER_RIGHT, *_lengths("causal_lower_right", size))


def _lengths(function: str, size: tuple[int, ...]) -> tuple[int, int]:
    if len(size) != 2:
        raise PreconditionError(f"{function} only supports 2D tensors; give (queries, keys), got {size}")
    return size
