"""Layers that reshape, pad and resize."""

from __future__ import annotations

from collections.abc import Sequence
from operator import attrgetter
from typing import TYPE_CHECKING

from weft._base.guards import is_list_or_tuple, is_tuple
from weft._base.types import Arg
from weft._tensor.tensor import Tensor
from weft.errors import ArgumentError, ValueRangeError
from weft.nn import functional as F
from weft.nn._layer import REQUIRED, layer
from weft.nn._module import Module
from weft.ops._neural import ntuple

if TYPE_CHECKING:
    from weft.nn._layer import LayerClass


def _flatten(
    input: Tensor, start_dim: int | str | Sequence[int | str], end_dim: int | str, out_dim: str | None
) -> Tensor:
    if isinstance(start_dim, (list, tuple)):
        return input.flatten(dims=start_dim, out_dim=out_dim)
    return input.flatten(start_dim, end_dim, *([] if out_dim is None else [out_dim]))


Flatten = layer(
    "Flatten",
    __name__,
    _flatten,
    "Dims from `start_dim` to `end_dim`, or the consecutive ones in a list, as one with the name `out_dim`.",
    "start_dim={start_dim}, end_dim={end_dim}",
    start_dim=1,
    end_dim=-1,
    out_dim=None,
)
type.__setattr__(Flatten, "out_dim", None)  # for layers that were pickled without it


def _unflatten(input: Tensor, dim: int | str, unflattened_size: Sequence[int] | Sequence[tuple[str, int]]) -> Tensor:
    return input.unflatten(dim, tuple(unflattened_size))


def _settle_unflatten(module: Module) -> None:
    size = module.unflattened_size
    if not is_list_or_tuple(size):
        raise ArgumentError(f"unflattened_size must be a tuple of ints, but found type {type(size).__name__}")
    for at, part in enumerate(size):
        if isinstance(module.dim, str) and is_list_or_tuple(part):
            continue  # a name and a size
        if not isinstance(part, int):
            raise ArgumentError(
                f"unflattened_size must be tuple of ints, but found element of type {type(part).__name__} at pos {at}"
            )


Unflatten = layer(
    "Unflatten",
    __name__,
    _unflatten,
    "One dim as several.",
    "dim={dim}, unflattened_size={unflattened_size}",
    settle=_settle_unflatten,
    dim=REQUIRED,
    unflattened_size=REQUIRED,
)
Fold = layer(
    "Fold",
    __name__,
    F.fold,
    "Columns summed into images.",
    "output_size={output_size}, kernel_size={kernel_size}, dilation={dilation}, padding={padding}, stride={stride}",
    output_size=REQUIRED,
    kernel_size=REQUIRED,
    dilation=1,
    padding=0,
    stride=1,
)
Unfold = layer(
    "Unfold",
    __name__,
    F.unfold,
    "Sliding blocks of images as columns.",
    "kernel_size={kernel_size}, dilation={dilation}, padding={padding}, stride={stride}",
    kernel_size=REQUIRED,
    dilation=1,
    padding=0,
    stride=1,
)
PixelShuffle = layer(
    "PixelShuffle",
    __name__,
    F.pixel_shuffle,
    "Channels spread over larger images.",
    "upscale_factor={upscale_factor}",
    upscale_factor=REQUIRED,
)
PixelUnshuffle = layer(
    "PixelUnshuffle",
    __name__,
    F.pixel_unshuffle,
    "Pixels gathered into channels.",
    "downscale_factor={downscale_factor}",
    downscale_factor=REQUIRED,
)
ChannelShuffle = layer(
    "ChannelShuffle",
    __name__,
    F.channel_shuffle,
    "Channels of all groups interleaved.",
    "groups={groups}",
    groups=REQUIRED,
)
CosineSimilarity = layer(
    "CosineSimilarity", __name__, F.cosine_similarity, "The cosine of the angle along `dim`.", dim=1, eps=1e-8
)


PairwiseDistance = layer(
    "PairwiseDistance",
    __name__,
    F.pairwise_distance,
    "The p-norm of the difference of rows.",
    p=2.0,
    eps=1e-6,
    keepdim=False,
)


def _set_norm(distance: Module, p: float) -> None:
    distance.norm = p


type.__setattr__(PairwiseDistance, "p", property(attrgetter("norm"), _set_norm))  # `norm` is PyTorch's, and saved


