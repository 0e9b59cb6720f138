"""Loaders that move batches to the device in advance."""

from __future__ import annotations

import gc
import threading

import pytest

import weft as torch
from weft.utils.data import DataLoader, TensorDataset
from weft.xla._channel import Channel
from weft.xla.core import xla_model as xm
from weft.xla.debug import metrics as met
from weft.xla.distributed import parallel_loader as pl
from weft.xla.utils.utils import SampleGenerator


def batches(count=5):
    return [(torch.full((2,), float(at)), {"label": torch.tensor([at])}, f"name {at}") for at in range(count)]


def names(loop):
    return [name for _, _, name in loop]


def steps():
    return met.counter_value("MarkStep") or 0


def test_batches_are_on_the_device_and_in_order():
    loader = pl.MpDeviceLoader(batches(), xm.xla_device(), loader_prefetch_size=2, device_prefetch_size=1)
    assert len(loader) == 5
    for _ in range(2):  # it can be read again
        found = []
        for data, rest, name in loader:
            assert xm.is_xla_tensor(data)
            assert xm.is_xla_tensor(rest["label"])
            found.append((data.tolist(), rest["label"].item(), name))
        assert found == [([float(at)] * 2, at, f"name {at}") for at in range(5)]


def test_an_iterator_that_begins_anew_at_each_iter():
    samples = SampleGenerator(data=(torch.ones(2), torch.zeros(1)), sample_count=3)
    loader = pl.MpDeviceLoader(samples, xm.xla_device())
    assert len(list(loader)) == len(list(loader)) == len(loader) == 3


def test_batches_of_a_data_loader():
    data = TensorDataset(torch.arange(6.0), torch.arange(6))
    loader = DataLoader(data, batch_size=2, shuffle=True, generator=torch.Generator().manual_seed(3))
    expected = [
        [x.tolist(), y.tolist()]
        for x, y in DataLoader(data, batch_size=2, shuffle=True, generator=torch.Generator().manual_seed(3))
    ]
    found = [[x.tolist(), y.tolist()] for x, y in pl.MpDeviceLoader(loader, "xla")]
    assert found == expected


def test_batches_are_made_and_moved_before_they_are_asked_for():
    made = []
    last = threading.Event()

    def source():
        for at in range(8):
            made.append(at)
            if at == 5:
                last.set()
            yield torch.tensor([at])

    loop = iter(pl.MpDeviceLoader(source(), "xla:0", loader_prefetch_size=2, device_prefetch_size=2))
    assert last.wait(60)  # two on the device, two on the host, and one in each thread's hands
    assert made == [0, 1, 2, 3, 4, 5]
    assert [x.item() for x in loop] == list(range(8))


def test_a_step_ends_at_each_batch():
    before = steps()
    seen = []
    for data, _, _ in pl.MpDeviceLoader(batches(3), "xla"):
        seen.append(data + 1)
        assert seen[-1]._read().is_pending
        assert not any(x._read().is_pending for x in seen[:-1])
    assert not any(x._read().is_pending for x in seen)
    assert steps() - before == 3 + 2  # before each batch and the end, and at the end


@pytest.mark.parametrize(("count", "ends"), [(1, 4 + 1 + 1), (2, 2 + 1 + 1), (4, 1 + 1 + 1), (5, 1 + 1)])
def test_steps_of_several_batches(count, ends):
    before = steps()
    names(pl.MpDeviceLoader(batches(4), "xla", batches_per_execution=count))
    assert steps() - before == ends  # before batches, before the end, and after it


def test_a_loop_that_is_left_ends_the_threads():
    before = set(threading.enumerate())

    def endless():
        while True:
            yield torch.zeros(1)

    loader = pl.MpDeviceLoader(endless(), "xla")
    for _ in loader:
        started = set(threading.enumerate()) - before
        break
    assert len(started) == 2
    gc.collect()
    for thread in started:
        thread.join(60)
        assert not thread.is_alive()


def test_a_second_loop_ends_the_first():
    loader = pl.MpDeviceLoader(batches(), "xla")
    first = iter(loader)
    next(first)
    assert names(loader) == [f"name {at}" for at in range(5)]
    assert names(first) == []


def test_an_error_of_the_loader_is_raised_where_batches_are_read():
    def source():
        yield torch.ones(1)
        yield torch.ones(1)
        raise OSError("disk gone")

    loop = iter(pl.MpDeviceLoader(source(), "xla"))
    assert [next(loop).item(), next(loop).item()] == [1, 1]
    with pytest.raises(OSError, match=r"^disk gone$"):
        next(loop)
    assert list(loop) == []


def test_an_error_of_the_transfer_is_raised_where_batches_are_read():
    class Strange(dict):
        def clear(self):
            raise OSError("cannot be copied")

    with pytest.raises(OSError, match=r"^cannot be copied$"):
        list(pl.MpDeviceLoader([Strange(x=torch.ones(1))], "xla"))


def test_a_parallel_loader():
    loader = pl.ParallelLoader(batches(), ["xla:0"], batchdim=0, host_to_device_transfer_threads=2, input_sharding=None)
    assert loader.batches_per_execution == 1
    device_loader = loader.per_device_loader("xla:0")
    assert len(device_loader) == loader.per_device_samples() == 5
    assert device_loader.next()[2] == "name 0"
    assert loader.next_item("xla:0")[2] == "name 1"
    assert names(device_loader) == ["name 2", "name 3", "name 4"]
    assert loader.next_item("xla:0") is None
    loader.close()


def test_a_parallel_loader_that_is_closed():
    loader = pl.ParallelLoader(batches(), "xla:0")
    loop = loader.per_device_loader(xm.xla_device())
    next(loop)
    loader.close()
    loader.close()
    assert list(loop) == []


def test_what_a_parallel_loader_does_not_take():
    for name in ("loader_prefetch_size", "device_prefetch_size", "batches_per_execution"):
        with pytest.raises(
            ValueError, match=rf"^ParallelLoader: {name} should be a positive integer, but got {name}=0$"
        ):
            pl.ParallelLoader([], "xla", **{name: 0})
    with pytest.raises(RuntimeError, match=r"^ParallelLoader: cpu is none of its devices, xla:0; give it to "):
        pl.ParallelLoader([], ["xla:0"]).per_device_loader("cpu")


def test_items_before_a_failure_arrive():
    channel = Channel(3)
    assert channel.put(1)
    channel.finish(KeyError("late"))
    assert next(channel) == 1
    with pytest.raises(KeyError, match="late"):
        next(channel)
    assert list(channel) == []


def test_a_sender_that_waits_is_told_that_the_receiver_has_left():
    channel = Channel(1)
    assert channel.put(1)
    answers = []
    thread = threading.Thread(target=lambda: answers.append(channel.put(2)))
    thread.start()
    channel.close()
    thread.join()
    assert answers == [False]
    assert list(channel) == []
