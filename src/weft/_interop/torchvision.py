"""torchvision's compiled operators, `weft.ops.torchvision`.

Those whose results have known sizes are rows (`ops/regions.py`, `ops/deformable.py`).
"""

from __future__ import annotations

import numpy as np

from weft._base.dtype import float32, float64
from weft._base.types import Arg
from weft._interop.provided import provide_rows, provided
from weft._tensor.codegen import function_of
from weft._tensor.convert import from_host
from weft._tensor.tensor import Tensor, placed_with
from weft.errors import DTypeError, ShapeError, UnsupportedDTypeError
from weft.ops._kinds import HostArray
from weft.ops._table import TABLE
from weft.ops._type_names import scalar_name

_POOLED = "float spatial_scale, SymInt pooled_height, SymInt pooled_width"
_SIZES = "SymInt batch_size, SymInt channels, SymInt height, SymInt width"
_STEPS = (
    "SymInt stride_h, SymInt stride_w, SymInt pad_h, SymInt pad_w, SymInt dilation_h, SymInt dilation_w, "
    "SymInt groups, SymInt offset_groups, bool use_mask"
)
_CONVOLVED = "Tensor input, Tensor weight, Tensor offset, Tensor mask, Tensor bias"

provide_rows(
    f"torchvision::roi_align(Tensor input, Tensor rois, {_POOLED}, int sampling_ratio, bool aligned) -> Tensor",
    f"torchvision::_roi_align_backward(Tensor grad, Tensor rois, {_POOLED}, {_SIZES}, int sampling_ratio, bool aligned)"
    " -> Tensor",
    f"torchvision::ps_roi_align(Tensor input, Tensor rois, {_POOLED}, int sampling_ratio) -> (Tensor, Tensor)",
    f"torchvision::_ps_roi_align_backward(Tensor grad, Tensor rois, Tensor channel_mapping, {_POOLED}, "
    f"int sampling_ratio, {_SIZES}) -> Tensor",
    f"torchvision::roi_pool(Tensor input, Tensor rois, {_POOLED}) -> (Tensor, Tensor)",
    f"torchvision::_roi_pool_backward(Tensor grad, Tensor rois, Tensor argmax, {_POOLED}, {_SIZES}) -> Tensor",
    f"torchvision::ps_roi_pool(Tensor input, Tensor rois, {_POOLED}) -> (Tensor, Tensor)",
    f"torchvision::_ps_roi_pool_backward(Tensor grad, Tensor rois, Tensor channel_mapping, {_POOLED}, {_SIZES})"
    " -> Tensor",
    f"torchvision::deform_conv2d({_CONVOLVED}, {_STEPS}) -> Tensor",
    f"torchvision::_deform_conv2d_backward(Tensor grad, {_CONVOLVED}, {_STEPS})"
    " -> (Tensor, Tensor, Tensor, Tensor, Tensor)",
)

_roi_align = function_of(TABLE["torchvision::roi_align"])


@provided("torchvision::_cuda_version() -> int")
def cuda_version() -> int:
    """The version of CUDA for which the operators are compiled: -1 for none."""
    return -1


@provided("torchvision::nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
def nms(dets: Tensor, scores: Tensor, iou_threshold: float) -> Tensor:
    """The boxes, from the highest score down, that overlap no kept one by more than the threshold.

    Waits for the elements, and computes on the host. Overlap is the share of the intersection in the union.
    """
    if dets.ndim != 2:
        raise ShapeError(f"boxes should be a 2d tensor, got {dets.ndim}D")
    if dets.shape[1] != 4:
        raise ShapeError(f"boxes should have 4 elements in dimension 1, got {dets.shape[1]}")
    if scores.ndim != 1:
        raise ShapeError(f"scores should be a 1d tensor, got {scores.ndim}D")
    if dets.shape[0] != scores.shape[0]:
        raise ShapeError(
            "boxes and scores should have same number of elements in dimension 0, "
            f"got {dets.shape[0]} and {scores.shape[0]}"
        )
    if dets.dtype is not scores.dtype:
        raise DTypeError(f"dets should have the same type as scores, got {dets.dtype} and {scores.dtype}")
    if not dets.dtype.is_floating_point:
        raise UnsupportedDTypeError(f"\"nms_kernel\" not implemented for '{scalar_name(dets)}'")
    boxes, values = (_wide(x.detach()._host()) for x in (dets, scores))
    return placed_with(dets, from_host(_kept(boxes, values, iou_threshold), dets.device))


@provided("torchvision::qnms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
def qnms(dets: Tensor, scores: Tensor, iou_threshold: float) -> Tensor:
    """`nms` of the integers of quantized boxes and scores."""
    return nms(dets.to(float64), scores.to(float64), iou_threshold)


@provided(
    "torchvision::qroi_align(Tensor input, Tensor rois, float input_scale, int input_zero_point, float rois_scale, "
    f"int rois_zero_point, {_POOLED}, int sampling_ratio, bool aligned) -> Tensor"
)
def qroi_align(
    input: Tensor,
    rois: Tensor,
    input_scale: float,
    input_zero_point: int,
    rois_scale: float,
    rois_zero_point: int,
    *how: Arg,
) -> Tensor:
    """`roi_align` of quantized images and regions, as integers, on the grid of the images."""
    images, regions = (
        (x.to(float32) - zero_point) * scale
        for x, scale, zero_point in ((input, input_scale, input_zero_point), (rois, rois_scale, rois_zero_point))
    )
    levels = np.iinfo(input.dtype.numpy)
    result = _roi_align(images, regions, *how) / input_scale
    return (result.round() + input_zero_point).clamp(levels.min, levels.max).to(input.dtype)


def _wide(array: HostArray) -> HostArray:
    """16-bit floats in float32, as rows compute."""
    return array.astype(np.float32) if array.dtype.itemsize == 2 else array


_BLOCK = 32
"""How many boxes are compared with all that follow at once: more compare in vain with boxes that none of them keeps."""


def _kept(boxes: HostArray, scores: HostArray, threshold: float) -> HostArray:
    """The indices of the boxes that `nms` keeps."""
    order = np.argsort(-np.where(np.isnan(scores), np.inf, scores), kind="stable")  # NaN is the largest
    corners = np.ascontiguousarray(boxes[order].T)
    kept = [order[:0]]
    while order.size:
        first = corners[:, :_BLOCK]
        later = np.triu(_overlap(first, first, threshold), 1)
        keep = np.ones(len(later), bool)
        for at in np.flatnonzero(later.any(1)):
            if keep[at]:
                keep &= ~later[at]
        kept.append(order[:_BLOCK][keep])
        order, corners = order[_BLOCK:], corners[:, _BLOCK:]
        free = ~_overlap(first[:, keep], corners, threshold).any(0)
        if not free.all():
            order, corners = order[free], corners[:, free]
    return np.concatenate(kept)


def _overlap(some: HostArray, others: HostArray, threshold: float) -> HostArray:
    """Whether boxes overlap others by more than the threshold: (box, other)."""
    (x1, y1, x2, y2), (left, top, right, bottom) = some[:, :, None], others[:, None, :]
    width, height = np.minimum(x2, right), np.minimum(y2, bottom)
    width -= np.maximum(x1, left)
    height -= np.maximum(y1, top)
    np.maximum(width, 0, out=width)
    np.maximum(height, 0, out=height)
    width *= height  # the intersection
    union = (x2 - x1) * (y2 - y1) + (right - left) * (bottom - top)
    union -= width
    with np.errstate(divide="ignore", invalid="ignore"):
        width /= union
    return width > np.float64(threshold)
