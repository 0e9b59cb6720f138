import jax
import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from tests.native import formulas
from tests.native.formulas import close, draw
from weft.errors import ShapeError
from weft.ops._kernels import conv
from weft.ops._table import TABLE

channels = st.sampled_from([1, 2, 3, 8, 15, 16, 17, 33, 48, 66])
extents = {1: st.integers(1, 40), 2: st.integers(1, 12), 3: st.integers(1, 6)}


def check(x_shape, w_shape, windows):
    x, weight = draw(1, *x_shape), draw(2, *w_shape)
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


def plain(n, stride=1, pad=0):
    return (stride,) * n, ((pad, pad),) * n, (1,) * n


@st.composite
def cases(draw):
    """Shapes of an input and a weight, and windows that fit."""
    n = draw(st.sampled_from([1, 2, 2, 2, 3]))
    groups, c, o = draw(st.sampled_from([(1, None, None), (2, 3, 17), (3, 16, 5), (18, 1, 1), (5, 1, 2)]))
    c, o = c or draw(channels), o or draw(channels)

    def each(low, high):
        return tuple(draw(st.integers(low, high)) for _ in range(n))

    size, kernel = tuple(draw(extents[n]) for _ in range(n)), each(1, 4 if n < 3 else 3)
    strides, dilation, padding = each(1, 3), each(1, 3), tuple(zip(each(0, 3), each(0, 3), strict=True))
    assume(all(s + sum(p) > (k - 1) * d for s, p, k, d in zip(size, padding, kernel, dilation, strict=True)))
    batch = draw(st.integers(1, 5))
    return (batch, groups * c, *size), (groups * o, c, *kernel), (strides, padding, dilation)


@given(cases())
def test_convolution(case):
    check(*case)


@given(st.data())
def test_planes_of_several_blocks(data):
    """Strides make phases, which the last block of a plane may lack."""
    size, kernel, stride, pad = (data.draw(st.integers(*r)) for r in ((13, 90), (1, 8), (2, 6), (0, 2)))
    batch, c, o = (data.draw(st.sampled_from(sizes)) for sizes in ((1, 2), (1, 3, 17), (3, 16, 64)))
    check((batch, c, size, size + data.draw(st.integers(0, 3))), (o, c, kernel, kernel), plain(2, stride, pad))


