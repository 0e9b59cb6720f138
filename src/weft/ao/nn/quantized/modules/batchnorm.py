"""Quantized batch normalisation, by the running statistics."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from weft._base.device import DeviceLike
from weft._base.dtype import DType
from weft._tensor.tensor import Tensor
from weft.ao.nn.intrinsic.modules.fused import BNReLU2d, BNReLU3d
from weft.ao.nn.quantized._module import grid_of, observer_of
from weft.ao.nn.quantized.modules._float_layers import Requantized
from weft.nn import functional as F
from weft.nn._norm import BatchNorm2d as FloatBatchNorm2d
from weft.nn._norm import BatchNorm3d as FloatBatchNorm3d

if TYPE_CHECKING:
    from weft.nn._containers import AnyModule
    from weft.nn._module import Module


class _BatchNorm(Requantized):
    _FUSED: ClassVar[Any]

    def __init__(
        self,
        num_features: int,
        eps: float = 1e-5,
        momentum: float = 0.1,
        device: DeviceLike | None = None,
        dtype: DType | None = None,
    ) -> None:
        layer: AnyModule = super()
        layer.__init__(num_features, eps, momentum, device=device, dtype=dtype)
        self._set_grid(1.0, 0)

    def _float(self, numbers: Tensor) -> Tensor:
        own: AnyModule = self
        return F.batch_norm(
            numbers, own.running_mean, own.running_var, own.weight, own.bias, False, own.momentum, own.eps
        )

    @classmethod
    def from_float(cls, mod: AnyModule, use_precomputed_fake_quant: bool = False) -> Module:
        """The quantized form of an observed layer, whose statistics it shares."""
        del use_precomputed_fake_quant
        grid = grid_of(observer_of(mod))
        mod = mod[0] if isinstance(mod, cls._FUSED) else mod
        result: AnyModule = cls(mod.num_features, mod.eps)
        for name in ("weight", "bias", "running_mean", "running_var"):
            setattr(result, name, getattr(mod, name))
        result._set_grid(*grid)
        return result


class BatchNorm2d(_BatchNorm, FloatBatchNorm2d):
    """Batch normalisation of quantized (batch, channels, height, width)."""

    _FUSED = BNReLU2d


class BatchNorm3d(_BatchNorm, FloatBatchNorm3d):
    """Batch normalisation of quantized (batch, channels, depth, height, width)."""

    _FUSED = BNReLU3d
