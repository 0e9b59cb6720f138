"""Normalisation layers."""

from __future__ import annotations

import warnings
from collections.abc import Sequence

import numpy as np

from weft._base.device import DeviceLike
from weft._base.dtype import DType, int64
from weft._base.state import default_dtype
from weft._base.types import SavedState
from weft._tensor.codegen import op
from weft._tensor.convert import from_numpy_array
from weft._tensor.tensor import Tensor
from weft.errors import ValueRangeError
from weft.nn import functional as F
from weft.nn import init
from weft.nn._layer import REQUIRED, layer
from weft.nn._linear import fresh
from weft.nn._module import Module
from weft.ops._neural import ntuple


class _Affine(Module):
    """Layers with a weight of ones and a bias of zeros, which are both optional."""

    def _register(
        self,
        size: tuple[int, ...],
        weight: bool,
        bias: bool,
        device: DeviceLike | None,
        dtype: DType | None,
        names: tuple[str, ...],
    ) -> None:
        for name, present in zip(names, (weight, bias), strict=False):
            self.register_parameter(name, fresh(size, device, dtype) if present else None)

    def reset_parameters(self) -> None:
        """Set the parameters to their initial values."""
        for name, parameter in self.named_parameters(recurse=False):
            (init.ones_ if name == "weight" else init.zeros_)(parameter)


_BOTH = ("weight", "bias")


class LayerNorm(_Affine):
    """The last dims normalised to mean 0 and variance 1, then scaled and shifted."""

    def __init__(
        self,
        normalized_shape: int | Sequence[int],
        eps: float = 1e-5,
        elementwise_affine: bool = True,
        bias: bool = True,
        device: DeviceLike | None = None,
        dtype: DType | None = None,
    ) -> None:
        super().__init__()
        self.normalized_shape = ntuple(normalized_shape, 1)
        self.eps = eps
        self.elementwise_affine = elementwise_affine
        self._register(self.normalized_shape, elementwise_affine, elementwise_affine and bias, device, dtype, _BOTH)
        self.reset_parameters()

    def forward(self, input: Tensor) -> Tensor:
        """The same shape."""
        return F.layer_norm(input, self.normalized_shape, self.weight, self.bias, self.eps)

    def extra_repr(self) -> str:
        """The constructor's arguments."""
        return (
            f"{self.normalized_shape}, eps={self.eps}, elementwise_affine={self.elementwise_affine}, "
            f"bias={self.bias is not None}"
        )


class RMSNorm(_Affine):
    """The last dims divided by their root mean square, then scaled."""

    def __init__(
        self,
        normalized_shape: int | Sequence[int],
        eps: float | None = None,
        elementwise_affine: bool = True,
        device: DeviceLike | None = None,
        dtype: DType | None = None,
    ) -> None:
        super().__init__()
        self.normalized_shape = ntuple(normalized_shape, 1)
        self.eps = eps
        self.elementwise_affine = elementwise_affine
        self._register(self.normalized_shape, elementwise_affine, False, device, dtype, ("weight",))
        self.reset_parameters()

    def forward(self, x: Tensor) -> Tensor:
        """The same shape."""
        return F.rms_norm(x, self.normalized_shape, self.weight, self.eps)

    def extra_repr(self) -> str:
        """The constructor's arguments."""
        return f"{self.normalized_shape}, eps={self.eps}, elementwise_affine={self.elementwise_affine}"


