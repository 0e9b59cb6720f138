"""Whole objects in files: modules, optimizers and others that are pickled, by this package and by PyTorch."""

from __future__ import annotations

import io
import pickle
from argparse import Namespace
from pathlib import Path

import cloudpickle
import numpy as np
import pytest

import weft as torch
from weft import nn
from weft.errors import CheckpointError

FILES = Path(__file__).parent / "files"


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(2, 2)
        self.tied = self.first
        self.register_buffer("scale", torch.full((2,), 2.0))
        self.scale.origin = "measured"
        self.sizes = np.array([3, 4])
        self.dtype = torch.float16

    def forward(self, x):
        return self.tied(self.first(x)) * self.scale


def content_of(obj, **options):
    file = io.BytesIO()
    torch.save(obj, file, **options)
    return file.getvalue()


def loaded(content, **options):
    return torch.load(io.BytesIO(content), **options)


def test_a_module_comes_back_whole():
    net = Net()
    twin = loaded(content_of(net), weights_only=False)
    assert type(twin) is Net
    assert twin.tied is twin.first
    assert twin(torch.ones(1, 2)).tolist() == net(torch.ones(1, 2)).tolist()
    assert isinstance(twin.first.weight, nn.Parameter)
    assert twin.first.weight.requires_grad
    assert (twin.scale.origin, twin.sizes.tolist(), twin.dtype) == ("measured", [3, 4], torch.float16)


def test_elements_stand_beside_the_pickle_and_are_shared():
    weight = torch.arange(1000.0)
    content = content_of([Namespace(x=weight), weight, weight[2:4]])
    assert len(content) < 4 * 1000 + 2000
    settings, again, view = loaded(content, weights_only=False, map_location="cpu")
    assert settings.x is again
    again[2] = 7.0
    assert view.tolist() == [7.0, 3.0]


def test_training_goes_on_with_the_optimizer_and_its_schedule():
    net = nn.Linear(2, 1)
    optimizer = torch.optim.Adam(net.parameters())
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 1)

    def step(net, optimizer, schedule):
        net(torch.ones(3, 2)).sum().backward()
        optimizer.step()
        schedule.step()
        return net.weight.tolist()

    step(net, optimizer, schedule)
    again = loaded(content_of((net, optimizer, schedule)), weights_only=False)
    optimizer.zero_grad()
    assert step(*again) == step(net, optimizer, schedule)


def test_files_are_refused_unless_they_are_trusted():
    content = content_of(
        {"args": Namespace(lr=0.1), "net": Net().state_dict(), "scale": Net().scale, "size": torch.Size([2])}
    )
    reason = (
        r"Weights only load failed. Unsupported global: GLOBAL argparse.Namespace .* trust this class or function, "
        r"use `torch.serialization.add_safe_globals\(\[argparse.Namespace\]\)` or .* to allowlist it.* load it with "
        r"`weights_only=False`.$"
    )
    for options in ({}, {"weights_only": True}):
        with pytest.raises(pickle.UnpicklingError, match=reason):
            loaded(content, **options)
    assert torch.serialization.get_unsafe_globals_in_checkpoint(io.BytesIO(content)) == ["argparse.Namespace"]
    with torch.serialization.safe_globals([Namespace]):
        settings = loaded(content)
    assert (settings["args"], settings["size"]) == (Namespace(lr=0.1), torch.Size([2]))
    assert settings["scale"].origin == "measured"
    Net().load_state_dict(settings["net"])


def test_what_is_plain_but_has_no_form_in_json_needs_no_trust():
    loop = []
    loop.append(loop)
    assert loaded(content_of([loop, torch.ones(1)]))[1].tolist() == [1.0]


class Exploit:
    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return open, (self.path, "w")


def test_no_code_is_run_without_trust(tmp_path):
    content = content_of(Exploit(str(tmp_path / "mark")))
    with pytest.raises(pickle.UnpicklingError, match=r"Unsupported global: GLOBAL _?io.open was not an allowed"):
        loaded(content)
    assert not list(tmp_path.iterdir())
    loaded(content, weights_only=False).close()
    assert list(tmp_path.iterdir())


def test_variables_choose_for_calls_that_do_not(monkeypatch):
    content = content_of(Namespace())
    monkeypatch.setenv("TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD", "1")
    with pytest.warns(UserWarning, match=r"^Environment variable TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD detected, since"):
        assert loaded(content) == Namespace()
    with pytest.raises(pickle.UnpicklingError):
        loaded(content, weights_only=True)
    monkeypatch.setenv("TORCH_FORCE_WEIGHTS_ONLY_LOAD", "yes")
    with pytest.raises(RuntimeError, match=r"^Only one of `TORCH_FORCE_WEIGHTS_ONLY_LOAD` or"):
        loaded(content)
    monkeypatch.delenv("TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD")
    with pytest.raises(pickle.UnpicklingError):
        loaded(content, weights_only=False)


def test_another_module_may_pickle():
    content = content_of({"square": lambda x: x * x, "w": torch.ones(2)}, pickle_module=cloudpickle)
    again = loaded(content, pickle_module=pickle)
    assert again["square"](again["w"] * 3).tolist() == [9.0, 9.0]
    with pytest.raises(RuntimeError, match=r"^Can not safely load weights when explicit pickle_module is specified$"):
        loaded(content, pickle_module=pickle, weights_only=True)


@pytest.mark.parametrize("name", ["whole.pt", "whole_legacy.pt"])
def test_modules_in_pytorchs_files(name):
    net, expected = torch.load(FILES / name, weights_only=False)
    assert isinstance(net[0], nn.Conv2d)
    assert not net.training
    torch.testing.assert_close(net(torch.ones(1, 1, 6, 6)), expected, rtol=0, atol=1e-6)
    with pytest.raises(pickle.UnpicklingError, match=r"GLOBAL torch.nn.modules.container.Sequential was not"):
        torch.load(FILES / name)


class Counted:
    """Its code is run when it is loaded."""

    loads = 0

    def __init__(self):
        self.x = torch.ones(2)

    def __setstate__(self, state):
        Counted.loads += 1
        self.total = state["x"].sum().item()


def test_code_in_the_older_format_runs_once_and_finds_its_tensors():
    layer = nn.Linear(2, 1)
    optimizer = torch.optim.Adam(layer.parameters())
    layer(torch.ones(1, 2)).sum().backward()
    optimizer.step()
    packed = nn.utils.rnn.pack_sequence([torch.ones(2), torch.ones(1)])
    content = content_of(
        [Counted(), optimizer, packed, torch.Generator().manual_seed(3)], _use_new_zipfile_serialization=False
    )
    counted, restored, again, generator = loaded(content, weights_only=False)
    assert (Counted.loads, counted.total) == (1, 2.0)
    assert (
        restored.state_dict()["state"][0]["exp_avg"].tolist() == optimizer.state_dict()["state"][0]["exp_avg"].tolist()
    )
    assert again.data.tolist() == [1, 1, 1]
    assert generator.initial_seed() == 3


def test_what_pickles_need_and_is_not_there_is_named():
    content = content_of(Net()).replace(b"Net", b"Nut")
    with pytest.raises(CheckpointError, match="damaged"):  # the checksum
        loaded(content, weights_only=False)
    Net.__qualname__ = Net.__name__ = "Net2"
    globals()["Net2"] = Net
    try:
        content = content_of(Net())
    finally:
        Net.__qualname__ = Net.__name__ = "Net"
        del globals()["Net2"]
    with pytest.raises(CheckpointError, match=r"its pickle needs a class or function that is not there: .*Net2"):
        loaded(content, weights_only=False)
