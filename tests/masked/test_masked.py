"""Functions with masks, compared with NumPy's masked arrays, and masked tensors."""

from __future__ import annotations

import math

import numpy as np
import pytest

import weft as torch
from weft import masked
from weft.masked import MaskedTensor, as_masked_tensor, is_masked_tensor, masked_tensor

pytestmark = pytest.mark.filterwarnings("ignore:The PyTorch API of MaskedTensors")

DATA = np.array([[1.0, 2.0, 3.0, 4.0], [5.0, 6.0, 7.0, 9.0], [8.0, 1.0, 2.0, 0.5]])
MASK = np.array([[True, False, True, True], [False, False, False, True], [True, True, True, True]])
NAN = math.nan


def make(**options):
    return masked_tensor(torch.tensor(DATA), torch.tensor(MASK), **options)


# --- functions --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "theirs"),
    [
        ("sum", np.ma.sum),
        ("prod", np.ma.prod),
        ("mean", np.ma.mean),
        ("amax", np.ma.max),
        ("amin", np.ma.min),
        ("std", lambda x, axis: np.ma.std(x, axis, ddof=1)),
        ("var", lambda x, axis: np.ma.var(x, axis, ddof=1)),
        ("median", np.ma.median),
    ],
)
def test_reductions(name, theirs):
    mask = MASK.copy()
    mask[1, 2] = True  # NumPy's median of two is their mean
    mask[0, 0] = mask[2, 0] = False if name == "median" else mask[0, 0]
    mask[1, 0] = mask[1, 0] or name == "median"
    wanted = theirs(np.ma.array(DATA, mask=~mask), axis=1)
    got = getattr(masked, name)(torch.tensor(DATA), 1, mask=torch.tensor(mask))
    even = mask.sum(1) % 2 == 0 if name == "median" else np.zeros(3, bool)
    assert np.allclose(got.numpy()[~even], np.asarray(wanted)[~even])


def test_what_nothing_gives():
    x, none = torch.ones(2, 2), torch.zeros(2, 2, dtype=torch.bool)
    assert masked.sum(x, mask=none).item() == 0
    assert masked.prod(x, mask=none).item() == 1
    assert masked.amax(x, mask=none).item() == -math.inf
    assert masked.amin(x.int(), mask=none).item() == 2**31 - 1
    assert masked.norm(x, mask=none).item() == 0
    assert math.isnan(masked.mean(x, mask=none).item())
    assert masked.softmax(x, 1, mask=none).isnan().all()
    with pytest.raises(ValueError, match="masked median expects no fully masked out rows"):
        masked.median(x.int(), mask=none)
    with pytest.raises(NotImplementedError, match=r"identity of amax on torch\.bool input"):
        masked.amax(none, mask=none)


def test_masks_broadcast_and_are_optional():
    x = torch.tensor(DATA)
    row = torch.tensor([1, 0, 0, 1])
    assert masked.sum(x, 1, mask=row).tolist() == [5, 14, 8.5]
    assert masked.sum(x).item() == DATA.sum()
    assert masked.sum(x.bool(), 0).dtype is torch.int64
    assert masked.sum(x, (0, 1), keepdim=True, mask=row).shape == (1, 1)
    assert masked.argmax(x, 1, mask=row).tolist() == [3, 3, 0]
    with pytest.raises(IndexError, match="mask dimensionality higher than of the input"):
        masked.sum(x, mask=torch.ones(1, 3, 4))
    with pytest.raises(IndexError, match=r"expected to be in range of \[-2, 1\], but got 2"):
        masked.sum(x, 2)
    with pytest.raises(RuntimeError, match="dim=1 appears multiple times"):
        masked.sum(x, (1, 1))
    with pytest.raises(ValueError, match=r"Could not infer output dtype\. Input dtype must be either"):
        masked.mean(x.long())


