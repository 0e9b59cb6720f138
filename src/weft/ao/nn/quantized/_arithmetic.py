"""What quantized layers compute: exact sums of products of integers, which become float numbers by one scaling.

With the results on a grid again (`onto`), these are the numbers of PyTorch's kernels, except where a result lies
between two levels: theirs round a float32 that was scaled in other steps.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from weft._base.dtype import DType, float32, qint8, qint32, quint8
from weft._base.types import AnyCallable, Arg, PyTree
from weft._tensor.codegen import op
from weft._tensor.composite.quantized import (
    quantize_per_channel,
    quantize_per_tensor,
    quantize_per_tensor_dynamic,
)
from weft._tensor.quantized.encoding import is_quantized, quantized_encoding
from weft._tensor.tensor import Tensor
from weft.ao._observing.qconfig import QConfig
from weft.ao._observing.utils import is_per_channel, is_per_tensor
from weft.errors import DTypeError, PreconditionError, UnsupportedCallError, ValueRangeError
from weft.nn import functional as F
from weft.ops._type_names import scalar_name

if TYPE_CHECKING:
    from weft.nn._containers import AnyModule
    from weft.nn._module import Module


@dataclass(frozen=True, eq=False)
class Weights:
    """The weight and the bias of a layer, as products take them.

    weight     a quantized tensor of 8 bits, with one grid or one for each output (dim 0); or float numbers
    bias       float32, or None
    symmetric  whether all zero points are 0, so that fewer terms need float32's exact integers
    """

    weight: Tensor
    bias: Tensor | None
    symmetric: bool = False

    def _product(self, x: Tensor, row: AnyCallable, channel_dim: int, **options: Arg) -> Tensor:
        own, ours = quantized_encoding(x, "product").uniform("product"), quantized_encoding(self.weight, "product")
        if own.element is qint32:
            raise DTypeError("quantized layers take inputs of 8 bits (quint8 or qint8), not qint32")
        zero = None if self.symmetric else ours.zero_point
        sums = row(own.values, ours.values, own.zero_point, zero, **options)
        scale = (own.scale * ours.scale).to(float32)
        shape = [1] * sums.ndim
        shape[channel_dim] = -1
        numbers = sums.to(float32) * op.reshape(scale, tuple(shape) if scale.ndim else ())
        return numbers if self.bias is None else numbers + op.reshape(self.bias.detach(), tuple(shape))

    def linear(self, x: Tensor) -> Tensor:
        """The float32 results of an affine layer for a quantized input."""
        require_quantized(x, "linear")
        return self._product(x, op.integer_linear, -1)

    def linear_of_floats(self, x: Tensor, *, reduce_range: bool = True) -> Tensor:
        """The results for an input, which is put on the grid of its own range first. Both are float32."""
        _require_floats(x)
        if not is_quantized(self.weight):
            return F.linear(x, self.weight, self.bias)
        return self.linear(quantize_per_tensor_dynamic(x.detach(), quint8, reduce_range))

    def conv(
        self,
        x: Tensor,
        stride: int | Sequence[int],
        padding: int | Sequence[int],
        dilation: int | Sequence[int],
        groups: int,
    ) -> Tensor:
        """The float32 results of a convolution of a quantized input."""
        require_quantized(x, "conv")
        return self._product(x, op.integer_conv, 1, stride=stride, padding=padding, dilation=dilation, groups=groups)


def weights_of(weight: Tensor, bias: Tensor | None) -> Weights:
    """The weights of a layer that keeps them. Waits for the zero points."""
    if not is_quantized(weight):
        return Weights(weight, bias)
    if weight.dtype not in (qint8, quint8):
        raise DTypeError(f"weights of quantized layers have 8 bits (qint8), but these are {weight.dtype}")
    zeros = quantized_encoding(weight, "weight").zero_point
    return Weights(weight, bias, not bool((zeros != 0).any()))


def onto(numbers: Tensor, scale: float | Tensor, zero_point: int | Tensor, dtype: DType = quint8) -> Tensor:
    """Float numbers on a grid."""
    return quantize_per_tensor(numbers, scale, zero_point, dtype)


def require_quantized(x: PyTree, name: str) -> None:
    """`NotImplementedError` for the input of a quantized layer that is not quantized."""
    if not is_quantized(x):
        what = f"a {x.dtype} tensor" if isinstance(x, Tensor) else f"a {type(x).__name__}"
        raise UnsupportedCallError(
            f"quantized {name}: expected a quantized input, such as a QuantStub makes after convert(), but got {what}"
        )


def require_batch(x: Tensor, ndim: int) -> None:
    """`ValueError` unless the input of a convolution has a batch dim and as many dims as the weight."""
    if x.ndim != ndim:
        letters = {3: "L", 4: "H, W", 5: "D, H, W"}[ndim]
        raise ValueRangeError(
            f"Input shape must be `(N, C, {letters})`! A quantized convolution got {tuple(x.shape)}; add a batch dim "
            "by x.unsqueeze(0) if it is missing"
        )


def _require_floats(x: PyTree) -> None:
    """`NotImplementedError` for a quantized input of a dynamic layer, `RuntimeError` for other types than float32."""
    if isinstance(x, Tensor) and is_quantized(x):
        raise UnsupportedCallError(
            "layers of dynamic quantization take floats, and put them on a grid themselves: pass x.dequantize()"
        )
    if x.dtype is not float32:
        raise DTypeError(
            f"expected scalar type Float but found {scalar_name(x)}: layers of dynamic quantization take float32; pass "
            "x.float()"
        )


def quantized_weight(weight: Tensor, observer: Module) -> Tensor:
    """A float weight on the grid that an observer has chosen for it, within the observer's levels."""
    scale, zero_point = observer.calculate_qparams()
    weight = weight.detach().to(float32)
    if is_per_tensor(observer.qscheme):
        result = quantize_per_tensor(weight, scale.item(), int(zero_point.item()), observer.dtype)
    elif is_per_channel(observer.qscheme):
        result = quantize_per_channel(weight, scale, zero_point, observer.ch_axis, observer.dtype)
    else:
        raise PreconditionError(f"Unexpected qscheme {observer.qscheme}")
    encoding = quantized_encoding(result, "weight")
    low, high = getattr(observer, "quant_min", None), getattr(observer, "quant_max", None)
    return result if low is None or high is None else encoding.with_values(op.clamp(encoding.values, low, high))


def observed_weight(module: AnyModule, observer: Module, *, observe: bool = True) -> Tensor:
    """The weight of a module on the grid of an observer, which looks at it first if asked to."""
    observer.to(module.weight.device)
    if observe:
        observer(module.weight)
    if observer.dtype is not qint8:
        raise PreconditionError(f"The only supported dtype for the weight is torch.qint8, but got {observer.dtype}")
    return quantized_weight(module.weight, observer)


def weight_observer(module: Module, default: QConfig) -> Module:
    """What makes the observer of a module's weight: that of its `qconfig`, or of a default one."""
    qconfig = getattr(module, "qconfig", None)
    return default.weight if qconfig is None or qconfig.weight is None else qconfig.weight
