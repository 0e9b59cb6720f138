"""Multi-head attention."""

from __future__ import annotations

from weft._base.device import DeviceLike
from weft._base.dtype import DType
from weft._tensor.composite.attention import Projections, attend, batch_first, is_batched, require_mask, require_width
from weft._tensor.tensor import Tensor
from weft.errors import PreconditionError, ValueRangeError
from weft.nn import init
from weft.nn._linear import Linear, fresh
from weft.nn._module import Module


class NonDynamicallyQuantizableLinear(Linear):
    """A `Linear` under the name that PyTorch prints for the output projection."""


class MultiheadAttention(Module):
    """Attention of queries to keys, in several learnt projections (heads).

    Inputs are (length, batch, embed_dim), or (batch, length, embed_dim) if `batch_first`, or have no batch dim. The
    three input projections share one weight `in_proj_weight`, or are three weights where keys or values have other
    numbers of features than queries.
    """

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        dropout: float = 0.0,
        bias: bool = True,
        add_bias_kv: bool = False,
        add_zero_attn: bool = False,
        kdim: int | None = None,
        vdim: int | None = None,
        batch_first: bool = False,
        device: DeviceLike | None = None,
        dtype: DType | None = None,
    ) -> None:
        super().__init__()
        if embed_dim <= 0 or num_heads <= 0:
            raise ValueRangeError(
                f"embed_dim and num_heads must be greater than 0, got embed_dim={embed_dim} and num_heads={num_heads} "
                "instead"
            )
        if embed_dim % num_heads:
            raise PreconditionError("embed_dim must be divisible by num_heads")
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
        self._reset_parameters()

    def _register(self, bias: bool, add_bias_kv: bool, device: DeviceLike | None, dtype: DType | None) -> None:
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

    def _reset_parameters(self) -> None:
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
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        key_padding_mask: Tensor | None = None,
        need_weights: bool = True,
        attn_mask: Tensor | None = None,
        average_attn_weights: bool = True,
        is_causal: bool = False,
    ) -> tuple[Tensor, Tensor | None]:
        """The attended values, and the weights (or None if not `need_weights`), averaged over heads by default.

        Masks are true (or -inf) where a key may not be attended to: `attn_mask` is (queries, keys) or (batch * heads,
        queries, keys), `key_padding_mask` is (batch, keys). `is_causal` promises that `attn_mask` is the causal mask.
        """
        batched = is_batched(query, key, value, self.num_heads, key_padding_mask=key_padding_mask, attn_mask=attn_mask)
        require_mask(attn_mask, is_causal)
        require_width(query, self.embed_dim)
        if not batched:
            query, key, value = batch_first((query, key, value), None)
            key_padding_mask = None if key_padding_mask is None else key_padding_mask.unsqueeze(0)
        elif not self.batch_first:
            query, key, value = batch_first((query, key, value), (0, 1))
        # `is_causal` is only a hint, as in PyTorch: the mask itself is given, too.
        p = self.dropout if self.training else 0.0
        output, weights = attend(
            query, key, value, self._projections(), p, key_padding_mask, attn_mask, need_weights, average_attn_weights
        )
        if not batched:
            return output.squeeze(0), None if weights is None else weights.squeeze(0)
        return (output if self.batch_first else output.transpose(0, 1)), weights

    def _projections(self) -> Projections:
        separate = (self.q_proj_weight, self.k_proj_weight, self.v_proj_weight)
        return Projections(
            self.num_heads,
            self.in_proj_weight if self._qkv_same_embed_dim else separate,
            self.in_proj_bias,
            self.out_proj.weight,
            self.out_proj.bias,
            None if self.bias_k is None else (self.bias_k, self.bias_v),
            zero_attention=self.add_zero_attn,
        )
