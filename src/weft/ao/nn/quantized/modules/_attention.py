"""Attention on quantized tensors."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from weft._base.dtype import quint8
from weft._tensor.composite.quantized import quantize_per_tensor_dynamic
from weft.ao.nn.quantizable.modules.activation import MultiheadAttention as ObservedAttention
from weft.ao.nn.quantized.modules._observed import FromObserved

if TYPE_CHECKING:
    from weft.nn._module import Module


class MultiheadAttention(FromObserved, ObservedAttention):
    """Attention with quantized projections; `convert` makes it."""

    _FLOAT_MODULE: ClassVar[Any] = ObservedAttention

    @classmethod
    def from_observed(cls, other: Module) -> Module:
        """The quantized form of an observed layer; `AssertionError` for any other module."""
        result = super().from_observed(other)
        for name in ("bias_k", "bias_v"):
            row = result._parameters.pop(name)
            setattr(result, name, None if row is None else quantize_per_tensor_dynamic(row, quint8, False))
        del result.in_proj_weight, result.in_proj_bias
        return result
