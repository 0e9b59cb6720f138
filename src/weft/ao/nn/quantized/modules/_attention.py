"""Attention on quantized tensors."""

from __future__ import annotations

from typing import Any, ClassVar

from weft._base.dtype import quint8
from weft._tensor.composite.quantized import quantize_per_tensor_dynamic
from weft.ao.nn.quantizable.modules.activation import MultiheadAttention as ObservedAttention
from weft.ao.nn.quantized.modules._observed import FromObserved


class MultiheadAttention(FromObserved, ObservedAttention):
    """Attention with quantized projections; `convert` makes it."""

    _FLOAT_MODULE: ClassVar[Any] = ObservedAttention

    @classmethod
    def from_observed(cls, other: Any) -> Any:
        """The quantized form of an observed layer; `AssertionError` for any other module."""
        result = super().from_observed(other)
        for name in ("bias_k", "bias_v"):
            row = result._parameters.pop(name)
            setattr(result, name, None if row is None else quantize_per_tensor_dynamic(row, quint8, False))
        del result.in_proj_weight, result.in_proj_bias
        return result