# --- resizing -------------------------------------------------------------------------------------------------


def _settle_upsample(upsample: Module) -> None:
    upsample.name = type(upsample).__name__
    factor = upsample.scale_factor
    if is_tuple(factor):
        upsample.scale_factor = tuple(map(float, factor))
    else:
        upsample.scale_factor = float(factor) if factor else None


class Upsample(
    layer(
        "Upsample",
        __name__,
        F.interpolate,
        "",
        settle=_settle_upsample,
        size=None,
        scale_factor=None,
        mode="nearest",
        align_corners=None,
        recompute_scale_factor=None,
    )
):
    """Resizes images, to `size` or by `scale_factor`."""

    def extra_repr(self) -> str:
        """The factor or the size, and the mode."""
        chosen = "size" if self.scale_factor is None else "scale_factor"
        return f"{chosen}={getattr(self, chosen)!r}, mode={self.mode!r}"


class UpsamplingNearest2d(Upsample):
    """Resizes images by nearest-neighbour interpolation."""

    def __init__(
        self, size: int | Sequence[int] | None = None, scale_factor: float | Sequence[float] | None = None
    ) -> None:
        super().__init__(size, scale_factor, mode="nearest")


class UpsamplingBilinear2d(Upsample):
    """Resizes images by bilinear interpolation, with aligned corners."""

    def __init__(
        self, size: int | Sequence[int] | None = None, scale_factor: float | Sequence[float] | None = None
    ) -> None:
        super().__init__(size, scale_factor, mode="bilinear", align_corners=True)


# --- padding --------------------------------------------------------------------------------------------------


class _ConstantPadNd(Module):
    """What constant padding of each number of dims derives from: libraries ask for the kind of a layer."""


class _ReflectionPadNd(Module):
    """What padding by reflection derives from."""


class _ReplicationPadNd(Module):
    """What padding by repetition of the border derives from."""


class _CircularPadNd(Module):
    """What circular padding derives from."""


def _padding(
    base: LayerClass, name: str, mode: str, n: int, repr_format: str = "{padding}", **fields: Arg
) -> LayerClass:
    """A class of padding over `n` dims; `fields` may include the value to pad with."""

    def padded(input: Tensor, padding: int | Sequence[int], value: float | None = None) -> Tensor:
        if mode == "circular" and input.ndim not in (n + 1, n + 2):
            raise ValueRangeError(f"expected {n + 1}D or {n + 2}D input (got {input.ndim}D input)")
        return F.pad(input, padding, mode, value)

    def settle(pad: Module) -> None:
        pad.padding = ntuple(pad.padding, 2 * n)

    doc = f"The last {n} dims made longer."
    return layer(
        f"{name}Pad{n}d", __name__, padded, doc, repr_format, base=base, settle=settle, padding=REQUIRED, **fields
    )


ConstantPad1d, ConstantPad2d, ConstantPad3d = (
    _padding(_ConstantPadNd, "Constant", "constant", n, "padding={padding}, value={value}", value=REQUIRED)
    for n in (1, 2, 3)
)
ReflectionPad1d, ReflectionPad2d, ReflectionPad3d = (
    _padding(_ReflectionPadNd, "Reflection", "reflect", n) for n in (1, 2, 3)
)
ReplicationPad1d, ReplicationPad2d, ReplicationPad3d = (
    _padding(_ReplicationPadNd, "Replication", "replicate", n) for n in (1, 2, 3)
)
CircularPad1d, CircularPad2d, CircularPad3d = (_padding(_CircularPadNd, "Circular", "circular", n) for n in (1, 2, 3))


class _ZeroPad:
    """A mixin that makes constant padding pad with zeros."""

    padding: tuple[int, ...]

    def __init__(self, padding: int | Sequence[int]) -> None:
        super().__init__(padding, 0.0)  # pyright: ignore[reportCallIssue]  the constant padding behind this class

    def extra_repr(self) -> str:
        """The padding."""
        return str(self.padding)


class ZeroPad1d(_ZeroPad, ConstantPad1d):
    """Pads the last dim with zeros."""


class ZeroPad2d(_ZeroPad, ConstantPad2d):
    """Pads the last 2 dims with zeros."""


class ZeroPad3d(_ZeroPad, ConstantPad3d):
    """Pads the last 3 dims with zeros."""
