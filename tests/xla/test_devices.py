"""Devices by name, ordinals, replication and memory; with one device, and with three in a process of its own."""

from __future__ import annotations

import io
import os
import subprocess
import sys

import jax
import pytest

import weft as torch
import weft.xla as torch_xla
from weft.xla.core import xla_model as xm

_DEVKIND = r"^`devkind` argument is deprecated and will be removed in a future release\.$"


def test_a_program_finds_its_tensors_on_the_device():
    device = xm.xla_device()
    assert (device.type, device.index) == ("xla", 0)
    x = torch.randn(2, 3, device=device)
    model = torch.nn.Linear(3, 2).to(device)
    y = model(x)
    assert x.device == y.device == model.weight.device == device
    assert x.device.type == "xla"
    y.sum().backward()
    assert xm.is_xla_tensor(model.weight.grad)
    assert not xm.is_xla_tensor(x.cpu())
    assert torch.ones(1, device="xla").device == device


def test_names_of_the_only_device():
    assert xm.get_xla_supported_devices() == ["xla:0"]
    assert xm.xla_real_devices() == xm.xla_real_devices(["xla:0"]) == torch_xla.real_devices() == ["CPU:0"]
    for device in ("xla:0", xm.xla_device(), "xla", torch.device("xla")):
        assert xm.xla_device_hw(device) == "CPU"
    assert torch_xla.devices() == [torch_xla.device()] == [torch_xla.device(0)]
    assert torch_xla.device_count() == 1
    assert xm.xla_replication_devices() == ["CPU:0"]


@pytest.mark.parametrize("n", [1, -1])
def test_a_device_that_does_not_exist(n):
    with pytest.raises(IndexError, match=rf"^Device index {n} out of range in \['xla:0'\]$"):
        xm.xla_device(n)


def test_a_device_is_named_by_a_number():
    with pytest.raises(TypeError, match=r"^xla_device\(\): argument 'n' must be int, not str$"):
        xm.xla_device("xla:0")


def test_devkind_warns():
    with pytest.warns(UserWarning, match=_DEVKIND):
        assert xm.get_xla_supported_devices("CPU") == ["xla:0"]
    with pytest.warns(UserWarning, match=_DEVKIND):
        assert xm.get_xla_supported_devices("TPU") is None
    with pytest.warns(UserWarning, match=_DEVKIND):
        assert xm.xla_device(devkind="CPU") == torch.device("xla:0")
    with (
        pytest.warns(UserWarning, match=_DEVKIND),
        pytest.raises(RuntimeError, match=r"^this process has no TPU devices: its devices are \['CPU:0'\]$"),
    ):
        xm.xla_device(devkind="TPU")


@pytest.mark.parametrize("name", ["cpu", "CPU:0", "xla", "xla:x"])
def test_a_name_that_is_no_xla_device(name):
    with pytest.raises(RuntimeError, match=rf"^Invalid device format: {name}$"):
        xm._xla_real_device(name)


def test_an_xla_device_that_does_not_exist():
    with pytest.raises(RuntimeError, match=r"^Invalid device format: xla:7; this process has 1 XLA device\(s\), from "):
        xm.xla_device_hw("xla:7")


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (xm.xrt_world_size, r"^xrt_world_size\(\) will be removed in release 2\.7\.$"),
        (xm.get_ordinal, r"^xla_model\.get_ordinal\(\) will be removed in release 2\.7\.$"),
        (lambda: xm.parse_xla_device("CUDA:3"), r"^xla_model\.parse_xla_device\(\) will be removed in release 2\.7\.$"),
    ],
)
def test_deprecated_names_warn(call, message):
    with pytest.warns(UserWarning, match=message):
        assert call() in (1, 0, ("CUDA", 3))


def test_names_that_are_not_parsed():
    with pytest.warns(UserWarning, match="parse_xla_device"):
        assert xm.parse_xla_device("xla:0") is None
    with (
        pytest.warns(UserWarning, match="parse_xla_device"),
        pytest.raises(TypeError, match=r"^parse_xla_device\(\): expected str, got int$"),
    ):
        xm.parse_xla_device(3)


def test_the_only_replica_is_the_master(capsys):
    assert xm.get_local_ordinal() == 0
    assert xm.is_master_ordinal()
    assert xm.is_master_ordinal(local=False)
    xm.master_print("a", 1)
    xm.master_print("b", local=True, flush=True)
    file = io.StringIO()
    xm.master_print("c", fd=file)
    assert capsys.readouterr().out == "a 1\nb\n"
    assert file.getvalue() == "c\n"


