"""Bytes of images are resized in floats, and rounded."""

import pytest

import weft
from weft.nn import functional as F

X = ((weft.arange(48) * 37) % 256).to(weft.uint8).reshape(1, 1, 6, 8)


@pytest.mark.parametrize("mode", ["bilinear", "bicubic"])
@pytest.mark.parametrize("size", [(3, 5), (9, 11)])
def test_bytes_are_resized_as_floats_are(mode, size):
    found = F.interpolate(X, size, mode=mode)
    assert found.dtype is weft.uint8
    assert (found.float() - F.interpolate(X.float(), size, mode=mode).clamp(0, 255)).abs().max() <= 0.5001


PYTORCHS = {
    ("bilinear", (3, 5)): [44, 100, 157, 158, 62, 115, 165, 147],
    ("bilinear", (9, 11)): [0, 22, 49, 76, 103, 130, 156, 183],
    ("bicubic", (3, 5)): [34, 91, 164, 172, 53, 112, 177, 158],
    ("bicubic", (9, 11)): [0, 16, 46, 73, 100, 127, 153, 180],
}


@pytest.mark.parametrize(("mode", "size"), PYTORCHS)
def test_with_antialiasing_each_axis_is_rounded(mode, size):
    found = F.interpolate(X, size, mode=mode, antialias=True)
    assert found.dtype is weft.uint8
    assert found.flatten()[:8].tolist() == PYTORCHS[mode, size]


def test_other_integers_are_refused():
    with pytest.raises(NotImplementedError, match="not implemented for 'Long'"):
        F.interpolate(X.long(), (2, 2), mode="bilinear")
