"""The tensor classes of PyTorch's first releases."""

from __future__ import annotations

import pytest

import weft


def test_they_make_tensors_of_their_type():
    x = weft.LongTensor([[1, 2]])
    assert (x.dtype, x.tolist()) == (weft.int64, [[1, 2]])
    assert weft.FloatTensor(2, 3).shape == weft.FloatTensor(weft.Size([2, 3])).shape == (2, 3)
    assert weft.ByteTensor().shape == (0,)
    with pytest.raises(TypeError, match=r"^new\(\): expected a tensor of torch\.float64, got one of torch\.int64$"):
        weft.DoubleTensor(x)


def test_the_tensor_class_makes_tensors_of_the_default_type():
    x = weft.Tensor([1, 2])
    assert (type(x), x.dtype, x.tolist()) == (weft.Tensor, weft.float32, [1, 2])
    assert weft.Tensor(2, 3).shape == (2, 3)
    assert weft.Tensor().shape == (0,)
    assert weft.Tensor(x).data_ptr() == x.data_ptr()
    with pytest.raises(TypeError, match=r"^new\(\) received an invalid combination of arguments: dtype$"):
        weft.Tensor([1], dtype=weft.float64)


def test_subclasses_are_made_alike():
    class Named(weft.Tensor):
        pass

    made = Named([1, 2])
    assert type(made) is Named
    assert made.tolist() == [1, 2]
    assert weft.nn.Parameter(made).requires_grad


def test_tensors_are_their_instances():
    assert isinstance(weft.ones(1), weft.FloatTensor)
    assert not isinstance(weft.ones(1), weft.DoubleTensor)
    assert not isinstance(1.0, weft.FloatTensor)


@pytest.mark.filterwarnings("ignore:torch.set_default_tensor_type")
def test_they_name_the_default_type():
    weft.set_default_tensor_type(weft.DoubleTensor)
    try:
        assert weft.ones(1).dtype is weft.float64
    finally:
        weft.set_default_tensor_type(weft.FloatTensor)
    assert weft.ones(1).dtype is weft.float32


def test_tensors_of_any_type_are_shared():
    x = weft.arange(2)
    assert weft.Tensor(x).dtype is weft.int64
    assert weft.FloatTensor((2.0, 1.0), device="cpu").tolist() == [2, 1]