class GroupNorm(_Affine):
    """Groups of channels normalised within each sample, then scaled and shifted for each channel."""

    def __init__(
        self,
        num_groups: int,
        num_channels: int,
        eps: float = 1e-5,
        affine: bool = True,
        device: DeviceLike | None = None,
        dtype: DType | None = None,
        *,
        bias: bool = True,
    ) -> None:
        super().__init__()
        if num_channels % num_groups:
            raise ValueRangeError(f"num_channels ({num_channels}) must be divisible by num_groups ({num_groups})")
        self.num_groups = num_groups
        self.num_channels = num_channels
        self.eps = eps
        self.affine = affine
        self._register((num_channels,), affine, affine and bias, device, dtype, _BOTH)
        self.reset_parameters()

    def forward(self, input: Tensor) -> Tensor:
        """(batch, channels, ...) to the same shape."""
        return F.group_norm(input, self.num_groups, self.weight, self.bias, self.eps)

    def extra_repr(self) -> str:
        """The constructor's arguments."""
        return (
            f"{self.num_groups}, {self.num_channels}, eps={self.eps}, affine={self.affine}, "
            f"bias={self.bias is not None}"
        )


class _NormBase(_Affine):
    """Layers that normalise each channel, and may keep running statistics for evaluation."""

    _ndims: tuple[int, ...]
    _version = 2  # of the state dict; from 2 on it has `num_batches_tracked`

    def __init__(
        self,
        num_features: int,
        eps: float = 1e-5,
        momentum: float | None = 0.1,
        affine: bool = True,
        track_running_stats: bool = True,
        device: DeviceLike | None = None,
        dtype: DType | None = None,
        *,
        bias: bool = True,
    ) -> None:
        super().__init__()
        self.num_features = num_features
        self.eps = eps
        self.momentum = momentum
        self.affine = affine
        self.track_running_stats = track_running_stats
        self._register((num_features,), affine, affine and bias, device, dtype, _BOTH)
        track, kind = track_running_stats, dtype or default_dtype()
        size = (num_features,)
        self.register_buffer("running_mean", op.zeros(size, dtype=kind, device=device) if track else None)
        self.register_buffer("running_var", op.ones(size, dtype=kind, device=device) if track else None)
        self.register_buffer("num_batches_tracked", op.zeros((), dtype=int64, device=device) if track else None)
        self.reset_parameters()

    def reset_running_stats(self) -> None:
        """Set the running statistics to mean 0, variance 1 and no batches."""
        if self.track_running_stats:
            self.running_mean.zero_()
            self.running_var.fill_(1)
            self.num_batches_tracked.zero_()

    def reset_parameters(self) -> None:
        """Set parameters and statistics to their initial values."""
        self.reset_running_stats()
        super().reset_parameters()

    def _require(self, input: Tensor) -> None:
        if input.ndim not in self._ndims:
            wanted = " or ".join(f"{n}D" for n in self._ndims)
            raise ValueRangeError(f"expected {wanted} input (got {input.ndim}D input)")

    def _renew_entries(self, state_dict: SavedState, prefix: str, version: int | None) -> None:
        key = f"{prefix}num_batches_tracked"
        if self.track_running_stats and (1 if version is None else version) < 2 and key not in state_dict:
            state_dict[key] = self.num_batches_tracked

    def extra_repr(self) -> str:
        """The constructor's arguments."""
        return (
            f"{self.num_features}, eps={self.eps}, momentum={self.momentum}, affine={self.affine}, "
            f"bias={self.bias is not None}, track_running_stats={self.track_running_stats}"
        )


class _BatchNorm(_NormBase):
    """Each channel normalised over the batch in training, and by the running statistics in evaluation."""

    def forward(self, input: Tensor) -> Tensor:
        """(batch, channels, ...) to the same shape."""
        self._require(input)
        momentum = self.momentum
        if self.training and self.track_running_stats:
            self.num_batches_tracked.add_(1)
            if momentum is None:  # the mean of all batches with equal weights
                momentum = 1 / float(self.num_batches_tracked)
        use_batch = self.training or self.running_mean is None
        tracked = not self.training or self.track_running_stats
        return F.batch_norm(
            input,
            self.running_mean if tracked else None,
            self.running_var if tracked else None,
            self.weight,
            self.bias,
            use_batch,
            0.0 if momentum is None else momentum,
            self.eps,
        )


BatchNormBase = _BatchNorm  # for other packages: PyTorch has it as a private class


