"""Names and arguments that older programs use, and modules that they import."""

from __future__ import annotations

import io
from collections import UserList, deque

import pytest

import weft as torch
from weft import nn, onnx

M = torch.arange(4.0).reshape(2, 2)
X = torch.tensor([1.0, 2.0])
OLDER = {
    "x.add_(0.5, x)": ([1.5, 3.0], lambda: X.clone().add_(0.5, X)),
    "add(x, 2, x)": ([3.0, 6.0], lambda: torch.add(X, 2, X)),
    "x.sub(2, x)": ([-1.0, -2.0], lambda: X.sub(2, X)),
    "addcmul(x, 0.5, x, x)": ([1.5, 4.0], lambda: torch.addcmul(X, 0.5, X, X)),
    "x.addcdiv_(-0.5, x, x)": ([0.5, 1.5], lambda: X.clone().addcdiv_(-0.5, X, X)),
    "addmm(2, m, m, m)": ([[2.0, 5.0], [10.0, 17.0]], lambda: torch.addmm(2, M, M, M)),
    "m.addmm_(2, 3, m, m)": ([[6.0, 11.0], [22.0, 39.0]], lambda: M.clone().addmm_(2, 3, M, M)),
    "addmv(3, x, 0.5, m, x)": ([4.0, 10.0], lambda: torch.addmv(3, X, 0.5, M, X)),
    "addr(0.5, m, x, x)": ([[1.0, 2.5], [3.0, 5.5]], lambda: torch.addr(0.5, M, X, X)),
    "baddbmm(2, b, 3, b, b)": ([[[6.0, 11.0], [22.0, 39.0]]], lambda: torch.baddbmm(2, M[None], 3, M[None], M[None])),
    "addbmm(2, m, 3, b, b)": ([[6.0, 11.0], [22.0, 39.0]], lambda: torch.addbmm(2, M, 3, M[None], M[None])),
}


@pytest.mark.parametrize("text", OLDER)
def test_numbers_may_come_before_the_last_tensors(text):
    expected, call = OLDER[text]
    with pytest.warns(UserWarning, match=r"^This overload of \w+ is deprecated:\n\t.*\nConsider using one of the foll"):
        assert call().tolist() == expected


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: X.add(X, 2), r"^add\(\) takes 2 positional arguments but 3 were given$"),
        (lambda: torch.add(X, 2, X, alpha=3), r"^add\(\) takes 2 positional arguments but 3 were given$"),
        (lambda: torch.add(X, 2, 3, X), r"^add\(\) takes 2 positional arguments but 4 were given$"),
        (lambda: torch.addcmul(X, X, X, 2), r"^addcmul\(\) takes 3 positional arguments but 4 were given$"),
        (lambda: torch.addmm(1, M, 2, M), r"^addmm\(\) takes 3 positional arguments but 4 were given$"),
        (lambda: X.split(), r"^split\(\) takes one size or list of sizes, got none$"),
        (lambda: X.split(1, split_size=1), r"^split\(\) takes one size or list of sizes, got two$"),
        (lambda: X.type("LongTensor"), r"^invalid type: 'LongTensor'$"),
    ],
)
def test_other_calls_are_refused(call, message):
    with pytest.raises((TypeError, ValueError), match=message):
        call()


def test_the_sizes_of_a_split_have_two_names():
    assert [part.tolist() for part in torch.arange(5).split(split_size=3)] == [[0, 1, 2], [3, 4]]
    assert [len(part) for part in torch.arange(5).split(split_size=[1, 4], dim=0)] == [1, 4]
    assert len(torch.split(torch.arange(5), split_size_or_sections=5)) == 1


def test_gradients_take_only_inputs_at_its_place():
    x = torch.tensor([3.0], requires_grad=True)
    (grad,) = torch.autograd.grad(x * x, x, None, None, True, True, False)
    assert torch.autograd.grad(grad, x, only_inputs=True)[0].tolist() == [2.0]
    with pytest.warns(FutureWarning, match=r"^only_inputs argument is deprecated and is ignored now"):
        torch.autograd.grad(x * x, x, only_inputs=False)


def test_classes_of_tensors_are_types():
    assert X.type(torch.LongTensor).dtype is torch.int64
    assert X.type("torch.DoubleTensor").type() == "torch.DoubleTensor"
    assert X.type(torch.FloatTensor) is X
    assert nn.Linear(1, 1).type(torch.HalfTensor).weight.dtype is torch.float16


def test_tensors_of_anything_that_is_indexed_like_a_list():
    assert torch.tensor(deque([1.0, 2.0])).tolist() == [1.0, 2.0]
    for rows in (deque([deque([1, 2]), [3, 4]]), [deque([1, 2]), (3, 4)], [[1, 2], UserList([3, 4])]):
        assert torch.tensor(rows).tolist() == [[1, 2], [3, 4]]
    with pytest.raises(ValueError, match=r"^expected sequence of length 1 at dim 1 \(got 2\)$"):
        torch.tensor([deque([1]), deque([1, 2])])


def test_onnx_says_what_there_is_instead():
    assert not onnx.is_in_onnx_export()
    with pytest.raises(NotImplementedError, match=r"^torch.onnx.export: no ONNX files are written here. weft.expo"):
        torch.onnx.export(nn.Linear(2, 2), torch.ones(1, 2), io.BytesIO(), opset_version=11)
    with pytest.raises(AttributeError, match=r"has no attribute 'exprt'; the nearest is 'export'$"):
        onnx.exprt  # pyright: ignore


def test_constants_of_hub():
    assert torch.hub.HASH_REGEX.search("net-0123abcd.pth")
    assert (torch.hub.ENV_TORCH_HOME, torch.hub.MODULE_HUBCONF) == ("TORCH_HOME", "hubconf.py")
