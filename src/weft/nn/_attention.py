"""Multi-head attention."""

from __future__ import annotations

import math
from typing import Any

from weft._base.dtype import bool_
from weft._tensor.spelling import op
from weft._tensor.tensor import Tensor
from weft.errors import DTypeError, ShapeError
from weft.nn import functional as F
from weft.nn import init
from weft.nn._linear import Linear, fresh
from weft.nn._module import Module


class NonDynamicallyQuantizableLinear(Linear):
    """A `Linear` under the name that PyTorch prints for the output projection."""


class MultiheadAttention(Module):
    """Attention of queries to keys in several learnt projections.

    Queries are (length, batch, embed_dim), or (batch, length, embed_dim) if `batch_first`, or without a batch. The
    three input projections are one weight `in_proj_weight`, or three where keys or values have their own size.
    """

    def __init__(
        self, embed_dim: int, num_heads: int, dropout: float = 0.0, bias: bool = True, add_bias_kv: bool = False,
        add_zero_attn: bool = False, kdim: int | None = None, vdim: int | None = None, batch_first: bool = False,
        device: Any = None, dtype: Any = None,
    ) -> None:  # fmt: skip
        super().__init__()
        if embed_dim <= 0 or num_heads <= 0:
            raise ShapeError(
                f"embed_dim and num_heads must be greater than 0, got embed_dim={embed_dim} and num_heads={num_heads} "
                "instead"
            )
        if embed_dim % num_heads:
            raise ShapeError("embed_dim must be divisible by num_heads")
        self.embed_dim = embed_dim
        self.kdim = embed_dim if kdim is None else kdim
        self.vdim = embed_dim if vdim is None else vdim
        self._qkv_same_embed_dim = self.kdim == self.vdim == embed_dim
        self.num_heads = num_heads
        self.dropout = dropout
        self.batch_first = batch_first
        self.head_dim = embed_dim // num_heads
        self.add_zero_attn = add_zero_attn
        self._register(bias, add_bias_kv, device, dtype)
        self.reset_parameters()

    def _register(self, bias: bool, add_bias_kv: bool, device: Any, dtype: Any) -> None:
        size = self.embed_dim
        same = self._qkv_same_embed_dim
        columns = {"q": size, "k": self.kdim, "v": self.vdim}
        for name, inputs in columns.items():
            weight = None if same else fresh((size, inputs), device, dtype)
            self.register_parameter(f"{name}_proj_weight", weight)
        self.register_parameter("in_proj_weight", fresh((3 * size, size), device, dtype) if same else None)
        self.register_parameter("in_proj_bias", fresh((3 * size,), device, dtype) if bias else None)
        self.out_proj = NonDynamicallyQuantizableLinear(size, size, bias, device, dtype)
        for name in ("bias_k", "bias_v"):
            self.register_parameter(name, fresh((1, 1, size), device, dtype) if add_bias_kv else None)

    def reset_parameters(self) -> None:
        """Draw new input projections; biases are zero."""
        for name in ("in_proj_weight", "q_proj_weight", "k_proj_weight", "v_proj_weight"):
            if getattr(self, name) is not None:
                init.xavier_uniform_(getattr(self, name))
        for name in ("bias_k", "bias_v"):
            if getattr(self, name) is not None:
                init.xavier_normal_(getattr(self, name))
        if self.in_proj_bias is not None:
            init.zeros_(self.in_proj_bias)
            init.zeros_(self.out_proj.bias)

    def forward(
        self, query: Any, key: Any, value: Any, key_padding_mask: Any = None, need_weights: bool = True,
        attn_mask: Any = None, average_attn_weights: bool = True, is_causal: bool = False,
    ) -> tuple[Tensor, Tensor | None]:  # fmt: skip
        """The attended values, and the weights (or None if not `need_weights`), averaged over heads by default.

        Masks are true (or -inf) where a key may not be attended to: `attn_mask` is (queries, keys) or (batch * heads,
        queries, keys), `key_padding_mask` is (batch, keys). `is_causal` promises that `attn_mask` is the causal mask.
        """
        if is_causal and attn_mask is None:
            raise ShapeError("Need attn_mask if specifying the is_causal hint.")
        batched = query.ndim == 3
        if query.ndim not in (2, 3) or not query.ndim == key.ndim == value.ndim:
            raise ShapeError(
                "query, key and value should all be 2-D or all 3-D, found "
                f"{query.ndim}-D, {key.ndim}-D and {value.ndim}-D"
            )
        if not batched:
            query, key, value = (x.unsqueeze(0) for x in (query, key, value))
            key_padding_mask = None if key_padding_mask is None else key_padding_mask.unsqueeze(0)
        elif not self.batch_first:
            query, key, value = (x.transpose(0, 1) for x in (query, key, value))
        found, weights = self._attend(query, key, value, key_padding_mask, attn_mask, need_weights)
        if weights is not None and average_attn_weights:
            weights = weights.mean(1)
        if not batched:
            return found.squeeze(0), None if weights is None else weights.squeeze(0)
        return (found if self.batch_first else found.transpose(0, 1)), weights

    def _attend(self, query: Any, key: Any, value: Any, padding: Any, mask: Any, need_weights: bool) -> tuple[Any, Any]:
        """As `forward`, with the batch first."""
        q, k, v = self._projected(query, key, value)  # (batch, length, embed_dim)
        if self.bias_k is not None:
            repeated = (k.shape[0], 1, self.embed_dim)
            k = op.cat([k, self.bias_k.expand(repeated)], 1)
            v = op.cat([v, self.bias_v.expand(repeated)], 1)
        q, k, v = (x.unflatten(-1, (self.num_heads, self.head_dim)).transpose(1, 2) for x in (q, k, v))
        if self.add_zero_attn:
            zero = op.zeros((*k.shape[:2], 1, self.head_dim), dtype=k.dtype, device=k.device)
            k, v = op.cat([k, zero], 2), op.cat([v, zero], 2)
        bias = self._bias(padding, mask, q, k.shape[2])
        p = self.dropout if self.training else 0.0
        weights = None
        if need_weights:
            scores = op.matmul(q * math.sqrt(1 / self.head_dim), k.transpose(-2, -1))
            weights = F.dropout(F.softmax(scores if bias is None else scores + bias, -1), p)
            found = op.matmul(weights, v)
        else:
            found = F.scaled_dot_product_attention(q, k, v, bias, p)
        return self.out_proj(found.transpose(1, 2).flatten(2)), weights

    def _projected(self, query: Any, key: Any, value: Any) -> tuple[Any, ...]:
        if self._qkv_same_embed_dim and query is key is value:
            return F.linear(query, self.in_proj_weight, self.in_proj_bias).chunk(3, -1)
        if self._qkv_same_embed_dim:
            weights = self.in_proj_weight.chunk(3)
        else:
            weights = (self.q_proj_weight, self.k_proj_weight, self.v_proj_weight)
        biases = (None,) * 3 if self.in_proj_bias is None else self.in_proj_bias.chunk(3)
        return tuple(map(F.linear, (query, key, value), weights, biases))

    def _bias(self, padding: Any, mask: Any, q: Any, keys: int) -> Any:
        """What is added to the scores, which broadcasts to (batch, heads, queries, keys); or None."""
        terms = []
        if mask is not None:
            if mask.ndim == 3:
                mask = mask.unflatten(0, (-1, self.num_heads))
            elif mask.ndim != 2:
                raise ShapeError(f"attn_mask's dimension {mask.ndim} is not supported")
            terms.append(_additive(mask, q, "attn_mask"))
        if padding is not None:
            terms.append(_additive(padding, q, "key_padding_mask")[:, None, None, :])
        terms = [F.pad(term, (0, keys - term.shape[-1])) for term in terms]  # keys added here are never masked
        return None if not terms else terms[0] if len(terms) == 1 else terms[0] + terms[1]


def _additive(mask: Any, like: Any, name: str) -> Any:
    if mask.dtype is bool_:
        zeros = op.zeros(tuple(mask.shape), dtype=like.dtype, device=like.device)
        return zeros.masked_fill(mask, -math.inf)
    if not mask.is_floating_point():
        raise DTypeError(f"only bool and floating types of {name} are supported")
    return mask.to(like.dtype)
