"""Averages of gradients that are sent in 8 bits, with the scale and the zero point of their range.

Each rank receives the gradients of all others, so this is useful only for few ranks and slow links. Rounding changes a
gradient by at most half a step, which is 1/510 of the range of zero and the rank's gradients.
"""

from __future__ import annotations

import numpy as np

from weft._base.dtype import float32, uint8
from weft._base.types import Result
from weft._tensor.codegen import op as rows
from weft._tensor.composite.create import zeros_like
from weft._tensor.tensor import Tensor
from weft.distributed import _collectives
from weft.distributed._grad_bucket import GradBucket
from weft.distributed._group import ProcessGroup
from weft.distributed._world import require_group
from weft.futures import Future

_LEVELS = 255  # the largest value of 8 bits
_LEAST_SCALE = float(np.finfo(np.float32).eps)


def quantization_pertensor_hook(process_group: ProcessGroup, bucket: GradBucket) -> Future[Result]:
    """The average over a group, None for the default one, with one range for all gradients of a bucket."""
    return _average(require_group(process_group), rows.reshape(bucket.buffer(), (1, -1)), bucket)


def quantization_perchannel_hook(
    process_group: ProcessGroup, bucket: GradBucket, bucket_size: int = 512
) -> Future[Result]:
    """As `quantization_pertensor_hook`, with a range for each `bucket_size` gradients: more accurate if sizes vary."""
    flat = bucket.buffer()
    filled = rows.pad(flat, (0, -flat.numel() % bucket_size))
    return _average(require_group(process_group), rows.reshape(filled, (-1, bucket_size)), bucket)


def _average(group: ProcessGroup, channels: Tensor, bucket: GradBucket) -> Future[Result]:
    """A future of the flat average of the channels of all ranks, without the padding."""
    ranges = _ranges(channels)  # (scale and zero point, channel, 1)

    def exchanged(future: Future[Result]) -> tuple[list[Tensor], list[Tensor]]:
        return future.value(), _gathered(group, _quantised(channels, ranges)).wait()

    def averaged(future: Future[Result]) -> Tensor:
        total = sum(_restored(x, one) for one, x in zip(*future.value(), strict=True))
        return rows.reshape(total / group.size(), (-1,))[: bucket.buffer().numel()]

    return _gathered(group, ranges).then(exchanged).then(averaged)


def _gathered(group: ProcessGroup, mine: Tensor) -> Future[Result]:
    """A future of the tensors of all ranks, by rank."""
    parts = [zeros_like(mine) for _ in range(group.size())]
    work = _collectives.all_gather(parts, mine, group, async_op=True)
    assert work is not None, "a replica is a member of its group"
    return work.get_future()


def _ranges(channels: Tensor) -> Tensor:
    """Scale and zero point of each channel, such that they represent 0 and all its values: (2, channel, 1)."""
    low, high = rows.aminmax(channels.to(float32), dim=1, keepdim=True)
    low, high = low.clamp(max=0), high.clamp(min=0)
    scale = ((high - low) / _LEVELS).clamp(min=_LEAST_SCALE)
    return rows.stack([scale, (-rows.round(low / scale)).clamp(0, _LEVELS)])


def _quantised(x: Tensor, ranges: Tensor) -> Tensor:
    scale, zero = ranges
    return (rows.round(x / scale) + zero).clamp(0, _LEVELS).to(uint8)


def _restored(x: Tensor, ranges: Tensor) -> Tensor:
    scale, zero = ranges
    return scale * (x.to(float32) - zero)
