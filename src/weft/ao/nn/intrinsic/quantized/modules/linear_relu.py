"""Quantized affine layers with what follows them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from weft._base.dtype import DType, qint8
from weft._tensor.codegen import op
from weft._tensor.tensor import Tensor
from weft.ao.nn.intrinsic.modules import fused
from weft.ao.nn.intrinsic.qat.modules.linear_relu import LinearReLU as QatLinearReLU
from weft.ao.nn.quantized.modules.linear import Linear
from weft.nn import functional as F

if TYPE_CHECKING:
    from weft.nn._containers import AnyModule
    from weft.nn._module import Module


class LinearReLU(Linear):
    """The positive part of a quantized affine layer."""

    _FLOAT_MODULE = fused.LinearReLU
    _QAT_MODULES = (QatLinearReLU,)

    def _get_name(self) -> str:
        return "QuantizedLinearReLU"

    def _numbers(self, x: Tensor) -> Tensor:
        return F.relu(super()._numbers(x))


class LinearLeakyReLU(Linear):
    """A quantized affine layer and a leaky ReLU."""

    _FLOAT_MODULE = fused.LinearLeakyReLU
    _QAT_MODULES = ()

    def __init__(
        self, in_features: int, out_features: int, negative_slope: float, bias: bool = True, dtype: DType = qint8
    ) -> None:
        super().__init__(in_features, out_features, bias, dtype)
        self.negative_slope = negative_slope

    def _get_name(self) -> str:
        return "QuantizedLinearLeakyReLU"

    def _numbers(self, x: Tensor) -> Tensor:
        return F.leaky_relu(super()._numbers(x), self.negative_slope)

    @classmethod
    def _like(cls, linear: AnyModule, fused: AnyModule) -> Module:
        return cls(linear.in_features, linear.out_features, fused[1].negative_slope)


class LinearTanh(Linear):
    """A quantized affine layer and a tanh."""

    _FLOAT_MODULE = fused.LinearTanh
    _QAT_MODULES = ()

    def _get_name(self) -> str:
        return "QuantizedLinearTanh"

    def _numbers(self, x: Tensor) -> Tensor:
        return op.tanh(super()._numbers(x))
