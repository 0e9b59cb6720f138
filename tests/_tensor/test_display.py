"""Printed texts are PyTorch's, letter by letter."""

from __future__ import annotations

import pytest

import weft
from weft import Tensor, tensor

nan, inf = float("nan"), float("inf")

TEXTS = [
    (tensor(1), "tensor(1)"),
    (tensor(2.5), "tensor(2.5000)"),
    (tensor(True), "tensor(True)"),
    (tensor([1, -2, 300]), "tensor([  1,  -2, 300])"),
    (tensor([True, False]), "tensor([ True, False])"),
    (tensor([1.0, 2.0]), "tensor([1., 2.])"),
    (tensor([0.0, -0.0]), "tensor([0., -0.])"),
    (tensor([nan, 1.5, inf, -inf]), "tensor([   nan, 1.5000,    inf,   -inf])"),
    (tensor([nan, inf]), "tensor([nan, inf])"),
    (tensor([1e-5, 1.0]), "tensor([1.0000e-05, 1.0000e+00])"),
    (tensor([1e9, 1.0]), "tensor([1.0000e+09, 1.0000e+00])"),
    (tensor([1 + 2j, 3 - 4.5j]), "tensor([1.+2.0000j, 3.-4.5000j])"),
    (tensor(1 + 2j), "tensor(1.+2.j)"),
    (tensor([1.1, 2.2]).bfloat16(), "tensor([1.1016, 2.2031], dtype=torch.bfloat16)"),
    (tensor([65504.0, 1.0]).half(), "tensor([6.5504e+04, 1.0000e+00], dtype=torch.float16)"),
    (tensor([1.0]).double(), "tensor([1.], dtype=torch.float64)"),
    (tensor([1], dtype=weft.uint8), "tensor([1], dtype=torch.uint8)"),
    (tensor([1j]).cdouble(), "tensor([0.+1.j], dtype=torch.complex128)"),
    (tensor([]), "tensor([])"),
    (weft.zeros(0, 3), "tensor([], size=(0, 3))"),
    (weft.zeros(0, dtype=weft.int64), "tensor([], dtype=torch.int64)"),
    (tensor([[1, 2], [3, 4]]), "tensor([[1, 2],\n        [3, 4]])"),
    (tensor([[[1], [2]], [[3], [4]]]), "tensor([[[1],\n         [2]],\n\n        [[3],\n         [4]]])"),
    (
        weft.arange(30),
        "tensor([ 0,  1,  2,  3,  4,  5,  6,  7,  8,  9, 10, 11, 12, 13, 14, 15, 16, 17,\n"
        "        18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29])",
    ),
    (weft.arange(1001), "tensor([   0,    1,    2,  ...,  998,  999, 1000])"),
    (
        weft.arange(2000.0).reshape(1000, 2),
        "tensor([[0.0000e+00, 1.0000e+00],\n        [2.0000e+00, 3.0000e+00],\n        [4.0000e+00, 5.0000e+00],\n"
        "        ...,\n        [1.9940e+03, 1.9950e+03],\n        [1.9960e+03, 1.9970e+03],\n"
        "        [1.9980e+03, 1.9990e+03]])",
    ),
]


@pytest.mark.parametrize(("value", "text"), TEXTS, ids=[text[:40] for _, text in TEXTS])
def test_text(value, text):
    assert repr(value) == str(value) == text


X = tensor([[1.0, 2.0], [3.0, 4.0]], requires_grad=True)

NAMES = {
    "Add": lambda x: x + 1,
    "Mul": lambda x: x * 2,
    "Div": lambda x: x / 2,
    "Pow": lambda x: x**2,
    "Neg": lambda x: -x,
    "Sum": lambda x: x.sum(),
    "Mean": lambda x: x.mean(),
    "Mm": lambda x: x @ x,
    "Mv": lambda x: x @ x[0],
    "Dot": lambda x: x[0] @ x[0],
    "Relu": lambda x: x.relu(),
    "View": lambda x: x.view(4),
    "T": lambda x: x.t(),
    "Permute": lambda x: x.T,
    "Index": lambda x: x[[0]],
    "Slice": lambda x: x[:1],
    "Select": lambda x: x[0],
    "ToCopy": lambda x: x.double(),
    "Clone": lambda x: x.clone(),
    "LogSoftmax": lambda x: x.log_softmax(0),
    "Std": lambda x: x.std(),
    "Copys": lambda x: weft.zeros(2).copy_(x[0]),
}


@pytest.mark.parametrize("name", NAMES)
def test_grad_fn(name):
    expected = "CopyBackwards" if name == "Copys" else f"{name}Backward0"
    assert f"grad_fn=<{expected}>" in repr(NAMES[name](X))


def test_grad_fn_survives_backward():
    loss = (tensor([1.0, 2.0], requires_grad=True) * 2).sum()
    loss.backward()
    assert repr(loss) == "tensor(6., grad_fn=<SumBackward0>)"


def test_reductions_over_dims_are_their_own_functions():
    assert repr(X.sum(0)) == "tensor([4., 6.], grad_fn=<SumBackward1>)"


def test_leaf_says_that_it_requires_grad():
    assert repr(weft.zeros(2, requires_grad=True)) == "tensor([0., 0.], requires_grad=True)"


def test_suffix_goes_to_a_new_line_where_the_line_is_full():
    shown = repr(weft.zeros(20, dtype=weft.float64, requires_grad=True)).splitlines()
    assert shown[1:] == ["       dtype=torch.float64, requires_grad=True)"]


def test_subclass_prints_under_its_name():
    class Image(Tensor):
        pass

    image = tensor([1])
    image.__class__ = Image
    assert repr(image) == "Image([1])"


OPTIONS = [
    ({"precision": 2}, tensor([1.5, 2.0]), "tensor([1.50, 2.00])"),
    ({"sci_mode": True}, tensor([1.0, 20.0]), "tensor([1.0000e+00, 2.0000e+01])"),
    ({"sci_mode": False}, tensor([1e-5, 1.0]), "tensor([0.0000, 1.0000])"),
    ({"threshold": 5, "edgeitems": 1}, weft.arange(9), "tensor([0,  ..., 8])"),
    ({"threshold": 2, "edgeitems": 0}, weft.arange(9), "tensor([...], size=(9,))"),
    ({"linewidth": 16}, weft.arange(6), "tensor([0, 1, 2,\n        3, 4, 5])"),
    ({"profile": "short"}, tensor([1.25]), "tensor([1.25])"),
]


@pytest.mark.parametrize(("options", "value", "text"), OPTIONS, ids=[str(options) for options, _, _ in OPTIONS])
def test_options_of_one_block(options, value, text):
    before = weft.get_printoptions()
    with weft.printoptions(**options):
        assert repr(value) == text
    assert weft.get_printoptions() == before


def test_full_profile_shows_every_element():
    with weft.printoptions(profile="full"):
        assert "..." not in repr(weft.zeros(1001))


def test_an_unknown_profile_sets_nothing():
    """As in PyTorch; programs ask for one at import."""
    with weft.printoptions(profile="long", precision=2):
        assert repr(weft.tensor(1.23456)) == "tensor(1.23)"


def test_format():
    assert f"{tensor(1.234567):.3f}" == "1.235"
    assert f"{tensor(1.5, requires_grad=True)}" == "1.5"
    assert f"{tensor([1.5])}" == "tensor([1.5000])"
    with pytest.raises(TypeError, match="unsupported format string passed to Tensor"):
        f"{tensor([1.5]):.2f}"
