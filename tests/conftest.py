"""What every test starts from, and what it must leave behind."""

from __future__ import annotations

import faulthandler
import gc
import os
import random
import signal
import sys
import threading
from multiprocessing.forkserver import set_forkserver_preload
from pathlib import Path
from weakref import WeakKeyDictionary

import numpy as np
import pytest
from hypothesis import settings

import weft
from weft._base import config
from weft._base.state import Pending, default_dtype, using
from weft._lazy import explain, program

SECONDS = 300  # that a test may take, on a machine that is busy
LONG_SECONDS = 7200  # one that is left out of the default run
SOAKED = Path(__file__).with_name("soaked.txt")
LONG = (
    *("test_children.py", "test_as_torch.py", "drop_in/test_identity.py", "_tools/test_run.py", "func/test_rows.py"),
    *("distributed/tensor/test_operators.py", "ops/test_sizes.py", "utils/data/test_forked.py", "native/test_rows.py"),
)
"""Files of tests that take half a minute: they come first, or a worker might begin one when the other has ended."""

set_forkserver_preload(["weft.distributed._preload"])  # what its processes would import otherwise, one by one

settings.register_profile("ci", derandomize=True, max_examples=20, deadline=None, database=None)
settings.register_profile("soak", max_examples=300, deadline=None)
settings.load_profile("ci")


@pytest.hookimpl(wrapper=True)
def pytest_collection():
    """What is collected stays: the garbage collector would go through thousands of tests again and again meanwhile."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()
        gc.freeze()


@pytest.hookimpl(tryfirst=True)  # before tests are chosen by markers
def pytest_collection_modifyitems(config, items):
    """Give the tests of `soaked.txt` their marker, and put long files first."""
    soaked = {f"tests/{line}" for line in SOAKED.read_text().splitlines() if not line.startswith("#")}
    for item in items:
        if item.nodeid in soaked:
            item.add_marker(pytest.mark.soak)
    items.sort(key=lambda item: not str(item.path).endswith(LONG))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item):
    """A test that hangs fails, wherever it waits, and shows what its threads do."""
    seconds = LONG_SECONDS if any(map(item.get_closest_marker, ("soak", "faults", "oracle"))) else SECONDS

    def fail(*_):
        faulthandler.dump_traceback()
        pytest.fail(f"the test has not ended in {seconds} s")

    before = signal.signal(signal.SIGALRM, fail)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        return (yield)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


@pytest.fixture(autouse=True, scope="module")
def few_objects_to_look_at():
    """What earlier modules have left for good, such as compiled programs, is kept out of the collector's way."""
    gc.freeze()


@pytest.fixture(autouse=True, scope="module")
def own_environment():
    """Variables that a launcher has set in this process are not those of other modules."""
    before = dict(os.environ)
    yield
    if os.environ != before:
        os.environ.clear()
        os.environ.update(before)


@pytest.fixture(autouse=True)
def fresh_state():
    """Fixed seeds, no mode and no pending value of another test; the switches are put back."""
    random.seed(0)
    np.random.seed(0)
    weft.manual_seed(0)
    with using(pending=Pending(), grad=True, inference=False, anomaly=False, capture=None):
        yield
    if default_dtype() is not weft.float32:
        weft.set_default_dtype(weft.float32)
    if weft.are_deterministic_algorithms_enabled():
        weft.use_deterministic_algorithms(False)


@pytest.fixture(autouse=True)
def tier(request, monkeypatch):
    """What is said of compiled programs is tested on them, however the other tests compute."""
    if request.node.get_closest_marker("compiled"):
        monkeypatch.setattr(config, "TIER", "compiled")
        monkeypatch.setenv("WEFT_TIER", "compiled")  # for other processes
        monkeypatch.setattr(program, "_programs", {})


@pytest.fixture(autouse=True)
def no_thread_left():
    """A test ends the threads that it starts."""
    before = set(threading.enumerate())
    yield
    if "multiprocessing.resource_sharer" in sys.modules:
        sys.modules["multiprocessing.resource_sharer"].stop()  # it serves descriptors that were sent, until then
    for thread in set(threading.enumerate()) - before:
        thread.join(timeout=10)
        assert not thread.is_alive(), f"the test has left {thread.name} running"


@pytest.fixture
def compilations(monkeypatch):
    """Call it for the compilations since the last call. The test starts from an empty cache of programs."""
    monkeypatch.setattr(config, "TIER", "compiled")
    monkeypatch.setattr(program, "_programs", {})
    monkeypatch.setattr(explain, "_log", [])
    monkeypatch.setattr(explain, "_interpreted", WeakKeyDictionary())

    def since():
        found = weft.explain()
        explain._log.clear()
        return found

    return since
