"""Batch normalisation over the batches of all ranks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from weft._base.device import DeviceLike
from weft._base.dtype import DType
from weft._tensor.codegen import op as rows
from weft._tensor.composite.shape import unbind
from weft._tensor.tensor import Tensor
from weft.distributed._world import is_initialized, require_group
from weft.distributed.nn.functional import all_gather
from weft.errors import ValueRangeError
from weft.nn._norm import BatchNormBase

if TYPE_CHECKING:
    from weft.distributed._group import ProcessGroup
    from weft.nn._module import Module


class SyncBatchNorm(BatchNormBase):
    """Each channel normalised over the batches of all ranks of a group in training, as if they were one batch.

    Batches may have different sizes, and be empty. In evaluation, and with one rank, it is an ordinary batch
    normalisation. Each forward pass and each backward pass exchanges one small message.
    """

    def __init__(
        self,
        num_features: int,
        eps: float = 1e-5,
        momentum: float | None = 0.1,
        affine: bool = True,
        track_running_stats: bool = True,
        process_group: ProcessGroup | None = None,
        device: DeviceLike | None = None,
        dtype: DType | None = None,
        *,
        bias: bool = True,
    ) -> None:
        super().__init__(num_features, eps, momentum, affine, track_running_stats, device, dtype, bias=bias)
        self.process_group = process_group

    def _require(self, input: Tensor) -> None:
        if input.ndim < 2:
            raise ValueRangeError(f"expected at least 2D input (got {input.ndim}D input)")
        if not input.shape[1]:
            raise ValueRangeError("SyncBatchNorm number of input channels should be non-zero")

    def forward(self, input: Tensor) -> Tensor:
        """(batch, channels, ...) to the same shape."""
        self._require(input)
        group = require_group(self.process_group) if self.training and is_initialized() else None
        if group is None or group.size() == 1:
            return super().forward(input)
        mean, var, count = _statistics(input, group)
        if self.track_running_stats:
            self._track(mean.detach(), (var * (count / (count - 1))).detach())
        scale = (var + self.eps).rsqrt()
        if self.weight is not None:
            scale = scale * self.weight
        normalized = (input - _by_channel(mean, input)) * _by_channel(scale, input)
        return (normalized if self.bias is None else normalized + _by_channel(self.bias, input)).to(input.dtype)

    def _track(self, mean: Tensor, var: Tensor) -> None:
        """Move the running statistics towards those of a batch."""
        self.num_batches_tracked.add_(1)
        momentum = 1 / float(self.num_batches_tracked) if self.momentum is None else self.momentum
        for running, new in ((self.running_mean, mean), (self.running_var, var)):
            running.copy_(running * (1 - momentum) + new * momentum)

    @classmethod
    def convert_sync_batchnorm(cls, module: Module, process_group: ProcessGroup | None = None) -> Module:
        """`module`, with all its batch normalisations replaced; parameters and statistics are kept."""
        converted = module
        if isinstance(module, BatchNormBase) and not isinstance(module, SyncBatchNorm):
            converted = cls(
                module.num_features,
                module.eps,
                module.momentum,
                module.affine,
                module.track_running_stats,
                process_group,
                bias=module.bias is not None,
            )
            # The same objects, so that an optimizer that was made before goes on with them.
            for name in ("weight", "bias", "running_mean", "running_var", "num_batches_tracked", "training"):
                setattr(converted, name, getattr(module, name))
        for name, child in module.named_children():
            converted.add_module(name, cls.convert_sync_batchnorm(child, process_group))
        return converted


def _by_channel(x: Tensor, input: Tensor) -> Tensor:
    """One number for each channel, in a shape that broadcasts to (batch, channels, ...)."""
    return rows.reshape(x, (1, -1, *(1 for _ in input.shape[2:])))


def _statistics(input: Tensor, group: ProcessGroup) -> tuple[Tensor, Tensor, Tensor]:
    """Mean and variance of each channel, and the number of its elements, over all ranks; differentiable.

    In float32 for 16-bit inputs. They are computed from each rank's mean and squared deviations, which avoids
    cancellation (Chan, Golub and LeVeque, 1979).
    """
    channels = input.shape[1]
    flat = rows.reshape(rows.transpose(input, 0, 1), (channels, -1))  # (channel, element)
    flat = flat.float() if flat.dtype.itemsize == 2 else flat
    count = flat.shape[1]
    mean = flat.sum(1) / max(count, 1)
    deviations = (flat - rows.unsqueeze(mean, 1)).square().sum(1)
    counts = rows.full((channels,), float(count), dtype=flat.dtype, device=flat.device)
    gathered = rows.stack(list(all_gather(rows.cat([mean, deviations, counts]), group)))
    means, deviations, counts = unbind(rows.reshape(gathered, (group.size(), 3, channels)), 1)  # (rank, channel)
    total = counts.sum(0)
    mean = (means * counts).sum(0) / total
    var = (deviations + counts * (means - mean).square()).sum(0) / total
    return mean, var, total
