"""Fake tensors: a model, its step, what needs elements, devices that do not exist, and fakes of real tensors."""

from __future__ import annotations

import pytest

import weft
from weft import nn
from weft.nn import functional as F
from weft.utils._fake_tensor import (
    DataDependentOutputException,
    DynamicOutputShapeException,
    FakeTensor,
    FakeTensorMode,
    active_fake_mode,
    detect_fake_mode,
    is_fake,
    unset_fake_temporarily,
)


@pytest.fixture
def mode():
    with FakeTensorMode() as mode:
        yield mode


@pytest.mark.parametrize(
    ("make", "shape", "dtype"),
    [
        (lambda: weft.empty(2, 3), (2, 3), weft.float32),
        (lambda: weft.zeros(3, dtype=weft.int8), (3,), weft.int8),
        (lambda: weft.arange(5), (5,), weft.int64),
        (lambda: weft.tensor([1.0, 2.0]), (2,), weft.float32),
        (lambda: weft.randn(2).new_ones(4), (4,), weft.float32),
    ],
)
def test_new_tensors_are_fake(mode, make, shape, dtype):
    x = make()
    assert isinstance(x, FakeTensor)
    assert (x.shape, x.dtype, x.device, x.fake_mode) == (shape, dtype, weft.device("cpu"), mode)


@pytest.mark.usefixtures("mode")
def test_a_model_is_made_and_trained_without_elements():
    model = nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.Flatten(), nn.Linear(2048, 10)
    )
    assert isinstance(model[0].weight, nn.Parameter)
    assert type(model[0].weight) is FakeTensor
    optimizer = weft.optim.AdamW(model.parameters())
    loss = F.cross_entropy(model(weft.randn(4, 3, 16, 16)), weft.zeros(4, dtype=weft.long))
    loss.backward()
    optimizer.step()
    assert loss.requires_grad
    assert loss.shape == ()
    assert isinstance(model[4].weight.grad, FakeTensor)
    assert model[4].weight.grad.shape == (10, 2048)
    assert repr(loss) == "FakeTensor(..., size=(), grad_fn=<NllLossBackward0>)"


@pytest.mark.usefixtures("mode")
def test_sizes_that_no_memory_holds():
    assert (weft.empty(10**7, 10**7) @ weft.empty(10**7, 10)).shape == (10**7, 10)


@pytest.mark.usefixtures("mode")
def test_devices_need_not_exist():
    x = weft.ones(3, device="cuda")
    assert (x.device, x.is_cuda, (x * 2).device) == (weft.device("cuda:0"), True, weft.device("cuda:0"))
    assert weft.ones(2).to("cuda:1").device == weft.device("cuda:1")
    assert repr(x) == "FakeTensor(..., device='cuda:0', size=(3,))"
    with pytest.raises(RuntimeError, match="found two different devices cpu, cuda:0"):
        x + weft.ones(3)


@pytest.mark.usefixtures("mode")
@pytest.mark.parametrize("read", [lambda x: x.item(), bool, float, lambda x: weft.equal(x, x)])
def test_elements_cannot_be_read(read):
    with pytest.raises(DataDependentOutputException, match=r"^aten\.\w+\.default: its result depends on elements"):
        read(weft.ones(1))


@pytest.mark.usefixtures("mode")
@pytest.mark.parametrize("select", [weft.nonzero, lambda x: x[x > 0]])
def test_sizes_that_depend_on_elements(select):
    with pytest.raises(DynamicOutputShapeException, match="sizes of its result depend on elements"):
        select(weft.ones(3))


@pytest.mark.usefixtures("mode")
def test_writes_and_views():
    x = weft.ones(4, 2)
    y = x.view(8)[2:4]
    assert y.mul_(2) is y
    x[0] = 3
    x.t().fill_(1)
    assert (y.shape, x.shape) == ((2,), (4, 2))
    assert isinstance(y, FakeTensor)


def test_fakes_of_real_tensors():
    mode, real = FakeTensorMode(), weft.randn(3, 4)
    fake = mode.from_tensor(real)
    assert mode.from_tensor(real) is fake
    assert (is_fake(fake), is_fake(real)) == (True, False)
    assert (fake @ fake.t()).shape == (3, 3)
    assert isinstance(weft.cat([fake, fake]), FakeTensor)
    parameter = mode.from_tensor(nn.Parameter(real))
    assert isinstance(parameter, nn.Parameter)
    assert parameter.requires_grad
    with pytest.raises(
        AssertionError, match=r"^Please convert all Tensors to FakeTensors first .* in aten\.add\.Tensor"
    ):
        fake + real
    with FakeTensorMode(allow_non_fake_inputs=True):
        assert nn.Linear(4, 2)(real).shape == (3, 2)


def test_the_mode_is_found():
    assert active_fake_mode() is None
    with FakeTensorMode() as mode:
        x = weft.ones(2)
        assert active_fake_mode() is mode is detect_fake_mode()
        with unset_fake_temporarily() as found:
            assert found is mode
            assert not is_fake(weft.ones(2))
    assert detect_fake_mode([1, {"x": x}]) is mode
    assert detect_fake_mode([1]) is None


def test_files_are_loaded_as_fakes(tmp_path):
    weft.save({"weight": weft.ones(2, 3), "epoch": 3}, tmp_path / "state.pt")
    with FakeTensorMode():
        state = weft.load(tmp_path / "state.pt")
    assert isinstance(state["weight"], FakeTensor)
    assert (state["weight"].shape, state["epoch"]) == ((2, 3), 3)
    assert not is_fake(weft.load(tmp_path / "state.pt")["weight"])
