"""Recording and computing from several threads."""

from __future__ import annotations

import gc
import random
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import pytest

import weft
from weft._base.state import ambient
from weft._lazy import infer, running


def in_threads(count, work):
    """Results of `work(0)`, `work(1)`, … started together."""
    start = threading.Barrier(count)

    def run(at):
        start.wait()
        return work(at)

    with ThreadPoolExecutor(count) as pool:
        return list(pool.map(run, range(count)))


def test_threads_compute_their_own_graphs():
    def work(at):
        weight = weft.full((2, 2), float(at), requires_grad=True)
        for _ in range(20):
            loss = (weight * weight).sum()
            loss.backward()
        return loss.item(), weight.grad.tolist()

    assert in_threads(4, work) == [(4.0 * at * at, [[40.0 * at] * 2] * 2) for at in range(4)]


def test_a_thread_may_use_what_another_one_recorded():
    shared = weft.ones(3) * 2
    found = in_threads(2, lambda at: (shared + at).tolist())
    assert found == [[2] * 3, [3] * 3]
    assert shared.tolist() == [2] * 3


def test_many_threads_need_the_same_pending_value():
    for step in range(20):
        shared = weft.ones(3) * step
        assert in_threads(4, lambda _: shared.tolist()) == [[step] * 3] * 4  # noqa: B023  called in this step


def test_threads_that_infer_the_same_types_at_once_record_the_same(monkeypatch):
    """Else each of them would compile a program of its own."""
    both, one = threading.Barrier(2), infer._infer

    def together(*args):
        both.wait(60)
        return one(*args)

    x = weft.ones(1, 2, 3, 4, 5, 6, 7)
    monkeypatch.setattr(infer, "_infer", together)
    first, second = in_threads(2, lambda _: x.sinh()._read().origin)
    assert first is second


@pytest.fixture
def two_flushes(monkeypatch):
    """Futures of a flush, whose program `outcome` ends, and of one that waits for what the first computes."""

    @contextmanager
    def begin(outcome=lambda: None):
        started, go_on = threading.Event(), threading.Event()
        run = running.execute

        def held(*args):
            if not started.is_set():
                started.set()
                assert go_on.wait(60)
                outcome()
            return run(*args)

        monkeypatch.setattr(running, "execute", held)
        shared = weft.ones(3) + 1
        with ThreadPoolExecutor(2) as pool:
            first = pool.submit(shared.tolist)
            assert started.wait(60)
            second = pool.submit(lambda: (shared * 2).tolist())
            go_on.set()
            yield first, second

    return begin


def test_a_thread_waits_for_the_flush_that_computes_its_input(two_flushes):
    with two_flushes() as (first, second):
        assert first.result(60) == [2] * 3
        assert second.result(60) == [4] * 3


def test_a_waiting_thread_tries_again_where_another_one_failed(two_flushes):
    def fail():
        raise MemoryError("the first flush fails")

    with two_flushes(fail) as (first, second):
        with pytest.raises(MemoryError, match="the first flush fails"):
            first.result(60)
        assert second.result(60) == [4] * 3


def test_a_new_thread_starts_from_the_defaults():
    weft.ones(2) + 1
    with weft.no_grad():
        seen = in_threads(1, lambda _: (ambient().grad, len(ambient().pending)))
    assert seen == [(True, 0)]


def test_threads_run_backward_over_a_shared_input():
    weights = [weft.ones(2, requires_grad=True) for _ in range(2)]
    x = weft.ones(2) * 3
    in_threads(2, lambda at: (weights[at] * x).sum().backward())
    assert [w.grad.tolist() for w in weights] == [[3, 3], [3, 3]]


def test_threads_that_run_backward_into_one_leaf_lose_no_gradient():
    leaf = weft.ones(4, requires_grad=True)
    threads = [threading.Thread(target=lambda: (leaf * 2).sum().backward()) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert leaf.grad is not None
    assert leaf.grad.tolist() == [16.0] * 4


def test_threads_compute_what_others_have_recorded():
    """Values of one graph are numbered, computed and let go of by several threads at once, and by finalizers."""
    shared = [weft.randn(8) for _ in range(8)]
    errors: list[BaseException] = []

    class Reader:
        def __init__(self, tensor):
            self.tensor = tensor

        def __del__(self):
            try:
                self.tensor.sum().item()
            except Exception as error:
                errors.append(error)

    def work(seed):
        draw = random.Random(seed)
        for _ in range(400):
            a, b = draw.choice(shared), draw.choice(shared)
            x = (a * 0.5 + b).tanh()
            weight = weft.ones(8, requires_grad=True)
            loss = (x * weight).sum()
            match draw.randrange(5):
                case 0:
                    loss.item()
                case 1:
                    loss.backward()
                    weight.grad.tolist()
                case 2:
                    shared[draw.randrange(8)] = x.detach()
                case 3:
                    Reader(x)
                case _:
                    weft.stack([a, b, x]).softmax(0)[draw.randrange(3)].tolist()

    before, threshold = sys.getswitchinterval(), gc.get_threshold()
    sys.setswitchinterval(1e-5)
    gc.set_threshold(50)
    try:
        with ThreadPoolExecutor(4) as pool:
            for future in [pool.submit(work, seed) for seed in range(4)]:
                future.result()
    finally:
        sys.setswitchinterval(before)
        gc.set_threshold(*threshold)
    assert not errors
