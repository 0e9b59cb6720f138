"""Bytes of images are resized in floats, and rounded."""

import pytest

import weft
from weft.nn import functional as F


@pytest.mark.parametrize("antialias", [False, True])
@pytest.mark.parametrize("mode", ["bilinear", "bicubic"])
@pytest.mark.parametrize("size", [(3, 5), (9, 11)])
def test_bytes_are_resized_as_floats_are(mode, antialias, size):
    x = ((weft.arange(48) * 37) % 256).to(weft.uint8).reshape(1, 1, 6, 8)
    found = F.interpolate(x, size, mode=mode, antialias=antialias)
    wanted = F.interpolate(x.float(), size, mode=mode, antialias=antialias).clamp(0, 255)
    assert found.dtype is weft.uint8
    # With antialiasing, each axis is rounded.
    assert (found.float() - wanted).abs().max() <= (1.1 if antialias else 0.5001)


def test_other_integers_are_refused():
    with pytest.raises(NotImplementedError, match="not implemented for 'Long'"):
        F.interpolate(weft.ones(1, 1, 4, 4).long(), (2, 2), mode="bilinear")
