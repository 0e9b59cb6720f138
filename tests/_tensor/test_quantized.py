"""Quantized tensors: what they consist of, what moves them, and what they refuse."""

from __future__ import annotations

import copy
import io
import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import weft
from weft.errors import DTypeError, LayoutError, UnsupportedCallError

X = weft.tensor([[0.6, -0.24, 0.31], [1.2, -1.1, 0.05]])


@pytest.fixture
def q():
    return weft.quantize_per_tensor(X, 0.1, 10, weft.quint8)


@pytest.fixture
def channels():
    return weft.quantize_per_channel(X, weft.tensor([0.1, 0.2]), weft.tensor([1, 0]), 0, weft.qint8)


def test_parts(q, channels):
    assert (q.dtype, q.q_scale(), q.q_zero_point(), q.qscheme()) == (weft.quint8, 0.1, 10, weft.per_tensor_affine)
    assert q.int_repr().tolist() == [[16, 8, 13], [22, 0, 10]]
    assert (q.is_quantized, q.layout, q.element_size(), q.type()) == (
        True,
        weft.strided,
        1,
        "torch.quantized.QUInt8Tensor",
    )
    assert not X.is_quantized
    np.testing.assert_allclose(q.dequantize().numpy(), [[0.6, -0.2, 0.3], [1.2, -1, 0]], rtol=1e-6)
    assert channels.qscheme() is weft.per_channel_affine
    assert channels.q_per_channel_axis() == 0
    assert channels.q_per_channel_scales().dtype is weft.float64
    assert channels.q_per_channel_zero_points().tolist() == [1, 0]
    assert channels.int_repr().tolist() == [[7, -1, 4], [6, -6, 0]]


def test_text(q, channels):
    assert repr(q) == (
        "tensor([[ 0.6000, -0.2000,  0.3000],\n        [ 1.2000, -1.0000,  0.0000]], size=(2, 3), dtype=torch.quint8,\n"
        "       quantization_scheme=torch.per_tensor_affine, scale=0.1, zero_point=10)"
    )
    assert repr(channels).endswith(
        "quantization_scheme=torch.per_channel_affine,\n       scale=tensor([0.1000, 0.2000], dtype=torch.float64),\n"
        "       zero_point=tensor([1, 0]), axis=0)"
    )


MOVES = {
    "transpose": lambda x: x.t(),
    "view": lambda x: x.view(6),
    "row": lambda x: x[1],
    "slice": lambda x: x[:, 1:],
    "mask": lambda x: x[weft.tensor([False, True])],
    "expand": lambda x: x.expand(2, 2, 3),
    "chunk": lambda x: x.chunk(3, 1)[2],
    "flip": lambda x: x.flip(0),
    "cat": lambda x: weft.cat([x, x], 1),
    "stack": lambda x: weft.stack([x, x]),
    "squeeze": lambda x: x.unsqueeze(0).squeeze(0),
    "sort": lambda x: x.sort().values,
    "max": lambda x: x.max(1).values,
    "max_pool": lambda x: weft.nn.functional.max_pool2d(x[None, None], 2),
    "relu": lambda x: x.relu(),
    "clamp": lambda x: x.clamp(-0.5, 0.5),
    "pad": lambda x: weft.nn.functional.pad(x, (1, 1)),
    "clone": lambda x: x.clone(),
}


@pytest.mark.parametrize("name", MOVES)
def test_what_moves_numbers_moves_integers(name, q):
    result, expected = MOVES[name](q), MOVES[name](q.dequantize())
    assert result.q_scale() == 0.1
    weft.testing.assert_close(result.dequantize(), expected)


def test_means_are_on_the_same_grid(q):
    y = weft.nn.functional.adaptive_avg_pool2d(q[None], 1)
    assert y.q_scale() == 0.1
    assert abs(y.dequantize().item() - q.dequantize().mean().item()) <= 0.05 + 1e-6


def test_gelu_keeps_the_grid():
    x = weft.quantize_per_tensor(weft.linspace(-3, 3, 13), 0.05, 60, weft.quint8)
    levels = [60, 60, 59, 58, 57, 57, 60, 67, 77, 88, 99, 110, 120]  # PyTorch's
    assert weft.nn.functional.gelu(x).int_repr().tolist() == levels


