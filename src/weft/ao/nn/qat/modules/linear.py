"""The affine layer with fake-quantized weights."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from weft._base.device import DeviceLike
from weft._base.dtype import DType
from weft._tensor.tensor import Tensor
from weft.ao.nn.intrinsic.modules.fused import LinearReLU
from weft.ao.nn.qat._module import FakeQuantized, require_qconfig
from weft.nn import functional as F
from weft.nn._activation import ReLU
from weft.nn._linear import Linear as FloatLinear
from weft.nn._parameter import Parameter
from weft.nn.utils.parametrize import type_before_parametrizations

if TYPE_CHECKING:
    from weft.ao._observing.qconfig import QConfigAny
    from weft.nn._containers import AnyModule
    from weft.nn._module import Module


class Linear(FakeQuantized, FloatLinear):
    """x weight' + bias, whose weight is rounded as it will be when it is quantized."""

    _FLOAT_MODULE: ClassVar[type] = FloatLinear
    _FUSED: ClassVar[type] = LinearReLU

    def __init__(
        self,
        in_features: int,
        out_features: int,
        bias: bool = True,
        qconfig: QConfigAny = None,
        device: DeviceLike | None = None,
        dtype: DType | None = None,
    ) -> None:
        super().__init__(in_features, out_features, bias, device, dtype)
        self._set_fake_quant(qconfig)

    def forward(self, input: Tensor) -> Tensor:
        """(..., in_features) to (..., out_features)."""
        return F.linear(input, self.weight_fake_quant(self.weight), self.bias)

    @classmethod
    def from_float(cls, mod: AnyModule, use_precomputed_fake_quant: bool = False) -> Module:
        """The layer with the parameters of a float one that has a `qconfig`."""
        del use_precomputed_fake_quant
        qconfig = require_qconfig(mod, (cls._FLOAT_MODULE, cls._FUSED), cls)
        mod = mod[0] if type_before_parametrizations(mod) is cls._FUSED else mod
        result = cls(mod.in_features, mod.out_features, mod.bias is not None, qconfig)
        result.weight, result.bias = mod.weight, mod.bias
        return result

    def to_float(self) -> Module:
        """A float layer with the same parameters."""
        result = FloatLinear(self.in_features, self.out_features, self.bias is not None)
        result.weight = Parameter(self.weight.detach())
        if self.bias is not None:
            result.bias = Parameter(self.bias.detach())
        result.train(self.training)
        return LinearReLU(result, ReLU()) if self._fuses_relu else result
