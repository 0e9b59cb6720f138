"""Threads that help the machine: for several callers at once, after a fork, and with signals."""

from __future__ import annotations

import os
import signal
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import weft
from weft._lazy.native import native

pytestmark = pytest.mark.skipif(not hasattr(native, "matmul"), reason="the extension has no kernels here")


@pytest.fixture(autouse=True)
def four_threads():
    before = weft.get_num_threads()
    weft.set_num_threads(4)
    yield
    weft.set_num_threads(before)


def _product(seed):
    a = np.random.default_rng(seed).normal(size=(400, 400)).astype(np.float32)
    return native.matmul(a, a)


def _helpers():
    names = []
    for task in os.listdir("/proc/self/task"):
        with open(f"/proc/self/task/{task}/comm") as file:
            names.append(file.read().strip())
    return names.count("weft")


def test_several_callers_compute_at_once():
    alone = [_product(seed) for seed in range(4)]
    with ThreadPoolExecutor(4) as callers:
        together = list(callers.map(_product, [seed % 4 for seed in range(64)]))
    assert all(np.array_equal(product, alone[at % 4]) for at, product in enumerate(together))
    assert 3 <= _helpers() <= 64


def test_a_forked_process_has_helpers_of_its_own():
    want = _product(0)
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        before = _helpers()
        same = np.array_equal(_product(0), want)
        os.write(writer, bytes([before, same, _helpers()]))
        os._exit(0)
    os.close(writer)
    try:
        assert os.read(reader, 3) == bytes([0, True, 3])
        assert os.waitpid(child, 0)[1] == 0
    finally:
        os.close(reader)


def test_signals_come_to_the_threads_of_python():
    """A helper that received a signal would leave a blocked call of the main thread as it is."""
    _product(0)
    caught = []
    before = signal.signal(signal.SIGUSR1, lambda number, frame: caught.append(threading.current_thread()))
    try:
        for task in os.listdir("/proc/self/task"):
            with open(f"/proc/self/task/{task}/status") as file:
                fields = dict(line.split(":", 1) for line in file if ":" in line)
            if fields["Name"].strip() == "weft":
                assert int(fields["SigBlk"], 16) >> (signal.SIGUSR1 - 1) & 1
        os.kill(os.getpid(), signal.SIGUSR1)
        assert caught == [threading.main_thread()]
    finally:
        signal.signal(signal.SIGUSR1, before)