@given(st.lists(st.floats(-6, 6, width=32), min_size=1, max_size=5))
def test_ranges_that_are_known_have_a_grid_of_their_own(numbers):
    x = weft.quantize_per_tensor(weft.tensor(numbers), 0.05, 120, weft.quint8)
    for function, scale, zero in ((weft.sigmoid, 1 / 256, 0), (weft.tanh, 2 / 256, 128)):
        y = function(x)
        assert (y.q_scale(), y.q_zero_point()) == (scale, zero)
        np.testing.assert_allclose(y.dequantize().numpy(), function(x.dequantize()).numpy(), atol=scale)


def test_comparisons_are_of_numbers(q):
    other = weft.quantize_per_tensor(X, 0.2, 3, weft.quint8)
    assert (q == q).all()
    assert weft.equal(q > 0.1, q.dequantize() > 0.1)
    assert weft.equal(q < other, q.dequantize() < other.dequantize())
    assert weft.equal(q, q.clone())


def test_a_channel_has_one_grid(channels):
    assert channels[1].q_scale() == pytest.approx(0.2)
    assert channels[1].int_repr().tolist() == [6, -6, 0]
    assert channels[0:1].q_scale() == pytest.approx(0.1)  # as in PyTorch
    with pytest.raises(LayoutError, match=r"t\(\): possible only on uniformly quantized tensors, and this one is"):
        channels.t()


CUTS = {
    "slices of the axis": (lambda x: x[:, 1:3], [0.2, 0.3], 1),
    "steps of the axis": (lambda x: x[:, ::2], [0.1, 0.3], 1),
    "slices of another dim": (lambda x: x[1:], [0.1, 0.2, 0.3], 1),
    "an index before": (lambda x: x[1], [0.1, 0.2, 0.3], 0),
    "an index behind": (lambda x: x[..., -1], [0.1, 0.2, 0.3], 1),
    "a new dim before": (lambda x: x[None, :1], [0.1, 0.2, 0.3], 2),
    "a new dim behind": (lambda x: x.unsqueeze(-1), [0.1, 0.2, 0.3], 1),
    "chunks": (lambda x: x.chunk(2, 1)[0], [0.1, 0.2], 1),
    "several": (lambda x: x[1:, 1:, 0], [0.2, 0.3], 1),
}


@pytest.mark.parametrize("name", CUTS)
def test_parts_have_the_grids_of_their_channels(name):
    cut, scales, axis = CUTS[name]
    x = weft.quantize_per_channel(
        weft.linspace(-3, 3, 24).view(2, 3, 4), weft.tensor([0.1, 0.2, 0.3]), weft.tensor([1, 0, -4]), 1, weft.qint8
    )
    part = cut(x)
    assert part.q_per_channel_axis() == axis
    np.testing.assert_allclose(part.q_per_channel_scales().numpy(), scales)
    assert weft.equal(part.int_repr(), cut(x.int_repr()))
    assert weft.equal(part.dequantize(), cut(x.dequantize()))


def test_writes_are_put_on_the_grid(q):
    q[0] = weft.zeros(3)
    q[:, 2] = weft.quantize_per_tensor(weft.tensor([1.0, 2.0]), 0.5, 0, weft.quint8)
    q.view(6)[3] = 100.0
    assert q.int_repr().tolist() == [[10, 10, 20], [255, 0, 30]]
    q.copy_(weft.full((3,), 0.04))
    assert q.int_repr().tolist() == [[10] * 3] * 2
    q.relu_()
    plain = weft.zeros(2, 3)
    with pytest.raises(RuntimeError, match="Copying from quantized Tensor to non-quantized Tensor is not allowed"):
        plain.copy_(q)
    assert plain.tolist() == [[0] * 3] * 2


@pytest.mark.parametrize("form", ["q", "channels"])
def test_copies_and_files(form, request):
    x = request.getfixturevalue(form)
    file = io.BytesIO()
    weft.save({"x": x, "dtype": x.dtype, "scheme": x.qscheme()}, file)
    file.seek(0)
    loaded = weft.load(file)
    assert (loaded["dtype"], loaded["scheme"]) == (x.dtype, x.qscheme())
    for again in (loaded["x"], copy.deepcopy(x), copy.copy(x), pickle.loads(pickle.dumps(x)), x.detach(), x.cpu()):
        assert repr(again) == repr(x)
        assert weft.equal(again.int_repr(), x.int_repr())