class BatchNorm1d(_BatchNorm):
    """Batch normalisation of (batch, channels) or (batch, channels, length)."""

    _ndims = (2, 3)


class BatchNorm2d(_BatchNorm):
    """Batch normalisation of (batch, channels, height, width)."""

    _ndims = (4,)


class BatchNorm3d(_BatchNorm):
    """Batch normalisation of (batch, channels, depth, height, width)."""

    _ndims = (5,)


class _InstanceNorm(_NormBase):
    """Each channel of each sample normalised over its spatial dims."""

    def __init__(
        self,
        num_features: int,
        eps: float = 1e-5,
        momentum: float = 0.1,
        affine: bool = False,
        track_running_stats: bool = False,
        device: DeviceLike | None = None,
        dtype: DType | None = None,
        *,
        bias: bool = True,
    ) -> None:
        super().__init__(num_features, eps, momentum, affine, track_running_stats, device, dtype, bias=bias)

    def forward(self, input: Tensor) -> Tensor:
        """(batch, channels, ...), or one sample without the batch dim, to the same shape."""
        self._require(input)
        single = input.ndim == self._ndims[0]
        self._require_channels(input, 0 if single else 1)
        use_input = self.training or not self.track_running_stats
        momentum = 0.0 if self.momentum is None else self.momentum
        output = F.instance_norm(
            op.unsqueeze(input, 0) if single else input,
            self.running_mean,
            self.running_var,
            self.weight,
            self.bias,
            use_input,
            momentum,
            self.eps,
        )
        return op.select(output, 0, 0) if single else output

    def _require_channels(self, input: Tensor, dim: int) -> None:
        channels, wanted = input.shape[dim], self.num_features
        if channels != wanted and self.affine:
            raise ValueRangeError(
                f"expected input's size at dim={dim} to match num_features ({wanted}), but got: {channels}."
            )
        if channels != wanted:
            warnings.warn(
                f"input's size at dim={dim} does not match num_features. You can silence this warning by not passing "
                "in num_features, which is not used because affine=False",
                stacklevel=4,
            )


class InstanceNorm1d(_InstanceNorm):
    """Instance normalisation of (batch, channels, length)."""

    _ndims = (2, 3)


class InstanceNorm2d(_InstanceNorm):
    """Instance normalisation of (batch, channels, height, width)."""

    _ndims = (3, 4)


class InstanceNorm3d(_InstanceNorm):
    """Instance normalisation of (batch, channels, depth, height, width)."""

    _ndims = (4, 5)


LocalResponseNorm = layer(
    "LocalResponseNorm",
    __name__,
    F.local_response_norm,
    "Channels divided by a power of their neighbours' squares.",
    "{size}, alpha={alpha}, beta={beta}, k={k}",
    size=REQUIRED,
    alpha=1e-4,
    beta=0.75,
    k=1.0,
)


def _across_maps(input: Tensor, size: int, alpha: float, beta: float, k: float) -> Tensor:
    if input.ndim != 4:
        raise ValueRangeError(f"CrossMapLRN2d: Expected input to be 4D, got {input.ndim}D instead.")
    channel = np.arange(input.shape[1])
    reach = (size - 1) // 2
    near = np.abs(channel[:, None] - channel) <= reach
    near |= (channel[:, None] > reach) & (
        channel == 0
    )  # PyTorch never subtracts the first channel from its running sum
    weights = from_numpy_array(near).to(input.device, input.dtype)
    squares = op.einsum((op.square(input), weights), "bchw,dc->bdhw")
    return input * (k + squares * (alpha / size)) ** -beta


CrossMapLRN2d = layer(
    "CrossMapLRN2d",
    __name__,
    _across_maps,
    "Channels divided by a power of the squares of their neighbours, and of the first channel.",
    "{size}, alpha={alpha}, beta={beta}, k={k}",
    size=REQUIRED,
    alpha=1e-4,
    beta=0.75,
    k=1,
)
