"""Tensors among Python's and NumPy's protocols."""

from __future__ import annotations

import copy
import pickle
from operator import add

import numpy as np
import pytest

import weft
from weft import Tensor, tensor


def test_copies_of_a_leaf():
    x = weft.ones(2, requires_grad=True)
    x.tag = "mine"
    (x * 3).sum().backward()
    deep = copy.deepcopy(x)
    assert (deep.requires_grad, deep.tag, deep.grad.tolist()) == (True, "mine", [3.0, 3.0])
    twice = copy.deepcopy([x, x])
    assert twice[0] is twice[1]


def test_copy_shares_the_elements_and_deepcopy_does_not():
    x = weft.zeros(2)
    shared, own = copy.copy(x), copy.deepcopy(x)
    x.fill_(1)
    assert shared.tolist() == [1.0, 1.0]
    assert own.tolist() == [0.0, 0.0]


def test_deepcopy_refuses_results_of_operators():
    with pytest.raises(RuntimeError, match=r"^Only Tensors created explicitly by the user \(graph leaves\) support"):
        copy.deepcopy(weft.ones(2, requires_grad=True) * 2)


@pytest.mark.parametrize("dtype", [weft.float32, weft.bfloat16, weft.bool, weft.int64, weft.complex64])
def test_pickle(dtype):
    x = tensor([[1, 0], [1, 1]], dtype=dtype)
    back = pickle.loads(pickle.dumps(x))
    assert back.dtype is dtype
    assert back.tolist() == x.tolist()


def test_pickle_keeps_requires_grad():
    assert pickle.loads(pickle.dumps(weft.ones(2, requires_grad=True))).requires_grad


def test_numpy_takes_tensors():
    x = tensor([1.0, 4.0])
    assert np.asarray(x).dtype == np.float32
    assert np.array_equal(np.concatenate([x, x]), [1, 4, 1, 4])
    assert np.array(x, dtype=np.int64).tolist() == [1, 4]
    found = np.sqrt(x)
    assert isinstance(found, Tensor)
    assert found.tolist() == [1.0, 2.0]


@pytest.mark.parametrize("mixed", [lambda x, y: x + y, lambda x, y: y + x])
def test_numpy_numbers_yield_to_tensors(mixed):
    found = mixed(tensor([1.0, 2.0]), np.float64(1))
    assert isinstance(found, Tensor)
    assert found.dtype is weft.float32
    assert found.tolist() == [2.0, 3.0]


def test_from_numpy_shares_aligned_memory():
    room = np.zeros(64, np.float32)
    start = -room.ctypes.data % 64 // 4
    array = room[start : start + 16]
    x = weft.from_numpy(array)
    assert np.shares_memory(x.numpy(), array)
    with pytest.raises(TypeError, match=r"^expected np.ndarray \(got list\)$"):
        weft.from_numpy([1])


def test_dlpack_shares_memory_both_ways():
    x = weft.arange(4)
    array = np.from_dlpack(x)
    assert np.shares_memory(array, x.numpy())
    assert weft.from_dlpack(x).tolist() == x.tolist()
    with pytest.raises(RuntimeError, match=r"^Can't export tensors that require gradient"):
        weft.ones(1, requires_grad=True).__dlpack__()


def test_contains():
    x = tensor([1.0, 2.0])
    assert 1 in x
    assert tensor(2) in x
    assert 3 not in x
    with pytest.raises(
        RuntimeError, match=r"^Tensor.__contains__ only supports Tensor or scalar, but you passed in a <"
    ):
        x.__contains__("a")


def test_shapes_are_tuples():
    shape = weft.zeros(2, 3).shape
    assert shape == (2, 3) == weft.Size([2, 3])
    assert shape != [2, 3]
    assert hash(shape) == hash((2, 3))
    assert repr(add(shape[1:], (1,))) == "torch.Size([3, 1])"
    assert repr(add((1,), shape)) == "torch.Size([1, 2, 3])"
    assert repr(shape[:1] * 2) == "torch.Size([2, 2])"
    assert shape.numel() == 6


def test_devices_are_told():
    x = weft.zeros(1)
    assert x.is_cpu
    assert not x.is_cuda
    assert x.get_device() == -1
