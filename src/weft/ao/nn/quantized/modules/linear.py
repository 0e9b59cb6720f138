"""The quantized affine layer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar

from weft._base.dtype import DType, float16, float32, qint8
from weft._base.types import AttributeValue
from weft._tensor.codegen import op
from weft._tensor.composite.quantized import quantize_per_tensor
from weft._tensor.tensor import Tensor
from weft.ao.nn.intrinsic.modules.fused import LinearReLU
from weft.ao.nn.intrinsic.qat.modules.linear_fused import LinearBn1d
from weft.ao.nn.intrinsic.qat.modules.linear_relu import LinearReLU as QatLinearReLU
from weft.ao.nn.qat.modules.linear import Linear as QatLinear
from weft.ao.nn.quantized._arithmetic import Weights, observed_weight, onto, weights_of
from weft.ao.nn.quantized._module import (
    HidesState,
    QuantizedModule,
    WeightedQuantizedModule,
    grid_of,
    observer_of,
    require_type,
)
from weft.errors import UnsupportedError
from weft.nn import Linear as FloatLinear
from weft.nn.utils.fusion import fuse_linear_bn_weights

if TYPE_CHECKING:
    from weft.nn._containers import AnyModule
    from weft.nn._module import Module


class LinearPackedParams(QuantizedModule):
    """The weight and the bias of an affine layer: qint8, or numbers that were rounded to float16."""

    _version = 3

    def __init__(self, dtype: DType = qint8) -> None:
        super().__init__()
        if dtype not in (qint8, float16):
            raise UnsupportedError(f"Unsupported dtype on dynamic quantized linear: {dtype}; use qint8 or float16")
        self.dtype = dtype
        zero = op.zeros((1, 1), dtype=float32)
        self.set_weight_bias(quantize_per_tensor(zero, 1.0, 0, qint8) if dtype is qint8 else zero, None)

    def set_weight_bias(self, weight: Tensor, bias: Tensor | None) -> None:
        """Set the weight, (outputs, inputs), and the bias."""
        self.packed: Weights = weights_of(weight if self.dtype is qint8 else weight.to(float16).to(float32), bias)

    @property
    def _packed_params(self) -> tuple[Tensor, Tensor | None]:
        return self.packed.weight, self.packed.bias

    _weight_bias = _packed_params.fget

    def forward(self, x: Tensor) -> Tensor:
        """The input: this module only keeps weights."""
        return x

    def _entries(self) -> dict[str, AttributeValue]:
        return {"dtype": self.dtype, "_packed_params": self._packed_params}

    def _take(self, entries: Mapping[str, AttributeValue]) -> None:
        self.dtype = entries["dtype"]
        self.set_weight_bias(*entries["_packed_params"])

    def __repr__(self) -> str:
        return repr(self._packed_params)


class Linear(HidesState, WeightedQuantizedModule):
    """x weight' + bias over the last dim of a quantized tensor; the result is on the grid of `scale`, `zero_point`."""

    _version = 3
    _FLOAT_MODULE: ClassVar[Any] = (FloatLinear, LinearReLU)
    _QAT_MODULES: ClassVar[tuple[Any, ...]] = (QatLinear, QatLinearReLU, LinearBn1d)

    def __init__(self, in_features: int, out_features: int, bias_: bool = True, dtype: DType = qint8) -> None:
        super().__init__()
        self.in_features = in_features
        self.out_features = out_features
        self.scale = 1.0
        self.zero_point = 0
        self._packed_params = LinearPackedParams(dtype)
        weight = op.zeros((out_features, in_features), dtype=float32)
        if dtype is qint8:
            weight = quantize_per_tensor(weight, 1.0, 0, qint8)
        self.set_weight_bias(weight, op.zeros((out_features,), dtype=float32) if bias_ else None)

    def _get_name(self) -> str:
        return "QuantizedLinear"

    def extra_repr(self) -> str:
        """Sizes, grid and the weight's scheme."""
        return (
            f"in_features={self.in_features}, out_features={self.out_features}, scale={self.scale}, "
            f"zero_point={self.zero_point}, qscheme={self.weight().qscheme()}"
        )

    def _numbers(self, x: Tensor) -> Tensor:
        """The results before they are put on the grid."""
        return self._packed_params.packed.linear(x)

    def forward(self, x: Tensor) -> Tensor:
        """(..., in_features) to (..., out_features), both quantized."""
        return onto(self._numbers(x), self.scale, self.zero_point, x.dtype)

    def _weight_bias(self) -> tuple[Tensor, Tensor | None]:
        return self._packed_params.packed.weight, self._packed_params.packed.bias

    def weight(self) -> Tensor:
        """The weight, (out_features, in_features)."""
        return self._weight_bias()[0]

    def bias(self) -> Tensor | None:
        """The bias, (out_features), of floats."""
        return self._weight_bias()[1]

    def set_weight_bias(self, w: Tensor, b: Tensor | None) -> None:
        """Set the weight and the bias."""
        self._packed_params.set_weight_bias(w, b)

    @classmethod
    def from_float(cls, mod: AnyModule, use_precomputed_fake_quant: bool = False) -> Module:
        """The quantized form of an observed or a fake-quantized layer."""
        activation = observer_of(mod)
        if hasattr(mod, "weight_fake_quant"):
            require_type(mod, cls._QAT_MODULES, cls)
            if type(mod) is LinearBn1d:
                mod.fold_norm(fuse_linear_bn_weights)
            observer = mod.weight_fake_quant
        else:
            require_type(mod, cls._FLOAT_MODULE, cls)
            observer = mod.qconfig.weight()
        linear = mod if isinstance(mod, FloatLinear) else mod[0]
        weight = observed_weight(linear, observer, observe=not use_precomputed_fake_quant)
        result = cls._like(linear, mod)
        result.set_weight_bias(weight, linear.bias)
        result.scale, result.zero_point = grid_of(activation)
        return result

    @classmethod
    def _like(cls, linear: AnyModule, fused: AnyModule) -> Module:
        """A layer of the size of a float one, which may be a part of a fused one."""
        del fused
        return cls(linear.in_features, linear.out_features)