def test_softmax_and_its_gradient():
    x = torch.tensor([1.0, 2.0, 3.0], requires_grad=True)
    mask = torch.tensor([True, False, True])
    out = masked.softmax(x, 0, mask=mask)
    wanted = np.exp([1, 3]) / np.exp([1, 3]).sum()
    assert np.allclose(out[mask].detach().numpy(), wanted)
    out[0].backward()
    assert np.allclose(x.grad.numpy(), [wanted[0] * wanted[1], 0, -wanted[0] * wanted[1]])
    assert np.allclose(masked.log_softmax(x, 0, mask=mask).exp().tolist(), out.tolist())
    assert np.allclose(masked.softmin(-x, 0, mask=mask).tolist(), out.tolist())


def test_others():
    x, mask = torch.tensor([3.0, 1.0, 4.0]), torch.tensor([True, False, True])
    assert masked.cumsum(x, 0, mask=mask).tolist() == [3, 3, 7]
    assert masked.cumprod(x, 0, mask=mask).tolist() == [3, 3, 12]
    assert masked.norm(x, 2.0, mask=mask).item() == 5
    assert masked.norm(x, -math.inf, mask=mask).item() == 3
    assert masked.normalize(x, 2.0, 0, mask=mask).tolist() == pytest.approx([0.6, 0, 0.8])
    assert masked.logsumexp(x, 0, mask=mask).item() == pytest.approx(math.log(math.exp(3) + math.exp(4)))
    assert masked.logaddexp(x, x, input_mask=mask).tolist() == pytest.approx([3 + math.log(2), 1, 4 + math.log(2)])
    assert masked.var(x, 0, unbiased=False, mask=mask).item() == 0.25
    assert masked.var(x, 0, correction=0, mask=mask).item() == 0.25


# --- masked tensors ---------------------------------------------------------------------------------------------


def test_made_of_two_tensors():
    data, mask = torch.tensor([1.0, 2.0]), torch.tensor([True, False])
    with pytest.warns(UserWarning, match="prototype stage"):
        x = masked_tensor(data, mask)
    data += 1
    assert is_masked_tensor(x)
    assert not is_masked_tensor(data)
    assert x.get_data().tolist() == [1, 2]
    assert x.get_mask().tolist() == [True, False]
    assert x.to_tensor(-1).tolist() == [1, -1]
    assert (x.shape, x.ndim, x.numel(), len(x), x.dtype, x.device.type) == ((2,), 1, 2, 2, torch.float32, "cpu")


@pytest.mark.parametrize(
    ("data", "mask", "kind", "text"),
    [
        ([1.0], torch.tensor([True]), TypeError, "data must be a Tensor"),
        (torch.ones(1), True, TypeError, "mask must be a Tensor"),
        (torch.ones(1), torch.ones(1), TypeError, "mask must have dtype bool"),
        (torch.ones(2), torch.tensor([True]), ValueError, r"data.size\(\) must equal mask.size\(\)"),
        (torch.ones(2, 1), torch.tensor([True]), ValueError, r"data.dim\(\) must equal mask.dim\(\)"),
        (torch.ones(1, dtype=torch.complex64), torch.tensor([True]), TypeError, "torch.complex64 is not supported"),
    ],
)
def test_what_does_not_belong_together(data, mask, kind, text):
    with pytest.raises(kind, match=text):
        masked_tensor(data, mask)


def test_elementwise_operators_keep_the_mask():
    x = make()
    for y, wanted in (
        (x.exp(), np.exp(DATA)),
        (-x, -DATA),
        (x + 1, DATA + 1),
        (1 - x, 1 - DATA),
        (x * x, DATA * DATA),
        (x / torch.full((4,), 2.0), DATA / 2),
        (x**2, DATA**2),
        (x.clamp(2, 3), DATA.clip(2, 3)),
        (x < 3, DATA < 3),
        (x.maximum(torch.tensor(3.0)), np.maximum(DATA, 3)),
    ):
        assert isinstance(y, MaskedTensor)
        assert y.get_mask().equal(x.get_mask())
        assert np.allclose(y.get_data().numpy(), wanted)
    x.add_(1).sqrt_()
    assert np.allclose(x.get_data().numpy(), np.sqrt(DATA + 1))


