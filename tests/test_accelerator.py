"""Accelerators, streams and events, on machines with and without accelerators."""

from __future__ import annotations

import pytest

import weft as torch
from weft import accelerator, cpu, cuda, mps, mtia, xpu

without = pytest.mark.skipif(accelerator.is_available(), reason="this machine has an accelerator")
needs_accelerator = pytest.mark.skipif(not accelerator.is_available(), reason="this machine has no accelerator")


@without
def test_without_an_accelerator():
    assert accelerator.current_accelerator() is None
    assert (accelerator.is_available(), accelerator.device_count()) == (False, 0)
    device = accelerator.current_accelerator() or "cpu"  # as programs write it
    assert torch.zeros(2, device=device).device.type == "cpu"


@without
@pytest.mark.parametrize(
    "call",
    [
        lambda: accelerator.current_device_index(),
        lambda: accelerator.set_device_index(0),
        lambda: accelerator.current_stream(),
        lambda: accelerator.set_stream(torch.Stream()),
        lambda: accelerator.synchronize(),
        lambda: accelerator.get_device_capability(),
        lambda: accelerator.memory_stats(),
        lambda: accelerator.memory_allocated(),
        lambda: accelerator.max_memory_allocated(),
        lambda: accelerator.memory_reserved(),
        lambda: accelerator.max_memory_reserved(),
        lambda: accelerator.get_memory_info(),
        lambda: accelerator.reset_peak_memory_stats(),
        lambda: accelerator.reset_accumulated_memory_stats(),
        lambda: accelerator.empty_cache(),
        lambda: accelerator.empty_host_cache(),
        lambda: accelerator.device_index(0).__enter__(),
    ],
)
def test_without_an_accelerator_calls_say_so(call):
    with pytest.raises(RuntimeError, match=r"^Cannot access accelerator device when none is available\.$"):
        call()


def test_no_index_changes_nothing():
    with accelerator.device_index(None):
        pass


@without
def test_the_older_names_warn():
    with pytest.warns(FutureWarning, match="`current_device_index`"), pytest.raises(RuntimeError):
        accelerator.current_device_idx()
    with pytest.warns(FutureWarning, match="`set_device_index`"), pytest.raises(RuntimeError):
        accelerator.set_device_idx(0)


@needs_accelerator
def test_with_an_accelerator():
    kind = accelerator.current_accelerator()
    assert accelerator.device_count() > 0
    x = torch.ones(4, device=kind) * 2
    accelerator.synchronize()
    assert (accelerator.current_device_index(), x.sum().item()) == (0, 8.0)
    assert torch.float32 in accelerator.get_device_capability()["supported_dtypes"]
    free, total = accelerator.get_memory_info()
    assert 0 <= free <= total


@pytest.mark.parametrize("module", [xpu, mtia, mps])
def test_types_of_devices_that_are_not_here(module):
    name = module.__name__.rpartition(".")[2]
    assert (module.is_available(), module.device_count(), module.memory_allocated()) == (False, 0, 0)
    assert module.get_rng_state_all() == []
    module.empty_cache()
    with pytest.raises(RuntimeError, match=name):
        module.current_device()
    with pytest.raises(RuntimeError, match=name):
        torch.zeros(1, device=name)
    with pytest.raises(
        AttributeError, match=f"module '{module.__name__}' has no attribute 'none'; there are device_count"
    ):
        _ = module.none
    assert "synchronize" in dir(module)
    assert torch.get_device_module(name) is module


def test_all_devices_draw_the_same():
    xpu.manual_seed(5)
    first = torch.rand(2).tolist()
    cuda.manual_seed_all(5)
    assert torch.rand(2).tolist() == first
    assert mps.initial_seed() == 5
    state = mps.get_rng_state()
    first = torch.rand(1).item()
    mps.set_rng_state(state)
    assert torch.rand(1).item() == first


def test_streams_are_one():
    one, other = torch.Stream(), cpu.current_stream()
    assert (one, hash(one)) == (other, hash(other))
    assert (one.device, one.device_index, one.stream_id) == (torch.device("cpu"), 0, 0)
    with one, cpu.stream(other), cpu.StreamContext(None):
        x = torch.ones(3) + 1
    one.wait_stream(other)
    one.wait_event(one.record_event())
    one.synchronize()
    assert one.query()
    assert x.tolist() == [2, 2, 2]
    assert repr(one) == "<torch.Stream device=cpu>"


def test_events_measure_times():
    start, end = torch.Event(enable_timing=True), cpu.Event(enable_timing=True)
    with pytest.raises(RuntimeError, match="Both events must be recorded before calculating elapsed time"):
        start.elapsed_time(end)
    start.record()
    x = torch.ones(100) * 3
    end.record(cpu.current_stream())
    end.synchronize()
    assert end.query()
    end.wait()
    assert start.elapsed_time(end) > 0
    assert x.sum().item() == 300
    plain = torch.Event()
    plain.record()
    with pytest.raises(RuntimeError, match="created with argument 'enable_timing=True'"):
        start.elapsed_time(plain)


def test_events_are_of_one_process():
    with pytest.raises(TypeError, match="leave `interprocess` out"):
        torch.Event(interprocess=True)


def test_the_host():
    cpu.set_device(0)
    cpu.synchronize()
    assert (cpu.is_available(), cpu.is_initialized(), cpu.device_count(), cpu.current_device()) == (
        True,
        True,
        1,
        "cpu",
    )
