"""Attention on quantized tensors."""

from __future__ import annotations

from typing import Any, ClassVar

from weft._base.dtype import quint8
from weft._tensor.composite.quantized import quantize_per_tensor_dynamic
from weft.ao.nn.quantizable.modules.activation import MultiheadAttention as ObservedAttention
from weft.ao.quantization.quantize import convert
from weft.errors import PreconditionError, UnsupportedError


class MultiheadAttention(ObservedAttention):
    """Attention with quantized projections; `convert` makes it."""

    _FLOAT_MODULE: ClassVar[Any] = ObservedAttention

    def _get_name(self) -> str:
        return "QuantizedMultiheadAttention"

    @classmethod
    def from_float(cls, other: Any) -> Any:
        """Raises `NotImplementedError`: grids have to be observed first."""
        raise UnsupportedError(
            f"nn.quantized.{cls.__name__}.from_float: prepare() the model with the {type(other).__name__}, run it, and "
            "convert() it"
        )

    @classmethod
    def from_observed(cls, other: Any) -> Any:
        """The quantized form of an observed layer."""
        if not isinstance(other, cls._FLOAT_MODULE):
            raise PreconditionError(f"Expected a nn.quantizable.MultiheadAttention, got {type(other).__name__}")
        result = convert(other, inplace=False)
        result.__class__ = cls
        for name in ("bias_k", "bias_v"):
            row = result._parameters.pop(name)
            setattr(result, name, None if row is None else quantize_per_tensor_dynamic(row, quint8, False))
        del result.in_proj_weight, result.in_proj_bias
        return result