def test_masks_must_match():
    x, other = make(), masked_tensor(torch.tensor(DATA), ~torch.tensor(MASK))
    with pytest.raises(ValueError, match=r"Input masks must match\. Combine them first"):
        x + other
    assert (x + make()).get_mask().equal(x.get_mask())
    with pytest.raises(TypeError, match="does not support additional Tensor arguments"):
        x.clamp(torch.ones(1))


def test_reductions_mask_what_has_no_valid_element():
    mask = torch.tensor(MASK)
    mask[1] = False
    x = masked_tensor(torch.tensor(DATA), mask)
    total = x.sum(1)
    assert total.get_mask().tolist() == [True, False, True]
    assert total.to_tensor(-1).tolist() == [8, -1, 11.5]
    assert x.mean().item() == pytest.approx(19.5 / 7)
    assert x.amax(0, keepdim=True).shape == (1, 4)
    assert x.argmin(1).to_tensor(-1).tolist() == [0, -1, 3]
    assert (x > 0).all().item() is True
    with pytest.raises(ValueError, match="the element is masked"):
        x[1].sum().item()


def test_views():
    x = make()
    assert x[0].to_tensor(0).tolist() == [1, 0, 3, 4]
    assert x[:, 1:3].get_mask().tolist() == MASK[:, 1:3].tolist()
    assert x.t().shape == x.transpose(0, 1).shape == (4, 3)
    assert x.view(12).unsqueeze(0).shape == (1, 12)
    assert [part.shape for part in x.split(2)] == [(2, 4), (1, 4)]
    assert x.to(torch.float32).dtype is torch.float32


def test_gradients_are_masked():
    x = make(requires_grad=True)
    assert x.is_leaf
    assert x.grad is None
    (x * 3).sum().backward()
    assert is_masked_tensor(x.grad)
    assert x.grad.to_tensor(0).tolist() == (MASK * 3.0).tolist()
    data = torch.tensor(DATA, requires_grad=True)
    as_masked_tensor(data, torch.tensor(MASK)).prod(1).sum().backward()
    assert data.grad[1].tolist() == [0, 0, 0, 1]
    assert data.grad[0].tolist() == [12, 0, 4, 3]


def test_safe_division():
    """The example of PyTorch's documentation: 0 / 0 where the mask is false gives no NaN in the gradient."""
    x = torch.tensor([-1.0, 0.0, 1.0])
    y = masked_tensor(x, x != 0, requires_grad=True)
    (y / y).sum().backward()
    assert y.grad.to_tensor(7).tolist() == [0, 7, 0]


def test_functions_of_the_package_end_at_the_class():
    x = make()
    call = MaskedTensor.__torch_function__
    assert call(torch.sum, (), (x, 1)).get_data().equal(x.sum(1).get_data())
    assert call(torch.add, (), (torch.ones(4).double(), x)).get_data()[0].tolist() == [2, 3, 4, 5]
    assert call(torch.cat, (), ([x, torch.zeros(1, 4).double()],)).get_mask()[3].all()
    chosen = call(torch.where, (), (torch.tensor([True, False, True, False]), x, 0.0))
    assert chosen.get_mask()[1].tolist() == [False, True, False, True]
    assert masked.sum(x).item() == DATA[MASK].sum()
    with pytest.raises(TypeError, match="no implementation found for 'matmul' on types that implement"):
        call(torch.matmul, (), (x, x))
    with pytest.raises(NotImplementedError, match="__bool__ is not defined for masked tensors"):
        bool(x.sum())


def test_text():
    assert repr(masked_tensor(torch.tensor(2.5), torch.tensor(True))) == "MaskedTensor(  2.5000, True)"
    assert repr(masked_tensor(torch.tensor(2), torch.tensor(False))) == "MaskedTensor(--, False)"
    rows = masked_tensor(torch.tensor([[1.0, 2.0], [3.0, 4.0]]), torch.tensor([[True, False], [True, True]]))
    assert repr(rows) == ("MaskedTensor(\n  [\n    [  1.0000,       --],\n    [  3.0000,   4.0000]\n  ]\n)")
