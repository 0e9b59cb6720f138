"""How much memory there is in use, on the CPU."""

import gc

import pytest

import weft as torch
from weft import nn
from weft.utils import memory

MIB = 1 << 20


def floats(mebibytes):
    return torch.zeros(mebibytes * MIB // 4) + 1


@pytest.fixture(autouse=True)
def _collected():
    """Garbage of other tests is gone."""
    gc.collect()


def test_arrays_count_while_they_live():
    before = memory.memory_allocated("cpu")
    x = floats(3)
    assert memory.memory_allocated("cpu") == before  # nothing is computed yet
    x[0].item()
    view, same = x[5:], x.detach()
    assert memory.memory_allocated("cpu") == before + 3 * MIB
    view[0].item(), same[0].item()
    held = memory.memory_stats("cpu")
    assert held["allocated_bytes.all.current"] == held["reserved_bytes.all.current"] >= before + 3 * MIB
    del x, view, same
    assert memory.memory_allocated("cpu") == before


def test_the_peak_of_a_step():
    x = floats(2)
    x[0].item()
    memory.reset_peak_memory_stats("cpu")
    before = memory.memory_allocated("cpu")
    assert memory.max_memory_allocated("cpu") == before
    for _ in range(2):
        memory.reset_peak_memory_stats("cpu")
        (x.exp() * x.sin()).sum().item()  # two results of 2 MiB, and their product
        assert before + 4 * MIB <= memory.max_memory_allocated("cpu") <= before + 7 * MIB
        assert memory.memory_allocated("cpu") < before + MIB
    memory.reset_peak_memory_stats("cpu")
    x[0].item()
    assert memory.max_memory_allocated("cpu") < before + MIB


def test_the_peak_keeps_what_has_died():
    memory.reset_peak_memory_stats("cpu")
    before = memory.memory_allocated("cpu")
    for size in (1, 5, 2):
        floats(size)[0].item()
        kept = floats(size)
        kept[0].item()
        del kept
    assert memory.memory_allocated("cpu") < before + MIB
    assert memory.max_memory_allocated("cpu") >= before + 5 * MIB
    assert memory.max_memory_reserved("cpu") == memory.max_memory_allocated("cpu")


def test_the_summary():
    text = memory.memory_summary("cpu")
    assert text.splitlines()[0] == "Memory of cpu, in bytes"
    assert [line.split("  ")[0] for line in text.splitlines()[1:5]] == [
        *["allocated", "allocated, peak", "reserved", "reserved, peak"]
    ]
    free, total = memory.mem_get_info("cpu")
    assert 0 < free < total


def test_by_default_the_device_is_the_accelerator_or_the_cpu():
    accelerator = torch.accelerator.current_accelerator()
    x = torch.ones(MIB, device=accelerator or "cpu") * 2
    x[0].item()
    assert memory.memory_allocated() == memory.memory_allocated(x.device) >= x.nbytes


def test_devices_that_are_not_there_are_refused():
    with pytest.raises(RuntimeError, match="this machine has no tpu device"):
        memory.memory_allocated("tpu")


def test_figures_of_training_do_not_grow():
    net = nn.Linear(64, 64)
    optimizer = torch.optim.Adam(net.parameters())
    seen = set()
    for step in range(4):
        optimizer.zero_grad()
        net(torch.ones(8, 64)).sum().backward()
        optimizer.step()
        gc.collect()
        if step:
            seen.add(memory.memory_allocated("cpu"))
    assert len(seen) == 1
