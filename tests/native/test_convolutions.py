import jax
import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from tests.native import formulas
from tests.native.formulas import close, draw
from weft.errors import ShapeError
from weft.ops._kernels import conv

channels = st.sampled_from([1, 2, 3, 8, 15, 16, 17, 33, 48, 66])
extent = st.integers(1, 12)
step = st.tuples(st.integers(1, 3), st.integers(1, 3))
pads = st.tuples(st.integers(0, 3), st.integers(0, 3))


def check(n, c, h, w, o, kernel, windows):
    x, weight = draw(1, n, c, h, w), draw(2, o, c, *kernel)
    wide_x, wide_weight = x.astype(np.float64), weight.astype(np.float64)
    y = conv.conv(x, weight, *windows)
    close(y, formulas.conv(wide_x, wide_weight, *windows))
    g = draw(3, *y.shape)
    wide_g = g.astype(np.float64)
    close(
        conv.conv_input_gradient(g, weight, x.shape, *windows),
        formulas.conv_input_gradient(wide_g, wide_weight, x.shape, *windows),
    )
    close(
        conv.conv_weight_gradient(g, x, weight.shape, *windows),
        formulas.conv_weight_gradient(wide_g, wide_x, weight.shape, *windows),
    )


@given(
    st.integers(1, 5), channels, extent, extent, channels,
    st.tuples(st.integers(1, 4), st.integers(1, 4)), step, st.tuples(pads, pads), step,
)  # fmt: skip
def test_convolution(n, c, h, w, o, kernel, strides, padding, dilation):
    fits = [s + sum(p) > (k - 1) * d for s, p, k, d in zip((h, w), padding, kernel, dilation, strict=True)]
    assume(all(fits))
    check(n, c, h, w, o, kernel, (strides, padding, dilation))


@pytest.mark.parametrize(
    ("n", "c", "h", "w", "o", "k", "stride", "pad"),
    [
        (9, 16, 32, 32, 16, 3, 1, 1),
        (2, 64, 8, 8, 64, 3, 1, 1),
        (2, 32, 9, 9, 64, 1, 2, 0),
        (2, 3, 32, 32, 64, 7, 2, 3),
        (3, 130, 6, 6, 96, 3, 1, 1),  # a large weight, small images
        (1, 96, 40, 40, 96, 3, 2, 1),  # a large weight, large images
        (1, 8, 100, 90, 8, 3, 1, 1),  # an image in several tasks
    ],
)
def test_shapes_of_training(n, c, h, w, o, k, stride, pad):
    check(n, c, h, w, o, (k, k), ((stride, stride), ((pad, pad), (pad, pad)), (1, 1)))


@pytest.mark.parametrize("shape", [(0, 2, 4, 4), (2, 0, 4, 4), (2, 2, 1, 1)])
def test_empty(shape):
    check(*shape, 3, (2, 2), ((1, 1), ((0, 0), (0, 0)), (1, 1)))


@pytest.mark.parametrize("special", [np.nan, np.inf])
def test_special_values_reach_their_windows_alone(special):
    x, w = draw(1, 2, 5, 7, 7), np.ones((17, 5, 3, 3), np.float32)
    x[1, 2, 6, 6] = special
    windows = ((1, 1), ((1, 1), (1, 1)), (1, 1))
    close(conv.conv(x, w, *windows), formulas.conv(x.astype(np.float64), w, *windows))


def test_under_jit_between_other_operations():
    x, w = draw(1, 2, 16, 8, 8), draw(2, 16, 16, 3, 3)
    windows = ((1, 1), ((1, 1), (1, 1)), (1, 1))

    @jax.jit
    def run(x, w):
        y = conv.conv(x + 1, w, *windows)
        return conv.conv(y * 0.1, w, *windows).sum((0, 2, 3))

    y = formulas.conv(x + 1.0, w, *windows) * 0.1
    close(run(x, w), formulas.conv(y, w, *windows).sum((0, 2, 3)), 1e-4)


def test_refused():
    x, w = draw(1, 1, 2, 4, 4), draw(2, 3, 2, 3, 3)
    with pytest.raises(ShapeError, match="expected"):
        conv.conv(x, w[:, :1], (1, 1), ((0, 0), (0, 0)))
    with pytest.raises(ShapeError, match="must not be negative"):
        conv.conv(x, w, (1, 1), ((0, -1), (0, 0)))
    with pytest.raises(ShapeError, match=r"the gradient has shape \(1, 3, 1, 1\), expected \(1, 3, 2, 2\)"):
        conv.conv_input_gradient(draw(1, 1, 3, 1, 1), w, x.shape, (1, 1), ((0, 0), (0, 0)))
