"""Quantized activation functions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from weft._base.device import DeviceLike
from weft._base.dtype import DType, float32, quint8
from weft._base.types import AttributeValue
from weft._tensor.codegen import op
from weft._tensor.tensor import Tensor
from weft.ao.nn.quantized._arithmetic import onto, quantized_weight, require_quantized
from weft.ao.nn.quantized._module import QuantizedModule, grid_of, observer_of
from weft.ao.nn.quantized.modules._float_layers import Requantized
from weft.nn import functional as F
from weft.nn._activation import ELU as FloatELU
from weft.nn._activation import Hardswish as FloatHardswish
from weft.nn._activation import LeakyReLU as FloatLeakyReLU
from weft.nn._activation import PReLU as FloatPReLU
from weft.nn._activation import ReLU6 as FloatReLU6
from weft.nn._activation import Sigmoid as FloatSigmoid
from weft.nn._activation import Softmax as FloatSoftmax
from weft.nn._module import Module


class ReLU6(FloatReLU6):
    """Numbers below 0 become 0, above 6 become 6; the grid stays."""

    def _get_name(self) -> str:
        return "QuantizedReLU6"

    def forward(self, input: Tensor) -> Tensor:
        """Quantized to quantized."""
        require_quantized(input, "ReLU6")
        return F.relu6(input)

    @staticmethod
    def from_float(mod: Module, use_precomputed_fake_quant: bool = False) -> Module:
        """The quantized form of a `ReLU6`."""
        del use_precomputed_fake_quant
        return ReLU6(mod.inplace)


class Hardswish(Requantized, FloatHardswish):
    """Hardswish, with results on a grid of their own."""

    _ARGUMENTS = ()

    def __init__(
        self, scale: float, zero_point: int, device: DeviceLike | None = None, dtype: DType | None = None
    ) -> None:
        del device, dtype
        super().__init__()
        self._set_grid(scale, zero_point)


class ELU(Requantized, FloatELU):
    """ELU, with results on a grid of their own."""

    scale: float
    zero_point: int
    _ARGUMENTS = ("alpha",)

    def __init__(self, scale: float, zero_point: int, alpha: float = 1.0) -> None:
        super().__init__(alpha)
        self.scale, self.zero_point = scale, zero_point


class LeakyReLU(Requantized, FloatLeakyReLU):
    """Leaky ReLU, with results on a grid of their own."""

    _ARGUMENTS = ("negative_slope", "inplace")

    def __init__(
        self,
        scale: float,
        zero_point: int,
        negative_slope: float = 1e-2,
        inplace: bool = False,
        device: DeviceLike | None = None,
        dtype: DType | None = None,
    ) -> None:
        del device, dtype
        super().__init__(negative_slope, inplace)
        self._set_grid(scale, zero_point)


class Sigmoid(FloatSigmoid):
    """Sigmoid, with results on a grid of their own."""

    def __init__(self, output_scale: float, output_zero_point: int) -> None:
        super().__init__()
        self.output_scale, self.output_zero_point = output_scale, output_zero_point

    def forward(self, input: Tensor) -> Tensor:
        """Quantized to quantized."""
        require_quantized(input, "Sigmoid")
        return onto(op.sigmoid(input.dequantize()), self.output_scale, self.output_zero_point, input.dtype)

    @classmethod
    def from_float(cls, mod: Module, use_precomputed_fake_quant: bool = False) -> Module:
        """The quantized form of an observed layer."""
        del use_precomputed_fake_quant
        return cls(*grid_of(observer_of(mod)))


class Softmax(FloatSoftmax):
    """Softmax, with results on a grid of their own."""

    def __init__(self, dim: int | None = None, scale: float = 1.0, zero_point: int = 0) -> None:
        super().__init__(dim)
        self.scale, self.zero_point = scale, zero_point

    def _get_name(self) -> str:
        return "QuantizedSoftmax"

    def forward(self, input: Tensor) -> Tensor:
        """Quantized to quantized."""
        require_quantized(input, "Softmax")
        return onto(super().forward(input.dequantize()), self.scale, self.zero_point, input.dtype)

    @staticmethod
    def from_float(mod: Module, use_precomputed_fake_quant: bool = False) -> Module:
        """The quantized form of an observed layer."""
        del use_precomputed_fake_quant
        return Softmax(mod.dim, *grid_of(observer_of(mod)))


class PReLU(QuantizedModule):
    """PReLU with quantized slopes, with results on a grid of their own."""

    _FLOAT_MODULE: ClassVar[type[Module]] = FloatPReLU

    def __init__(self, output_scale: float, output_zero_point: int, num_parameters: int = 1) -> None:
        super().__init__()
        self.num_parameters = num_parameters
        self.scale, self.zero_point = output_scale, output_zero_point
        self.set_weight(onto(op.full((num_parameters,), 0.25, dtype=float32), 1.0, 0, quint8))

    def _get_name(self) -> str:
        return "QuantizedPReLU"

    def set_weight(self, w: Tensor) -> None:
        """Set the slopes, a quantized tensor."""
        self.weight = w

    def _entries(self) -> dict[str, AttributeValue]:
        return {}

    def _take(self, entries: Mapping[str, AttributeValue]) -> None:
        del entries

    def forward(self, input: Tensor) -> Tensor:
        """Quantized to quantized."""
        require_quantized(input, "PReLU")
        numbers = F.prelu(input.dequantize(), self.weight.dequantize())
        return onto(numbers, self.scale, self.zero_point, input.dtype)

    @classmethod
    def from_float(cls, mod: Module, use_precomputed_fake_quant: bool = False) -> Module:
        """The quantized form of an observed layer."""
        del use_precomputed_fake_quant
        result = cls(*grid_of(observer_of(mod)), mod.num_parameters)
        observer = mod.qconfig.weight()
        observer(mod.weight)
        result.set_weight(quantized_weight(mod.weight, observer))
        return result
