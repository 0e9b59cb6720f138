"""Layers that move, pad and resize."""

from __future__ import annotations

from typing import Any

from weft._tensor.spelling import op
from weft._tensor.tensor import Tensor
from weft.nn import functional as F
from weft.nn._conv import ntuple
from weft.nn._layer import REQUIRED, layer


def _unflatten(input: Tensor, dim: Any, unflattened_size: Any) -> Tensor:
    return op.unflatten(input, dim, tuple(unflattened_size))


Flatten = layer(
    "Flatten", __name__, op.flatten, "Dims from `start_dim` to `end_dim` as one.",
    "start_dim={start_dim}, end_dim={end_dim}", start_dim=1, end_dim=-1,
)  # fmt: skip
Unflatten = layer(
    "Unflatten", __name__, _unflatten, "One dim as several.", "dim={dim}, unflattened_size={unflattened_size}",
    dim=REQUIRED, unflattened_size=REQUIRED,
)  # fmt: skip
Fold = layer(
    "Fold", __name__, F.fold, "Columns summed into images.",
    "output_size={output_size}, kernel_size={kernel_size}, dilation={dilation}, padding={padding}, stride={stride}",
    output_size=REQUIRED, kernel_size=REQUIRED, dilation=1, padding=0, stride=1,
)  # fmt: skip
Unfold = layer(
    "Unfold", __name__, F.unfold, "Sliding blocks of images as columns.",
    "kernel_size={kernel_size}, dilation={dilation}, padding={padding}, stride={stride}", kernel_size=REQUIRED,
    dilation=1, padding=0, stride=1,
)  # fmt: skip
PixelShuffle = layer(
    "PixelShuffle", __name__, F.pixel_shuffle, "Channels spread over larger images.",
    "upscale_factor={upscale_factor}", upscale_factor=REQUIRED,
)  # fmt: skip
PixelUnshuffle = layer(
    "PixelUnshuffle", __name__, F.pixel_unshuffle, "Pixels gathered into channels.",
    "downscale_factor={downscale_factor}", downscale_factor=REQUIRED,
)  # fmt: skip
ChannelShuffle = layer(
    "ChannelShuffle", __name__, F.channel_shuffle, "Channels of all groups interleaved.", "groups={groups}",
    groups=REQUIRED,
)  # fmt: skip
CosineSimilarity = layer(
    "CosineSimilarity", __name__, F.cosine_similarity, "The cosine of the angle along `dim`.", dim=1, eps=1e-8
)
PairwiseDistance = layer(
    "PairwiseDistance", __name__, F.pairwise_distance, "The p-norm of the difference of rows.", p=2.0, eps=1e-6,
    keepdim=False,
)  # fmt: skip


# --- resizing -------------------------------------------------------------------------------------------------


def _settle_upsample(upsample: Any) -> None:
    factor = upsample.scale_factor
    if factor is not None:
        upsample.scale_factor = tuple(map(float, factor)) if isinstance(factor, (tuple, list)) else float(factor)
    chosen = "scale_factor" if factor is not None else "size"
    upsample.__dict__["_chosen"] = f"{chosen}={getattr(upsample, chosen)}"


def _upsampling(name: str, doc: str, **fields: Any) -> Any:
    return layer(name, __name__, F.interpolate, doc, "{_chosen}, mode={mode!r}", settle=_settle_upsample, **fields)


Upsample = _upsampling(
    "Upsample", "Images resized.", size=None, scale_factor=None, mode="nearest", align_corners=None,
    recompute_scale_factor=None,
)  # fmt: skip
UpsamplingNearest2d = _upsampling(
    "UpsamplingNearest2d", "Images resized to the nearest pixel.", size=None, scale_factor=None, mode="nearest"
)
UpsamplingBilinear2d = _upsampling(
    "UpsamplingBilinear2d", "Images resized bilinearly, corners on corners.", size=None, scale_factor=None,
    mode="bilinear", align_corners=True,
)  # fmt: skip


# --- padding --------------------------------------------------------------------------------------------------


def _padding(name: str, mode: str, n: int) -> Any:
    """A class of padding over `n` dims; only the constant one takes a value."""
    takes_value = name == "Constant"

    def padded(input: Tensor, padding: Any, value: float = 0.0) -> Tensor:
        return F.pad(input, padding, mode=mode, value=value if mode == "constant" else None)

    def settle(pad: Any) -> None:
        pad.padding = ntuple(pad.padding, 2 * n)

    return layer(
        f"{name}Pad{n}d", __name__, padded, f"The last {n} dims made longer.",
        "padding={padding}, value={value}" if takes_value else "{padding}", settle=settle, padding=REQUIRED,
        **({"value": REQUIRED} if takes_value else {}),
    )  # fmt: skip


ConstantPad1d, ConstantPad2d, ConstantPad3d = (_padding("Constant", "constant", n) for n in (1, 2, 3))
ZeroPad1d, ZeroPad2d, ZeroPad3d = (_padding("Zero", "constant", n) for n in (1, 2, 3))
ReflectionPad1d, ReflectionPad2d, ReflectionPad3d = (_padding("Reflection", "reflect", n) for n in (1, 2, 3))
ReplicationPad1d, ReplicationPad2d, ReplicationPad3d = (_padding("Replication", "replicate", n) for n in (1, 2, 3))
CircularPad1d, CircularPad2d, CircularPad3d = (_padding("Circular", "circular", n) for n in (1, 2, 3))
