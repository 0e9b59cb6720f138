"""Saving, transfers, exchanges between replicas (here one), and random state."""

from __future__ import annotations

import io
from contextlib import suppress

import numpy as np
import pytest

import weft as torch
import weft.xla as torch_xla
from weft.xla.core import xla_model as xm


@pytest.mark.parametrize("options", [{}, {"global_master": True}, {"master_only": False}])
def test_saved_tensors_are_on_the_cpu(tmp_path, options):
    model = torch.nn.Linear(2, 1).to("xla")
    data = {"state": model.state_dict(), "list": [torch.ones(2, device="xla") * 3, 4], "cpu": torch.zeros(1)}
    path = tmp_path / "model.weft"
    xm.save(data, path, **options)
    for found in (torch.load(path), xm.load(path)):
        assert found["state"]["weight"].device.type == "cpu"
        assert found["state"]["weight"].tolist() == model.weight.tolist()
        assert found["list"][0].tolist() == [3, 3]
        assert found["list"][1] == 4
    assert xm.is_xla_tensor(data["list"][0])
    assert xm.is_xla_tensor(model.weight)
    model.load_state_dict(found["state"])
    assert xm.is_xla_tensor(model.weight)


def test_conversion_to_the_cpu():
    x = torch.ones(2, device="xla", requires_grad=True)
    weight = torch.nn.Parameter(torch.ones(1, device="xla"))
    cpu = torch.zeros(1)
    pending = x * 2
    found = xm._maybe_convert_to_cpu([x, {"w": weight}, cpu, pending])
    assert [t.device.type for t in (found[0], found[1]["w"], found[3])] == ["cpu"] * 3
    assert found[0].requires_grad
    assert found[0].is_leaf
    assert isinstance(found[1]["w"], torch.nn.Parameter)
    assert found[2] is cpu
    kept = xm._maybe_convert_to_cpu([x * 3], convert=False)[0]
    assert xm.is_xla_tensor(kept)
    assert not kept._read().is_pending  # computed in any case


def test_data_for_the_device():
    x = torch.arange(3)
    there = xm.send_cpu_data_to_device({"x": x, "y": [torch.ones(1), "name"]}, "xla:0", input_sharding=None)
    assert there["x"].device == there["y"][0].device == torch.device("xla:0")
    assert there["x"].tolist() == [0, 1, 2]
    assert there["y"][1] == "name"
    (alone,) = xm.send_cpu_data_to_device(x, xm.xla_device())
    assert xm.is_xla_tensor(alone)


def test_one_replica_meets_itself():
    assert xm.rendezvous("tag", b"payload") == [b"payload"]
    assert xm.rendezvous("tag") == [b""]
    assert xm.xla_rendezvous(b"a", ordinals=[0], tag="tag") == [b"a"]
    x = torch.ones(1, device="xla") + 1
    xm.rendezvous("tag", replicas=[0])
    assert not x._read().is_pending


def test_what_a_rendezvous_does_not_take():
    with pytest.raises(ValueError, match=r"^Only global rendezvous is supported$"):
        xm.xla_rendezvous(ordinals=[0, 1])
    with pytest.raises(TypeError, match=r"^`payload` must be bytes, not <class 'str'>$"):
        xm.rendezvous("tag", "text")


def test_a_reduction_outside_of_graphs():
    assert xm.mesh_reduce("accuracy", 0.5, np.mean) == 0.5
    assert xm.mesh_reduce("accuracy", np.float64(0.25), sum) == 0.25
    (found,) = xm.mesh_reduce("tensors", {"x": torch.ones(2, device="xla") * 2}, list)
    assert found["x"].device.type == "cpu"
    assert found["x"].tolist() == [2, 2]


def test_functions_on_some_replicas():
    x = torch.ones(2, device="xla") * 2

    def total(tensor, factor):
        assert tensor.device.type == "cpu"
        return tensor.sum().item() * factor

    assert xm.do_on_ordinals(total, data=(x, 3)) == xm.do_on_ordinals(total, (x, 3), 0) == 12
    assert xm.do_on_ordinals(total, data=(x, 3), ordinals=(1, 2)) is None


def test_the_state_of_random_numbers():
    xm.set_rng_state(42)
    assert xm.get_rng_state() == 42
    first = torch.rand(3, device="xla").tolist()
    state = xm.get_rng_state("xla:0")
    assert isinstance(state, int)
    second = torch.rand(3, device="xla").tolist()
    xm.set_rng_state(state, device=xm.xla_device())
    assert torch.rand(3, device="xla").tolist() == second != first
    torch_xla.manual_seed(42)
    assert torch.rand(3).tolist() == first
    torch.manual_seed(42)
    assert xm.get_rng_state() == 42
    with pytest.raises(TypeError, match=r"^set_rng_state\(\): argument 'seed' must be int, not str$"):
        xm.set_rng_state("42")
    with pytest.raises(RuntimeError, match="this machine has 1 xla device"):
        xm.get_rng_state("xla:9")


def test_a_fork_of_random_numbers():
    xm.set_rng_state(1)
    torch.rand(1)
    state = xm.get_rng_state()
    with xm.fork_rng():
        torch.rand(1)
    assert xm.get_rng_state() == state
    with suppress(KeyError), xm.fork_rng(device="xla:0"):
        torch.rand(1)
        raise KeyError
    assert xm.get_rng_state() == state
    with xm.fork_rng(enabled=False):
        torch.rand(1)
    assert xm.get_rng_state() != state


def test_a_file_of_bytes():
    file = io.BytesIO()
    xm.save([torch.ones(1, device="xla")], file)
    file.seek(0)
    assert xm.load(file)[0].tolist() == [1]
