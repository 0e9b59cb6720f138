"""The affine layer with fake-quantized weights, for dynamic quantization."""

from __future__ import annotations

from weft._base.device import DeviceLike
from weft._base.dtype import DType, quint8
from weft.ao._observing.utils import AnyQConfig
from weft.ao.nn.qat.modules.linear import Linear as QatLinear
from weft.errors import ValueRangeError


class Linear(QatLinear):
    """x weight' + bias, whose weight is rounded as it will be; its `qconfig` has an observer without memory."""

    def __init__(
        self,
        in_features: int,
        out_features: int,
        bias: bool = True,
        qconfig: AnyQConfig = None,
        device: DeviceLike | None = None,
        dtype: DType | None = None,
    ) -> None:
        super().__init__(in_features, out_features, bias, qconfig, device, dtype)
        activation = qconfig.activation()
        if activation.dtype is not quint8 or not getattr(activation, "is_dynamic", False):
            raise ValueRangeError(
                "Dynamic QAT requires a memoryless observer for activations, as default_dynamic_qat_qconfig has: a "
                "MovingAverage observer with averaging constant equal to 1"
            )
