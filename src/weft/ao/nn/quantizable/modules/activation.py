"""Attention made of layers that can be observed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from weft._base.device import DeviceLike
from weft._base.dtype import DType
from weft._tensor.codegen import op
from weft._tensor.composite.attention import is_batched, mask_bias, require_mask
from weft._tensor.tensor import Tensor
from weft.ao.nn.quantizable._module import qconfig_of
from weft.ao.nn.quantized._module import require_type
from weft.ao.nn.quantized.modules.functional_modules import FloatFunctional
from weft.ao.quantization.quantize import prepare
from weft.ao.quantization.stubs import DeQuantStub, QuantStub
from weft.errors import PreconditionError, UnsupportedError
from weft.nn import functional as F
from weft.nn._attention import MultiheadAttention as FloatAttention
from weft.nn._linear import Linear
from weft.nn._lookup import AnyModule
from weft.nn._parameter import Parameter

if TYPE_CHECKING:
    from weft.nn._module import Module


class MultiheadAttention(FloatAttention):
    """Attention whose four projections are layers: `prepare` replaces `nn.MultiheadAttention` by it.

    Scores and their softmax are floats. Arguments are those of `nn.MultiheadAttention`; inputs have a batch dim.
    """

    _FLOAT_MODULE: ClassVar[Any] = FloatAttention

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
        super().__init__(
            embed_dim, num_heads, dropout, bias, add_bias_kv, add_zero_attn, kdim, vdim, batch_first, device, dtype
        )
        self.linear_Q = Linear(embed_dim, embed_dim, bias, device, dtype)
        self.linear_K = Linear(self.kdim, embed_dim, bias, device, dtype)
        self.linear_V = Linear(self.vdim, embed_dim, bias, device, dtype)
        self.out_proj: AnyModule = Linear(embed_dim, embed_dim, bias, device, dtype)
        self.q_scaling_product = FloatFunctional()
        self.quant_attn_output, self.quant_attn_output_weights = QuantStub(), QuantStub()
        self.dequant_q, self.dequant_k, self.dequant_v = DeQuantStub(), DeQuantStub(), DeQuantStub()

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
        """As for `nn.MultiheadAttention`; with quantized inputs, results are quantized, too."""
        masks = {"key_padding_mask": key_padding_mask, "attn_mask": attn_mask}
        if not is_batched(query, key, value, self.num_heads, **masks):
            raise PreconditionError("attention that can be observed takes inputs with a batch: use x.unsqueeze(...)")
        require_mask(attn_mask, is_causal)
        if not self.batch_first:
            query, key, value = (op.transpose(x, 0, 1) for x in (query, key, value))
        q = self.q_scaling_product.mul_scalar(self.linear_Q(query), self.head_dim**-0.5)
        k, v = self._with_row(self.linear_K(key), self.bias_k), self._with_row(self.linear_V(value), self.bias_v)
        q, k, v = self.dequant_q(q), self.dequant_k(k), self.dequant_v(v)
        q, k, v = (x.unflatten(-1, (self.num_heads, -1)).transpose(1, 2) for x in (q, k, v))
        if self.add_zero_attn:
            k, v = (F.pad(x, (0, 0, 0, 1)) for x in (k, v))
        scores, bias = (
            op.matmul(q, k.transpose(-2, -1)),
            mask_bias(key_padding_mask, attn_mask, q, key.shape[1], k.shape[2]),
        )
        weights = F.dropout(op.softmax(scores if bias is None else scores + bias, -1), self.dropout, self.training)
        output = self.out_proj(self.quant_attn_output(op.matmul(weights, v).transpose(1, 2).flatten(2)))
        weights = self.quant_attn_output_weights(weights)
        # As the float layer's; PyTorch's own quantizable layer reshapes results of `batch_first` in the wrong order.
        output = output if self.batch_first else op.transpose(output, 0, 1)
        if not need_weights:
            return output, None
        return output, op.mean(weights, [1]) if average_attn_weights else weights

    def _with_row(self, x: Tensor, row: Tensor | None) -> Tensor:
        return x if row is None else op.cat([x, row.expand((x.shape[0], 1, self.embed_dim))], 1)

    def _get_name(self) -> str:
        return "QuantizableMultiheadAttention"

    @classmethod
    def from_float(cls, other: Module) -> Module:
        """The observed form of a float layer, which has a `qconfig`, in evaluation mode."""
        require_type(other, cls._FLOAT_MODULE, cls)
        result = cls(
            other.embed_dim,
            other.num_heads,
            other.dropout,
            other.in_proj_bias is not None,
            other.bias_k is not None,
            other.add_zero_attn,
            other.kdim,
            other.vdim,
            other.batch_first,
        )
        result.qconfig = qconfig_of(other)
        result.bias_k, result.bias_v = other.bias_k, other.bias_v
        result.out_proj.weight, result.out_proj.bias = other.out_proj.weight, other.out_proj.bias
        weights = (other.q_proj_weight, other.k_proj_weight, other.v_proj_weight)
        if other.in_proj_weight is not None:
            weights = other.in_proj_weight.chunk(3)
        biases = (None,) * 3 if other.in_proj_bias is None else other.in_proj_bias.chunk(3)
        layers = (result.linear_Q, result.linear_K, result.linear_V)
        for layer, weight, bias in zip(layers, weights, biases, strict=True):
            layer.weight, layer.bias = Parameter(weight), None if bias is None else Parameter(bias)
        return prepare(result.eval(), inplace=True)

    @classmethod
    def from_observed(cls, other: Module) -> Module:
        """Raises `NotImplementedError`: what was observed becomes an `nn.quantized.MultiheadAttention`."""
        raise UnsupportedError(
            f"nn.quantizable.{cls.__name__}.from_observed: use that of nn.quantized for a {type(other).__name__} that "
            "was observed"
        )
