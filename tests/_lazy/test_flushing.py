"""When values are computed, what is freed, and what survives a failure."""

from __future__ import annotations

import gc
import threading

import numpy as np
import pytest

import weft
from weft._base import config
from weft._base.state import ambient
from weft._lazy import flushing, running
from weft._lazy.value import Value
from weft._tensor.convert import from_numpy_array

pytestmark = pytest.mark.compiled


def pending():
    return ambient().pending


def held_array(*shape):
    """A tensor whose elements are there, and large enough that its buffer is worth giving away."""
    x = weft.ones(shape or (2048,))
    x.tolist()
    return x


def living_values():
    return sum(type(x) is Value for x in gc.get_objects())


# --- when ---


def test_nothing_is_computed_before_a_value_is_needed(compilations):
    y = (weft.ones(3) * 2 + 1).sum()
    assert y.shape == ()
    assert y._value.is_pending
    assert not compilations()
    assert y.item() == 9
    assert [c.operators for c in compilations()] == [4]


READS = [
    ("tolist", weft.Tensor.tolist, [2.0]),
    ("numpy", weft.Tensor.numpy, np.float32([2])),
    ("asarray", np.asarray, np.float32([2])),
    ("item", weft.Tensor.item, 2.0),
    ("float", float, 2.0),
    ("bool", bool, True),
    ("repr", repr, "tensor([2.])"),
    ("dlpack", lambda y: np.from_dlpack(y), np.float32([2])),
]


@pytest.mark.parametrize(("read", "seen"), [row[1:] for row in READS], ids=[row[0] for row in READS])
def test_every_way_of_reading_computes(read, seen):
    y = weft.ones(1) + 1
    assert read(y) == seen
    assert not y._value.is_pending


def test_a_flush_computes_all_living_values_and_no_dead_one(compilations):
    x = weft.ones(3)
    kept, other = x + 1, x * 2
    x - 3
    kept.tolist()
    assert not other._value.is_pending
    assert [c.operators for c in compilations()] == [3]
    assert not pending()


def test_dead_values_are_swept_without_computing(compilations):
    x = weft.ones(3)
    for _ in range(3000):
        x * 2
    assert len(pending()) <= pending().room
    assert not compilations()


def test_living_values_are_bounded(compilations, monkeypatch):
    monkeypatch.setattr(config, "NODE_CAP", 512)
    x = weft.ones(2)
    kept = [x + i for i in range(1100)]
    assert len(pending()) < 512
    assert not kept[0]._value.is_pending
    assert kept[1099].tolist() == [1100, 1100]
    assert len(compilations()) <= 3


@pytest.mark.slow
@pytest.mark.parametrize("steps", [100_000, pytest.param(1_000_000, marks=pytest.mark.soak)])
def test_a_loop_that_reads_nothing_stays_small(compilations, steps):
    x = weft.ones(2)
    before = living_values()
    most = 0
    for step in range(steps):
        x = x * 0.5 + 1.0
        if not step % 20_000:
            most = max(most, living_values())
    assert x.tolist() == [2, 2]
    assert most - before < 4 * config.NODE_CAP
    assert len(compilations()) <= 6
    assert living_values() - before < 10


# --- buffers ---


@pytest.fixture
def donated(monkeypatch):
    """Positions of the buffers given away by each program."""
    seen = []
    run = running.execute

    def spy(program, graph, *rest):
        seen.append(tuple(graph.donated))
        return run(program, graph, *rest)

    monkeypatch.setattr(running, "execute", spy)
    return seen


def test_a_leaf_that_nobody_holds_gives_its_buffer(donated):
    x = held_array()
    donated.clear()
    x = x + 1
    assert x.sum().item() == 4096
    assert donated == [(0,)]
    assert x[0].item() == 2


@pytest.mark.parametrize(
    "hold",
    [lambda x: x, lambda x: x._value, lambda x: x._value.content, lambda x: x.detach(), lambda x: x[:]],
    ids=["tensor", "value", "array", "detached", "view"],
)
def test_a_leaf_that_somebody_holds_keeps_its_buffer(donated, hold):
    x = held_array()
    holder = hold(x)
    donated.clear()
    x = x + 1
    assert x.sum().item() == 4096
    assert donated == [()]
    assert np.asarray(holder.content if isinstance(holder, Value) else holder)[0] == 1


def test_an_array_of_numpy_outlives_the_tensor():
    x = held_array()
    host = x.numpy()
    for step in range(3):
        x = x + 1
        assert x[0].item() == step + 2
    assert host.tolist() == [1] * 2048


def test_imported_memory_is_never_given_away(donated):
    source = np.ones(4096, np.float32)
    source = source[(-source.ctypes.data % 64) // 4 :][:2048]
    x = from_numpy_array(source)
    x = x + 1
    assert x.sum().item() == 4096
    assert donated == [()]
    assert source.sum() == 2048


def test_what_a_backward_pass_reads_is_never_given_away():
    x = held_array().requires_grad_()
    y = x * x
    y.sum().item()
    z = (y * y).sum()
    del y
    z.item()
    z.backward()
    assert x.grad[:2].tolist() == [4, 4]


# --- garbage ---


def test_steps_make_no_cyclic_garbage():
    weight = weft.ones(3, 3, requires_grad=True)
    x = weft.ones(2, 3)

    def step():
        loss = ((x @ weight).relu() ** 2).mean()
        loss.backward()
        with weft.no_grad():
            weight.sub_(0.01 * weight.grad)
            weight[0].mul_(0.5)
        weight.grad = None
        return loss.item()

    step(), step()
    gc.collect()
    gc.disable()
    try:
        for _ in range(5):
            step()
        gc.set_debug(gc.DEBUG_SAVEALL)
        gc.collect()
        ours = [x for x in gc.garbage if type(x).__module__.startswith("weft")]
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
        gc.enable()
    assert not ours


# --- failure ---


def test_a_failed_program_leaves_its_values_pending(monkeypatch):
    run = running.execute
    failures = [MemoryError("no memory left")]

    def fails_once(*args):
        if failures:
            raise failures.pop()
        return run(*args)

    monkeypatch.setattr(running, "execute", fails_once)
    y = weft.ones(2) + 1
    with pytest.raises(MemoryError, match="no memory left"):
        y.tolist()
    assert y._value.is_pending
    assert y.tolist() == [2, 2]


# --- index checks ---


def test_a_loop_of_writes_is_cut_into_equal_programs(compilations):
    filled = weft.zeros(300)
    filled.numpy()
    compilations()
    for position in range(300):
        filled[position] = position * 2.0
    assert filled.sum().item() == 300 * 299
    assert all(compilation.operators <= 100 for compilation in compilations())


def test_another_thread_may_compute_what_this_one_is_about_to(monkeypatch):
    taken, computed = threading.Event(), threading.Event()
    take, recorded, raised = flushing.take_living, [], []

    def take_and_wait(values, living):
        take(values, living)
        if threading.current_thread() is not threading.main_thread():
            taken.set()
            computed.wait(60)

    def record_and_flush():
        recorded.append(weft.ones(3) + 1)
        taken_last = weft.ones(3) * 3
        try:
            flushing.flush_pending()
            raised.append(taken_last.tolist())
        except BaseException as error:
            raised.append(error)

    monkeypatch.setattr(flushing, "take_living", take_and_wait)
    thread = threading.Thread(target=record_and_flush)
    thread.start()
    assert taken.wait(60)
    assert recorded[0].tolist() == [2, 2, 2]
    computed.set()
    thread.join()
    assert raised == [[3, 3, 3]]
