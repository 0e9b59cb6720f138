"""The affine layer with quantized weights, whose input is put on the grid of its own range at each call."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from weft._base.dtype import DType, float16, float32, qint8
from weft._tensor.tensor import Tensor
from weft.ao._observing.qconfig import default_dynamic_qconfig
from weft.ao.nn.intrinsic.modules.fused import LinearReLU
from weft.ao.nn.intrinsic.qat.modules.linear_relu import LinearReLU as QatLinearReLU
from weft.ao.nn.qat.dynamic.modules.linear import Linear as QatLinear
from weft.ao.nn.quantized._arithmetic import observed_weight, weight_observer
from weft.ao.nn.quantized._module import require_type
from weft.ao.nn.quantized.modules.linear import Linear as QuantizedLinear
from weft.errors import PreconditionError
from weft.nn._linear import Linear as FloatLinear

if TYPE_CHECKING:
    from weft.nn._module import Module


class Linear(QuantizedLinear):
    """x weight' + bias of floats over the last dim, with a weight of 8 bits, or one that was rounded to float16."""

    _version = 4
    _FLOAT_MODULE: ClassVar[Any] = (FloatLinear, LinearReLU, QatLinear, QatLinearReLU)

    def __init__(self, in_features: int, out_features: int, bias_: bool = True, dtype: DType = qint8) -> None:
        super().__init__(in_features, out_features, bias_, dtype)
        self.version = 4

    def _get_name(self) -> str:
        return "DynamicQuantizedLinear"

    def extra_repr(self) -> str:
        """Sizes, type and the weight's scheme."""
        dtype = self._packed_params.dtype
        text = f"in_features={self.in_features}, out_features={self.out_features}, dtype={dtype}"
        return text + (f", qscheme={self.weight().qscheme()}" if dtype is qint8 else "")

    def _numbers(self, x: Tensor) -> Tensor:
        return self._packed_params.packed.linear_of_floats(x)

    def forward(self, x: Tensor) -> Tensor:
        """(..., in_features) to (..., out_features), both float32."""
        return self._numbers(x)

    @classmethod
    def from_float(cls, mod: Module, use_precomputed_fake_quant: bool = False) -> Module:
        """The form with quantized weights of a float layer; its `qconfig` says which type they have."""
        require_type(mod, cls._FLOAT_MODULE, cls)
        own = getattr(mod, "weight_fake_quant", None)
        observer = weight_observer(mod, default_dynamic_qconfig)() if own is None else own
        linear = mod[0] if type(mod) is LinearReLU else mod
        dtype = observer.dtype
        if dtype not in (qint8, float16):
            raise PreconditionError(
                f"The only supported dtypes for dynamic quantized linear are qint8 and float16, got: {dtype}"
            )
        result = cls(linear.in_features, linear.out_features, dtype=dtype)
        weight = linear.weight.detach().to(float32)
        if dtype is qint8:
            weight = observed_weight(linear, observer, observe=not use_precomputed_fake_quant)
        result.set_weight_bias(weight, linear.bias)
        return result