def test_replication():
    xm.set_replication("xla:0", ["xla:0"])
    context = xm._get_device_context()
    assert context is xm._get_device_context("xla:0")
    assert (context.device, context.device_index, context.replication) == ("xla:0", 0, ["CPU:0"])
    for none in ([], None):
        xm.set_replication(torch.device("xla:0"), none)
        assert context.replication == []
    with pytest.raises(RuntimeError, match=r"^set_replication\(\): device xla:1 is not among the devices \['xla:0'\]$"):
        xm.set_replication("xla:1", ["xla:0"])
    with pytest.raises(RuntimeError, match=r"^Cannot replicate if number of devices \(0\) is different from 1$"):
        xm.xla_replication_devices([])


def test_memory_is_that_of_the_arrays():
    before = xm.get_memory_info()
    x = torch.ones(1000, device="xla") * 2
    xm.unlazy([x])
    after = xm.get_memory_info(xm.xla_device())
    assert after["bytes_used"] - before["bytes_used"] >= x.nbytes
    assert after["bytes_limit"] == os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    with pytest.raises(RuntimeError, match=r"^Invalid device format: cpu$"):
        xm.get_memory_info("cpu")


def test_unlazy_computes():
    x = torch.ones(3, device="xla") + 1
    assert x._read().is_pending
    xm.unlazy([x])
    assert isinstance(x._read().content, jax.Array)
    assert x._read().content.is_ready()
    xm.wait_device_ops()
    xm.wait_device_ops(["xla:0"])


_THREE = """
import threading
import weft as torch
from weft.xla.core import xla_model as xm

assert xm.get_xla_supported_devices() == ["xla:0", "xla:1", "xla:2"]
assert xm.get_xla_supported_devices(max_devices=2) == ["xla:0", "xla:1"]
assert xm.xla_real_devices() == ["CPU:0", "CPU:1", "CPU:2"]
assert xm.xla_real_devices(["xla:2"]) == ["CPU:2"]
assert xm.xla_device(1) == xm.xla_device() == torch.ones(1, device="xla").device == torch.device("xla:1")
others = []
thread = threading.Thread(target=lambda: others.append(xm.xla_device()))
thread.start(), thread.join()
assert others == [torch.device("xla:0")]
x = torch.arange(3.0, device="xla:2") * 2
assert x.device == torch.device("xla:2") and x.tolist() == [0, 2, 4]
assert x._array().devices() == {__import__("jax").devices()[2]}
xm.set_replication("xla:2", ["xla:0", "xla:1", "xla:2"])
assert xm._get_device_context().device_index == 2
assert xm._get_device_context("xla:0").device_index == 0
assert xm._get_device_context().replication == ["CPU:0", "CPU:1", "CPU:2"]
try:
    xm.xla_replication_devices(["xla:0"])
except RuntimeError as error:
    assert str(error) == "Cannot replicate if number of devices (1) is different from 3"
import weft.xla.distributed.parallel_loader as pl
loader = pl.ParallelLoader([torch.full((1,), float(i)) for i in range(5)], ["xla:0", "xla:2"])
assert loader.per_device_samples() == 2
assert [b.item() for b in loader.per_device_loader("xla:0")] == [0, 2]
assert [(b.item(), str(b.device)) for b in loader.per_device_loader("xla:2")] == [(1, "xla:2"), (3, "xla:2")]
import os
os.environ["XLA_USE_SPMD"] = "1"
assert xm.xla_device(2) == xm.xla_device() == torch.ones(1, device="xla").device == torch.device("xla:0")
"""


def test_three_devices_of_one_process():
    flags = f"{os.environ.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count=3"
    subprocess.run([sys.executable, "-c", _THREE], check=True, env={**os.environ, "XLA_FLAGS": flags})


def test_different_hardware_does_not_replicate(monkeypatch):
    from weft.xla import _context

    monkeypatch.setattr(_context, "xla_real_devices", lambda devices: ["CPU:0", "TPU:0"])
    with pytest.raises(
        RuntimeError,
        match=r"^Cannot replicate across different device types: devices=\['xla:0', 'xla:1'\]/\['CPU:0', 'TPU:0'\]$",
    ):
        xm.xla_replication_devices(["xla:0", "xla:1"])
    with pytest.raises(RuntimeError, match=r"^Invalid device format: interpreter$"):
        _context._of_kind("CPU", ["CPU:0", "interpreter"])
    assert _context._of_kind("CPU", ["CPU:10", "CPU:9", "TPU:1"]) == ["CPU:9", "CPU:10"]
