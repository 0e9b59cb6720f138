"""`DataParallel`, the form of one process."""

from __future__ import annotations

import pytest

import weft
from weft import nn


def test_it_runs_the_module_under_its_own_name():
    module = nn.Linear(2, 1)
    model = nn.DataParallel(module, device_ids=[0], output_device=0, dim=0)
    x = weft.ones(3, 2)
    assert model.module is module
    assert list(model.state_dict()) == ["module.weight", "module.bias"]
    assert weft.equal(model(x), module(x))
    model(input=x).sum().backward()
    assert module.bias.grad.item() == 3
    assert model.device_ids == [0]
    assert nn.DataParallel(module).device_ids == []


def test_the_function_runs_the_module():
    module = nn.Bilinear(2, 2, 1)
    x = weft.ones(3, 2)
    data_parallel = nn.parallel.data_parallel
    assert weft.equal(data_parallel(module, (x, x)), module(x, x))
    assert weft.equal(data_parallel(module, x, module_kwargs={"input2": x}), module(x, x))
    assert weft.equal(data_parallel(lambda: x, None), x)


def test_several_devices_are_refused():
    text = r"DataParallel runs on one device, but got device_ids \[0, 1\]; start one process for each device with"
    with pytest.raises(RuntimeError, match=text):
        nn.DataParallel(nn.Linear(1, 1), device_ids=[0, 1])
    with pytest.raises(RuntimeError, match=text):
        nn.parallel.data_parallel(nn.Linear(1, 1), weft.ones(1, 1), device_ids=(0, 1))
