"""Parameters without a shape: what can be done with them, and what they become."""

from __future__ import annotations

import copy
import io
import pickle

import pytest

import weft
from weft import nn
from weft.nn.parameter import UninitializedBuffer, UninitializedParameter, is_lazy

UNUSABLE = (
    r"^Attempted to use an uninitialized parameter\. This error happens when you are using a `LazyModule` or "
    r"explicitly manipulating `torch\.nn\.parameter\.UninitializedParameter` objects\."
)


def test_type_and_device_are_known_and_may_change():
    p = UninitializedParameter(dtype=weft.float16)
    assert (p.dtype, p.device, p.requires_grad, p.is_leaf, p.grad) == (
        weft.float16,
        weft.device("cpu"),
        True,
        True,
        None,
    )
    assert p.is_floating_point()
    p.data = p.data.double()
    assert p.dtype is weft.float64
    assert repr(p) == "<UninitializedParameter>"
    assert is_lazy(p)
    assert not is_lazy(nn.Parameter(weft.ones(1)))


@pytest.mark.parametrize("use", [lambda p: p + 1, lambda p: p.exp(), len, lambda p: p.tolist(), lambda p: p.numel()])
def test_elements_cannot_be_used(use):
    with pytest.raises(ValueError, match=UNUSABLE):
        use(UninitializedParameter())


def test_there_is_no_shape():
    with pytest.raises(RuntimeError, match=r"^Can't access the shape of an uninitialized parameter or buffer\. "):
        _ = UninitializedParameter().shape
    with pytest.raises(RuntimeError, match=r"^Can't share memory on an uninitialized parameter or buffer\. "):
        UninitializedParameter().share_memory_()


def test_materializing_makes_it_an_ordinary_parameter_in_place():
    p = UninitializedParameter(requires_grad=False, dtype=weft.float64)
    p.materialize((2, 3))
    assert type(p) is nn.Parameter
    assert (p.shape, p.dtype, p.requires_grad) == ((2, 3), weft.float64, False)
    q = UninitializedParameter()
    q.materialize((2,), dtype=weft.float64)
    (q * 3).sum().backward()
    assert q.grad.tolist() == [3, 3]


def test_a_buffer_becomes_a_tensor_and_keeps_its_place():
    module = nn.Module()
    module.seen = UninitializedBuffer()
    module.cache = UninitializedBuffer(persistent=False)
    assert list(module._buffers) == ["seen", "cache"]
    assert list(module.state_dict()) == ["seen"]
    module.seen.materialize((2,))
    assert type(module.seen) is weft.Tensor
    assert module.state_dict()["seen"].shape == (2,)


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda x: pickle.loads(pickle.dumps(x))], ids=["copy", "pickle"])
def test_copies_are_uninitialized_too(copied):
    p = copied(UninitializedParameter(False, dtype=weft.float64))
    assert (type(p), p.dtype, p.requires_grad) == (UninitializedParameter, weft.float64, False)
    b = copied(UninitializedBuffer(dtype=weft.float16, persistent=False))
    assert (type(b), b.dtype, b.persistent) == (UninitializedBuffer, weft.float16, False)


def test_files_hold_them():
    layer = nn.Sequential(nn.LazyLinear(3, dtype=weft.float64), nn.LazyBatchNorm1d())
    file = io.BytesIO()
    weft.save(layer.state_dict(), file)
    file.seek(0)
    found = weft.load(file)
    assert type(found["0.weight"]) is UninitializedParameter
    assert found["0.weight"].dtype is weft.float64
    assert type(found["1.running_mean"]) is UninitializedBuffer


def test_an_optimizer_takes_them_and_steps_once_they_have_elements():
    p = UninitializedParameter()
    optimizer = weft.optim.SGD([p], lr=1.0)
    p.materialize((1,))
    with weft.no_grad():
        p.fill_(5)
    p.sum().backward()
    optimizer.step()
    assert p.tolist() == [4]
