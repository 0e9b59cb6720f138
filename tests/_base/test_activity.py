"""The numbers that a worker writes for its launcher."""

from __future__ import annotations

import subprocess
import sys
import threading
from time import monotonic

import pytest

from weft._base.activity import CALLS, COLLECTIVES, DATA, SIZE, Activity, compiling, process, read, waiting
from weft._comm.shared_memory.memory import SharedMemory


@pytest.fixture
def memory(monkeypatch):
    """Memory that this process writes to, as if an agent had started it."""
    memory = memoryview(bytearray(SIZE))
    monkeypatch.setattr(process, "activity", Activity(memory))
    return memory


def numbers(memory):
    return read(memory, monotonic()).numbers


def in_thread(function):
    thread = threading.Thread(target=function)
    thread.start()
    thread.join()


def test_steps_of_one_optimizer(memory):
    assert 0 < numbers(memory)["attached"] <= monotonic()
    assert numbers(memory)["steps"] == 0
    process.activity.step(7)
    first = numbers(memory)
    assert (first["steps"], first["step_seconds"]) == (1, 0)
    process.activity.step(7)
    second = numbers(memory)
    assert second["steps"] == 2
    assert second["step_seconds"] == second["step_ended"] - first["step_ended"] > 0
    assert second["progress"] == second["step_ended"] <= monotonic()


@pytest.mark.parametrize(
    ("optimizers", "steps"),
    [
        ("dgdgdg", 3),  # of an adversarial training
        ("cccgcccg", 6),  # each step of the critic, as the generator steps along
        ("abcdabcdab", 3),  # an optimizer for each parameter
        ("aaabbb", 6 - 1),  # one after the other: the first step of the second falls into the last of the first
    ],
)
def test_steps_of_several_optimizers(memory, optimizers, steps):
    for optimizer in optimizers:
        process.activity.step(ord(optimizer))
    assert numbers(memory)["steps"] == steps


def test_reports(memory):
    activity = process.activity
    activity.count("tokens", 100)
    assert (numbers(memory)["tokens"], numbers(memory)["tokens_rate"]) == (100, 0)
    before = numbers(memory)["tokens_ended"]
    activity.count("tokens", 50)
    now = numbers(memory)
    assert now["tokens"] == 150
    assert now["tokens_rate"] == pytest.approx(50 / (now["tokens_ended"] - before))
    assert now["samples"] == 0
    assert activity.value("loss", 0.5)
    assert activity.value("lr", 1e-3)
    assert activity.value("loss", 0.25)
    assert read(memory, monotonic()).reported == {"loss": 0.25, "lr": 1e-3}
    assert [activity.value(f"value {at}", at) for at in range(20)].count(True) == 14


def test_a_wait_is_seen_while_it_lasts(memory):
    assert read(memory, monotonic())[1:4] == (None, None, None)
    with waiting(COLLECTIVES, "all_reduce"):
        reading = read(memory, monotonic() + 5)
        assert (reading.waits_for, reading.wait.text) == (COLLECTIVES, "all_reduce")
        assert 5 <= reading.wait.seconds == reading.numbers["collectives_seconds"]
        with waiting(CALLS, "a remote call"):  # a part of it
            assert read(memory, monotonic()).waits_for == COLLECTIVES
        in_thread(lambda: waiting(DATA, "in another thread").__enter__())
    reading = read(memory, monotonic())
    assert reading.wait is None
    assert 0 < reading.numbers["collectives_seconds"] < 5
    assert reading.numbers["calls_seconds"] == reading.numbers["data_seconds"] == 0


def test_waits_are_those_of_the_thread_that_trains(memory):
    def train():
        process.activity.step(1)
        with waiting(DATA, "DataLoader"):
            assert read(memory, monotonic()).wait.text == "DataLoader"

    with waiting(CALLS, "what the main thread waits for meanwhile"):
        in_thread(train)
        before = numbers(memory)["calls_seconds"]
    now = numbers(memory)
    assert now["calls_seconds"] == before > 0
    assert now["data_seconds"] > 0
    with waiting(CALLS, "no more"):
        assert read(memory, monotonic()).wait is None


def test_a_wait_that_fails_is_over(memory):
    with pytest.raises(ValueError), waiting(DATA, "DataLoader"):  # noqa: PT011
        raise ValueError
    assert read(memory, monotonic()).wait is None


def test_compilations(memory):
    with compiling("/home/me/train.py:30"):
        reading = read(memory, monotonic() + 5)
        assert reading.compilation.text == "train.py:30"
        assert reading.numbers["compile_seconds"] == reading.compilation.seconds >= 5
        assert reading.numbers["compilations"] == 0
    reading = read(memory, monotonic())
    assert reading.compilation is None
    assert reading.numbers["compilations"] == 1
    with pytest.raises(ValueError), compiling("train.py:31"):  # noqa: PT011
        raise ValueError
    assert numbers(memory)["compilations"] == 1
    assert numbers(memory)["compile_seconds"] > reading.numbers["compile_seconds"]


def test_texts_are_kept_apart_and_bounded(memory):
    long = "x" * 100 + "é"
    for text in ("first", long, *map(str, range(200))):
        with waiting(DATA, text):
            shown = read(memory, monotonic()).wait.text
        assert shown in (text, text.encode()[-56:].decode(), "")
    with waiting(DATA, "first"):
        assert read(memory, monotonic()).wait.text == "first"


def test_without_a_launcher_nothing_is_written():
    assert process.activity is None
    with waiting(DATA, "DataLoader"), compiling("train.py:1"):
        pass


FORKS = """
import os
from weft._base.activity import SIZE, Activity, process
process.activity = Activity(memoryview(bytearray(SIZE)))
if not (pid := os.fork()):
    os._exit(0 if process.activity is None else 1)
assert os.waitpid(pid, 0)[1] == 0
assert process.activity is not None
"""


def test_a_forked_child_writes_nothing():
    subprocess.run([sys.executable, "-c", FORKS], check=True)


def test_in_shared_memory():
    size = SharedMemory.start + SIZE
    made = SharedMemory.create(size)
    there = SharedMemory.open(made.handle, size)
    Activity(there.view()[SharedMemory.start :]).step(1)
    assert numbers(made.view()[SharedMemory.start :])["steps"] == 1
    made.close()
    there.close()