@pytest.mark.parametrize(
    ("n", "c", "h", "w", "o", "k", "stride", "pad", "groups"),
    [
        (9, 16, 32, 32, 16, 3, 1, 1, 1),
        (2, 64, 8, 8, 64, 3, 1, 1, 1),
        (2, 32, 9, 9, 64, 1, 2, 0, 1),
        (2, 32, 9, 9, 64, 1, 1, 0, 1),
        (2, 3, 32, 32, 64, 7, 2, 3, 1),
        (3, 130, 6, 6, 96, 3, 1, 1, 1),  # a sum in several parts, small images
        (1, 96, 40, 40, 96, 3, 2, 1, 1),  # an image in several blocks
        (1, 5, 3, 1100, 8, 3, 1, 1, 1),  # a row in several blocks
        (2, 72, 9, 10, 72, 3, 2, 1, 72),  # depthwise, not a multiple of a vector
        (2, 64, 9, 10, 96, 3, 1, 1, 4),
        (1, 3, 299, 299, 32, 3, 2, 0, 1),
        (1, 3, 227, 227, 16, 11, 4, 0, 1),
    ],
)
def test_shapes_of_training(n, c, h, w, o, k, stride, pad, groups):
    check((n, c, h, w), (o, c // groups, k, k), plain(2, stride, pad))


@pytest.mark.parametrize("shape", [(0, 2, 4, 4), (2, 0, 4, 4), (2, 2, 1, 1), (2, 2, 1), (2, 2, 4, 4, 0)])
def test_empty(shape):
    n = len(shape) - 2
    check(shape, (3, shape[1], *(2,) * n), plain(n))


@pytest.mark.parametrize("special", [np.nan, np.inf])
def test_special_values_reach_their_windows_alone(special):
    x, w = draw(1, 2, 5, 7, 7), np.ones((17, 5, 3, 3), np.float32)
    x[1, 2, 6, 6] = special
    close(conv.conv(x, w, *plain(2, 1, 1)), formulas.conv(x.astype(np.float64), w, *plain(2, 1, 1)))


def test_equal_calls_have_equal_bits():
    x, w, g = draw(1, 4, 20, 23, 23), draw(2, 24, 20, 3, 3), draw(3, 4, 24, 23, 23)

    def bits():
        results = [
            conv.conv(x, w, *plain(2, 1, 1)),
            conv.conv_input_gradient(g, w, x.shape, *plain(2, 1, 1)),
            conv.conv_weight_gradient(g, x, w.shape, *plain(2, 1, 1)),
        ]
        return [np.asarray(result).tobytes() for result in results]

    assert bits() == bits()


def test_under_jit_between_other_operations():
    x, w = draw(1, 2, 16, 8, 8), draw(2, 16, 16, 3, 3)

    @jax.jit
    def run(x, w):
        y = conv.conv(x + 1, w, *plain(2, 1, 1))
        return conv.conv(y * 0.1, w, *plain(2, 1, 1)).sum((0, 2, 3))

    y = formulas.conv(x + 1.0, w, *plain(2, 1, 1)) * 0.1
    close(run(x, w), formulas.conv(y, w, *plain(2, 1, 1)).sum((0, 2, 3)), 1e-4)


@pytest.mark.parametrize(
    ("name", "x_shape", "w_shape", "options"),
    [
        ("conv1d", (2, 4, 11), (6, 2, 3), ((2,), "valid", (1,), 2)),
        ("conv2d", (2, 4, 5, 6), (3, 4, 2, 3), (1, "same", (2, 1), 1)),
        ("conv3d", (2, 4, 5, 6, 4), (4, 1, 2, 3, 2), (2, 1, 1, 4)),
        ("conv_transpose1d", (2, 4, 11), (4, 6, 3), ((2,), (1,), (1,), 1, (2,))),
        ("conv_transpose2d", (2, 4, 5, 6), (4, 3, 2, 3), ((2, 3), 0, (0, 2), 2, 1)),
        ("conv_transpose3d", (2, 4, 3, 4, 3), (4, 1, 2, 3, 2), (1, 1, 0, 4, 1)),
    ],
)
@pytest.mark.parametrize("biased", [False, True])
def test_bodies_are_those_of_the_rows(name, x_shape, w_shape, options, biased):
    row = TABLE[name]
    (native,) = row.native
    x, w = draw(1, *x_shape), draw(2, *w_shape)
    outputs = w_shape[1] * options[3] if "transpose" in name else w_shape[0]
    inputs = (x, w, draw(4, outputs)) if biased else (x, w)

    def body(impl, x, w, bias=None):
        return impl(x, w, bias, *options)

    assert body(native.serves, *inputs)
    y, pull = jax.vjp(lambda *inputs: body(row.impl, *inputs), *inputs)
    close(body(native.impl, *inputs), y)
    g = draw(3, *y.shape)
    gradients = native.vjp(g, None, *(*inputs, None)[:3], *options)
    assert (gradients[2] is not None) == biased
    for ours, expected in zip(gradients, pull(g), strict=False):
        close(ours, expected)


def test_output_padding_beyond_the_stride_is_left_to_xla():
    x, w = draw(1, 1, 2, 4), draw(2, 2, 3, 2)
    (native,) = TABLE["conv_transpose1d"].native
    assert not native.serves(x, w, None, 2, 0, 2, 1, 3)


def test_refused():
    x, w = draw(1, 1, 2, 4, 4), draw(2, 3, 2, 3, 3)
    with pytest.raises(ShapeError, match="expected"):
        conv.conv(x, w[:, :1], *plain(2))
    with pytest.raises(ShapeError, match="expected"):
        conv.conv(x, w[:, :, 0], *plain(2))
    with pytest.raises(ShapeError, match="must not be negative"):
        conv.conv(x, w, (1, 1), ((0, -1), (0, 0)), (1, 1))
    with pytest.raises(ShapeError, match=r"the gradient has shape \(1, 3, 1, 1\), expected \(1, 3, 2, 2\)"):
        conv.conv_input_gradient(draw(1, 1, 3, 1, 1), w, x.shape, *plain(2))
