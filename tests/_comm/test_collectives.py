"""Every operation against NumPy, over element types, sizes, and worlds of threads and of processes."""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from tests._comm import cases
from tests._comm.peers import results, run_threads
from tests.distributed.processes import Job
from tests.waiting import nothing_left_in
from weft._comm.deadline import Deadline
from weft._comm.groups import memory_group as board_module
from weft._comm.groups.collectives import Collectives
from weft._comm.groups.memory_group import connect
from weft._comm.shared_memory.memory import PrivateMemory
from weft.errors import ArgumentError, DistBackendError, DTypeError


@pytest.mark.parametrize("size", [1, 2, 3, 4])
@pytest.mark.parametrize("case", [cases.movements, cases.reductions])
def test_threads_agree_with_numpy(size, case, tmp_path):
    results(run_threads(size, case, tmp_path))


@pytest.mark.parametrize("size", [1, 3])
def test_long_arrays_go_through_in_chunks(size, tmp_path):
    results(run_threads(size, cases.long_arrays, tmp_path))


@pytest.fixture(scope="module", params=[2, 3])
def ranks(request, tmp_path_factory):
    """Ranks that are processes and, in the end, leave nothing."""

    def commands(folder):
        command = [sys.executable, "-m", cases.__name__, "served", str(folder)]
        return [[*command, str(rank), str(request.param)] for rank in range(request.param)]

    with nothing_left_in(Path("/dev/shm")):
        job = Job(commands, request.param, partial(tmp_path_factory.mktemp, "job"))
        yield job
        job.end()


@pytest.mark.parametrize("case", cases.PROCESSES)
def test_processes_agree_with_numpy(case, ranks):
    ranks.run(case)


def test_memory_order_is_kept_on_any_machine(tmp_path, monkeypatch):
    monkeypatch.setattr(board_module, "WEAKLY_ORDERED", True)
    results(run_threads(2, cases.movements, tmp_path))
    results(run_threads(2, cases.messages, tmp_path / ".."))


@pytest.mark.parametrize("count", [1000, 1 << 20])
def test_every_rank_gets_the_same_bits(count, tmp_path):
    def case(here):
        values = np.random.default_rng(here.rank).standard_normal(count).astype(np.float32)
        here.collectives.all_reduce(values, values, "sum", here.deadline)
        return values

    found = results(run_threads(3, case, tmp_path))
    parts = [np.random.default_rng(rank).standard_normal(count).astype(np.float32) for rank in range(3)]
    for values in found:
        cases.same(values, parts[0] + parts[1] + parts[2])  # in the order of ranks


def test_short_floats_are_rounded_once(tmp_path):
    def case(here):
        values = np.array([1 if here.rank == 0 else 2**-11], np.float16)  # each alone is lost against 1
        here.collectives.all_reduce(values, values, "sum", here.deadline)
        return values

    for values in results(run_threads(3, case, tmp_path)):
        assert values[0] == 1 + 2**-10


def test_overflow_is_silent_as_elsewhere(tmp_path):
    def case(here):
        values = np.array([3e38, np.inf if here.rank else -np.inf], np.float32)
        here.collectives.all_reduce(values, values, "sum", here.deadline)
        return values

    for values in results(run_threads(2, case, tmp_path)):
        assert np.isinf(values[0])
        assert np.isnan(values[1])


def test_calls_that_do_not_fit_raise_the_same_on_every_rank(tmp_path):
    def case(here):
        x = np.ones(8, np.float32)
        if here.rank == 1:
            here.collectives.broadcast(x, 0, here.deadline)
        else:
            here.collectives.all_reduce(x, x, "sum", here.deadline)

    text = (
        "the ranks call different operations: rank 5 called all_reduce(sum) of 8 float32, "
        "rank 6 called broadcast of 8 float32 with root 0, rank 9 called all_reduce(sum) of 8 float32"
    )
    for error in run_threads(3, case, tmp_path, ranks=(5, 6, 9)):
        assert isinstance(error, DistBackendError)
        assert str(error) == text


@pytest.mark.parametrize("shape", [(3,), (2, 2)])
def test_a_size_that_does_not_fit_is_told(shape, tmp_path):
    def case(here):
        x = np.ones(shape if here.rank else 8)
        here.collectives.all_gather(x, [x.copy(), x.copy()], here.deadline)

    for error in run_threads(2, case, tmp_path):
        size = np.prod(shape)
        assert str(error).endswith(f"rank 0 called all_gather of 8 float64, rank 1 called all_gather of {size} float64")


def test_splits_that_do_not_fit_are_told(tmp_path):
    def case(here):
        parts = [np.ones(3), np.ones(2)]
        here.collectives.all_to_all(parts, [np.ones(3), np.ones(3)], here.deadline)

    for error in run_threads(2, case, tmp_path):
        assert str(error) == "all_to_all: rank 0 sends 2 elements to rank 1, which expects 3"


@pytest.fixture
def alone(tmp_path):
    """The collectives of a group of one rank."""

    class Nobody:
        def set(self, key, value):
            pass

    c = Collectives(connect(PrivateMemory, Nobody(), 0, 1, Deadline(10)))
    yield c
    c.close()


def test_bad_arguments_are_refused_before_anything_happens(alone):
    deadline, x = Deadline(10), np.ones(4, np.float32)
    fixed = x.copy()
    fixed.flags.writeable = False
    refused = [
        (lambda: alone.broadcast(x, 1, deadline), ArgumentError, r"^root 1 is not a rank of a group of 1$"),
        (lambda: alone.broadcast(x[::2], 0, deadline), ArgumentError, r"^arrays must be contiguous"),
        (lambda: alone.all_gather(x, [], deadline), ArgumentError, r"^expected one array for each of 1 ranks, got 0$"),
        (lambda: alone.all_gather(x, [fixed], deadline), ArgumentError, r"^the array to write into is read-only$"),
        (
            lambda: alone.all_reduce(x, np.ones(3), "sum", deadline),
            ArgumentError,
            r"^input and output must be alike: 4 float32 cannot go into 3 float64$",
        ),
        (
            lambda: alone.all_to_all([x], [np.ones(4)], deadline),
            ArgumentError,
            r"^all_to_all: float32 cannot be received as float64$",
        ),
        (
            lambda: alone.all_reduce(x, x, "band", deadline),
            DTypeError,
            r"^reduction 'band' is not defined for float32$",
        ),
        (lambda: alone.all_reduce(x + 1j, x + 1j, "max", deadline), DTypeError, r"^reduction 'max' is not defined for"),
        (lambda: alone.all_reduce(x, x, "mean", deadline), DTypeError, r"^unknown reduction 'mean'; there are sum, "),
    ]
    for call, kind, text in refused:
        with pytest.raises(kind, match=text):
            call()
    alone.all_reduce(x, x, "sum", deadline)
    assert (x == 1).all()


def test_nothing_can_be_used_after_closing(tmp_path):
    def case(here):
        here.collectives.barrier(here.deadline)
        here.close()
        here.close = lambda: None
        here.collectives.barrier(here.deadline)

    for error in run_threads(2, case, tmp_path):
        assert str(error) == "the group cannot be used any more, make a new one: this rank has left the group"
