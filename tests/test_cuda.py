"""CUDA devices, on machines with and without them."""

from __future__ import annotations

import pytest

import weft
from weft import cuda
from weft._base.device import canonical, current

without = pytest.mark.skipif(cuda.is_available(), reason="this machine has such a device")
needs_cuda = pytest.mark.skipif(not cuda.is_available(), reason="this machine has no such device")


@without
@pytest.mark.parametrize(
    "call",
    [
        lambda: cuda.set_device(0),
        lambda: cuda.set_device("cuda:0"),
        lambda: cuda.current_device(),
        lambda: cuda.synchronize(),
        lambda: cuda.get_device_name(),
        lambda: cuda.device(0).__enter__(),
        lambda: cuda.init(),
        lambda: cuda.current_stream(),
        lambda: cuda.mem_get_info(),
        lambda: cuda.get_device_properties(0),
        lambda: cuda.get_device_capability(),
    ],
)
def test_without_devices_calls_say_so(call):
    with pytest.raises(RuntimeError, match=r"cuda:0: this machine has no cuda device that jax can use$"):
        call()


@without
def test_without_devices_the_rest_does_nothing():
    cuda.set_device(-1)
    cuda.empty_cache()
    with cuda.device(-1):
        pass
    with cuda.stream(None), cuda.device_of(weft.zeros(1)):
        pass
    cuda.ipc_collect()
    cuda.reset_peak_memory_stats()
    assert (cuda.memory_allocated(), cuda.max_memory_allocated(), cuda.is_bf16_supported()) == (0, 0, False)
    assert (cuda.memory_stats(), cuda.memory_reserved(), cuda.memory_summary(), cuda.get_arch_list()) == ({}, 0, "", [])
    assert not cuda.is_current_stream_capturing()


@pytest.mark.parametrize(
    ("device", "text"),
    [
        ("cpu", "Expected a cuda device, but got: cpu"),
        (weft.device("cpu"), "Expected a cuda device, but got: cpu"),
        ("cuda", "Expected a torch.device with a specified index or an integer, but got:cuda"),
        (None, "Expected a torch.device with a specified index or an integer, but got:None"),
    ],
)
def test_other_devices_are_refused(device, text):
    with pytest.raises(ValueError, match=f"^{text}$"):
        cuda.set_device(device)


def test_all_devices_draw_the_same():
    cuda.manual_seed_all(3)
    first = weft.rand(2).tolist()
    cuda.manual_seed(3)
    assert weft.rand(2).tolist() == first


def test_what_there_is_not_is_told():
    assert not hasattr(cuda, "CUDAGraph")
    with pytest.raises(AttributeError, match=r"'CUDAGraph': graphs, captures and allocators are XLA's own affair"):
        _ = cuda.CUDAGraph


@needs_cuda
def test_a_device_is_current():
    cuda.set_device(0)
    with cuda.device("cuda:0"):
        x = weft.ones(3, device="cuda") * 2
        cuda.synchronize()
    assert (cuda.current_device(), x.device) == (0, weft.device("cuda", 0))
    assert cuda.memory_allocated() > 0
    assert cuda.get_device_name() == cuda.get_device_properties(0).name
    assert cuda.get_device_capability() >= (1, 0)
    assert cuda.memory_stats()["allocated_bytes.all.current"] == cuda.memory_allocated()


def test_the_kind_alone_means_the_current_device(monkeypatch):
    monkeypatch.setattr(current, "cuda", 2)
    assert [str(canonical(name)) for name in ("cuda", "cuda:1", "tpu")] == ["cuda:2", "cuda:1", "tpu:0"]
