"""torchvision's operators as its Python finds and calls them; rows have tests in `tests/ops`."""

import numpy as np
import pytest

import weft

weft.ops.load_library("torchvision/_C_stable.so")
OPS = weft.ops.torchvision


def kept(boxes, scores, threshold):
    """One box after another."""
    found = []
    for at in np.argsort(-scores, kind="stable"):
        areas = []
        for other in [at, *found]:
            sides = np.minimum(boxes[at, 2:], boxes[other, 2:]) - np.maximum(boxes[at, :2], boxes[other, :2])
            areas.append(np.prod(np.maximum(sides, 0)))
        sizes = [np.prod(boxes[other, 2:] - boxes[other, :2]) for other in [at, *found]]
        if all(a / (sizes[0] + s - a) <= threshold for a, s in zip(areas[1:], sizes[1:], strict=True)):
            found.append(at)
    return found


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("threshold", [0.0, 0.3, 1.0])
def test_boxes_that_overlap_better_ones_are_left_out(dtype, threshold):
    random = np.random.default_rng(0)
    corners = random.uniform(0, 20, (150, 2))
    boxes = np.concatenate([corners, corners + random.uniform(1, 9, (150, 2))], 1).astype(dtype)
    scores = random.integers(0, 40, 150).astype(dtype)  # many are equal
    assert OPS.nms(weft.tensor(boxes), weft.tensor(scores), threshold).tolist() == kept(boxes, scores, threshold)


def test_boxes_without_area_and_scores_that_are_nan():
    boxes = weft.tensor([[0, 0, 1, 1], [2, 2, 2, 2], [2, 2, 2, 2], [0, 0, 1, 1.0]])
    scores = weft.tensor([0.5, 0.1, 0.2, float("nan")])
    assert OPS.nms(boxes, scores, 0.5).tolist() == [3, 2, 1]
    assert OPS.nms(boxes[:0], scores[:0], 0.5).tolist() == []
    assert OPS.nms(boxes.half(), scores.half(), 0.5).tolist() == [3, 2, 1]


@pytest.mark.parametrize(
    ("boxes", "scores", "text"),
    [
        (weft.ones(4), weft.ones(1), "boxes should be a 2d tensor, got 1D"),
        (weft.ones(1, 5), weft.ones(1), "boxes should have 4 elements in dimension 1, got 5"),
        (weft.ones(1, 4), weft.ones(1, 1), "scores should be a 1d tensor, got 2D"),
        (weft.ones(1, 4), weft.ones(2), "same number of elements in dimension 0, got 1 and 2"),
        (weft.ones(1, 4), weft.ones(1).double(), "dets should have the same type as scores"),
        (weft.ones(1, 4).long(), weft.ones(1).long(), "\"nms_kernel\" not implemented for 'Long'"),
    ],
)
def test_what_are_no_boxes(boxes, scores, text):
    with pytest.raises(RuntimeError, match=text):
        OPS.nms(boxes, scores, 0.5)


def test_quantized_boxes_and_images():
    boxes = weft.tensor([[0, 0, 9, 9], [0, 0, 9, 8], [20, 20, 30, 30]], dtype=weft.uint8)
    assert OPS.qnms(boxes, weft.tensor([1, 2, 3], dtype=weft.uint8), 0.5).tolist() == [2, 1]
    images = weft.arange(36, dtype=weft.uint8).reshape(1, 1, 6, 6)
    rois = weft.tensor([[0, 2, 2, 8, 8]], dtype=weft.uint8)
    found = OPS.qroi_align(images, rois, 0.5, 3, 0.5, 0, 1.0, 2, 2, 2, False)
    plain = OPS.roi_align((images.float() - 3) / 2, rois / 2, 1.0, 2, 2, 2, False)
    assert found.dtype is weft.uint8
    assert found.tolist() == (plain * 2 + 3).round().tolist()


def test_what_a_library_registers_for_its_own_operators_is_left_aside():
    library = weft.library.Library("torchvision", "IMPL")
    for key in ("Meta", "Autograd", "AutocastCPU", "AutocastCUDA"):
        library.impl("nms", lambda *_: None, key)
    weft.library.register_autograd("torchvision::roi_align", lambda ctx, grad: None)
    assert weft.library.register_fake("torchvision::nms")(len) is len
    assert OPS.nms(weft.ones(1, 4), weft.ones(1), 0.5).tolist() == [0]
    assert OPS._cuda_version() == -1
    assert OPS.nms.default._schema == "torchvision::nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor"
    with pytest.raises(RuntimeError, match="torchvision::nms: it is an operator of Weft's own"):
        library.impl("nms", len, "CPU")