@pytest.mark.parametrize(
    ("ends", "dtype", "scale", "zero"),
    [
        ([-1, 2], weft.quint8, 3 / 255, 85),
        ([-1, 2], weft.qint8, 3 / 255, -43),
        ([1, 2], weft.quint8, 2 / 255, 0),
        ([-3, -1], weft.qint8, 3 / 255, 127),
        ([0, 0], weft.quint8, 0.1, 0),
    ],
)
def test_a_grid_from_the_range(ends, dtype, scale, zero):
    x = weft.quantize_per_tensor_dynamic(weft.tensor(ends, dtype=weft.float32), dtype, False)
    assert x.q_scale() == pytest.approx(scale, rel=1e-6)
    assert x.q_zero_point() == zero


REFUSED = {
    "add": (lambda q: q + q, UnsupportedCallError, r"'aten::add' .* 'QuantizedCPU' backend: .* use x\.dequantize\(\)"),
    "float": (lambda q: q.float(), DTypeError, r"Creation of quantized tensor requires quantized dtype"),
    "numpy": (lambda q: q.numpy(), TypeError, r"Got unsupported ScalarType torch\.quint8: use x\.dequantize"),
    "list": (lambda q: q.tolist(), RuntimeError, r"use x\.dequantize\(\)\.tolist\(\), or x\.int_repr\(\)"),
    "item": (lambda q: q.item(), RuntimeError, "a Tensor with 6 elements cannot be converted to Scalar"),
    "gradient": (lambda q: q.requires_grad_(), RuntimeError, "only Tensors of floating point dtype"),
    "scales": (lambda q: q.q_per_channel_scales(), RuntimeError, r"got torch\.per_tensor_affine; use q_scale\(\)"),
    "twice": (lambda q: weft.quantize_per_tensor(q, 1.0, 0, weft.quint8), NotImplementedError, "QuantizedCPU"),
    "plain": (lambda q: X.q_scale(), NotImplementedError, r"the tensor is not quantized; use torch\.quantize_per"),
    "zeros": (lambda q: weft.zeros(2, dtype=weft.quint8), NotImplementedError, "what torch.quantize_per_tensor makes"),
    "like": (lambda q: weft.zeros_like(q), NotImplementedError, "zeros_like"),
    "tensor": (lambda q: weft.tensor([1], dtype=weft.qint8), RuntimeError, "what torch.quantize_per_tensor makes"),
    "kind": (lambda q: weft.quantize_per_tensor(X, 1.0, 0, weft.uint8), RuntimeError, r"use one of torch\.quint8"),
    "double": (
        lambda q: weft.quantize_per_tensor(X.double(), 1.0, 0, weft.quint8),
        RuntimeError,
        r"Quantize only works on Float Tensor, got Double; use x\.float\(\) first",
    ),
    "zero": (
        lambda q: weft.quantize_per_tensor(X, 1.0, 300, weft.quint8),
        RuntimeError,
        "zero_point 300 is above upper bound 255",
    ),
    "channels": (
        lambda q: weft.quantize_per_channel(X, weft.ones(3), weft.zeros(3).long(), 0, weft.quint8),
        RuntimeError,
        "length of scales must equal to channel, expected 2 got, 3",
    ),
    "promotion": (lambda q: weft.promote_types(weft.quint8, weft.float32), RuntimeError, "quantized numbers is not"),
    "sign": (lambda q: weft.quint8.is_signed, RuntimeError, "isSignedType not supported for quantized types"),
    "mixed": (lambda q: weft.cat([q, X]), RuntimeError, "expected all tensors to be quantized, or none"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_refused(name, q):
    call, kind, text = REFUSED[name]
    with pytest.raises(kind, match=text):
        call(q)


@pytest.mark.parametrize("per_row", [False, True])
def test_ranges_are_those_of_observing_and_grids_those_of_rounding(per_row):
    rows = 2 if per_row else 1
    start = (float("inf"), -float("inf"), 1.0, 0)
    low, high, scale, zero = (weft.full((rows,), x) for x in start)
    x = weft.tensor([[-2.55, 2.55], [-2.55, 2.55]])

    def call(observes, rounds):
        flags = (weft.tensor([observes]), weft.tensor([rounds]))
        return weft.fused_moving_avg_obs_fake_quant(x, *flags, low, high, scale, zero, 0.5, 0, 255, 0, per_row)

    assert call(1, 0).tolist() == x.tolist()
    assert (low[0].item(), high[0].item()) == pytest.approx((-2.55, 2.55))
    assert (scale.tolist(), zero.tolist()) == ([1] * rows, [0] * rows)
    x *= 2
    assert call(0, 1)[0].tolist() == pytest.approx([-2.56, 2.54])
    assert high[0].item() == pytest.approx(2.55)
    assert (scale.tolist(), zero.tolist()) == (pytest.approx([0.02] * rows), [128] * rows)
