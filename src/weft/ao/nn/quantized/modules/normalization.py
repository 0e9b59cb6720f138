"""Quantized normalisation by the statistics of each sample."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from weft._base.device import DeviceLike
from weft._base.dtype import DType
from weft.ao.nn.quantized.modules._float_layers import Requantized
from weft.nn._lookup import AnyModule
from weft.nn._norm import GroupNorm as FloatGroupNorm
from weft.nn._norm import InstanceNorm1d as FloatInstanceNorm1d
from weft.nn._norm import InstanceNorm2d as FloatInstanceNorm2d
from weft.nn._norm import InstanceNorm3d as FloatInstanceNorm3d
from weft.nn._norm import LayerNorm as FloatLayerNorm

if TYPE_CHECKING:
    pass


class LayerNorm(Requantized, FloatLayerNorm):
    """The last dims normalised, with results on a grid of their own."""

    _ARGUMENTS = ("normalized_shape", "weight", "bias", "eps", "elementwise_affine")

    def __init__(
        self,
        normalized_shape: int | Sequence[int],
        weight: object,
        bias: object,
        scale: float,
        zero_point: int,
        eps: float = 1e-5,
        elementwise_affine: bool = True,
        device: DeviceLike | None = None,
        dtype: DType | None = None,
    ) -> None:
        super().__init__(normalized_shape, eps, elementwise_affine, device=device, dtype=dtype)
        self.weight, self.bias = weight, bias
        self._set_grid(scale, zero_point)


class GroupNorm(Requantized, FloatGroupNorm):
    """Groups of channels normalised, with results on a grid of their own."""

    _ARGUMENTS = ("num_groups", "num_channels", "weight", "bias", "eps", "affine")

    def __init__(
        self,
        num_groups: int,
        num_channels: int,
        weight: object,
        bias: object,
        scale: float,
        zero_point: int,
        eps: float = 1e-5,
        affine: bool = True,
        device: DeviceLike | None = None,
        dtype: DType | None = None,
    ) -> None:
        super().__init__(num_groups, num_channels, eps, affine, device, dtype)
        self.weight, self.bias = weight, bias
        self._set_grid(scale, zero_point)


class _InstanceNorm(Requantized):
    _ARGUMENTS = ("num_features", "weight", "bias", "eps", "affine")

    def __init__(
        self,
        num_features: int,
        weight: object,
        bias: object,
        scale: float,
        zero_point: int,
        eps: float = 1e-5,
        momentum: float = 0.1,
        affine: bool = False,
        track_running_stats: bool = False,
        device: DeviceLike | None = None,
        dtype: DType | None = None,
    ) -> None:
        layer: AnyModule = super()
        layer.__init__(num_features, eps, momentum, affine, track_running_stats, device, dtype)
        self.weight, self.bias = weight, bias
        self._set_grid(scale, zero_point)


class InstanceNorm1d(_InstanceNorm, FloatInstanceNorm1d):
    """Channels of each sample normalised over their length, with results on a grid of their own."""


class InstanceNorm2d(_InstanceNorm, FloatInstanceNorm2d):
    """Channels of each sample normalised over height and width, with results on a grid of their own."""


class InstanceNorm3d(_InstanceNorm, FloatInstanceNorm3d):
    """Channels of each sample normalised over three dims, with results on a grid of their own."""
