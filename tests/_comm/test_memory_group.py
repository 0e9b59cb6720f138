"""What happens when a rank ends, stops, gives up, leaves, or never comes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from itertools import pairwise
from threading import Event, Thread

import numpy as np
import pytest

from tests._comm import cases
from tests._comm.peers import Folder, processes, ready, run_threads, told
from tests.waiting import is_stopped, until
from weft._comm.deadline import Deadline
from weft._comm.groups.memory_group import connect
from weft._comm.shared_memory.layout import CHUNK, RegionLayout
from weft._comm.shared_memory.memory import PrivateMemory, SharedMemory
from weft.errors import DistBackendError

LOST = 2


@pytest.mark.parametrize("operation", cases.OPERATIONS + cases.MESSAGES)
def test_a_killed_rank_is_named(operation, tmp_path):
    with processes(LOST + 1, "endless", tmp_path, operation, str(tmp_path), "50") as running:
        ready(tmp_path, LOST + 1)
        running[LOST].kill()
        lost = f"rank {LOST} has ended (process {running[LOST].pid})"
        # A message concerns its two ranks; the third one learns of it as soon as somebody has given up.
        for process in running[:LOST]:
            first, again = told(process).splitlines()
            assert first.endswith(lost)
            assert again == f"the group cannot be used any more, make a new one: {first}"


@pytest.mark.parametrize(
    "operation", ["all_reduce", *(pytest.param(other, marks=pytest.mark.soak) for other in ("barrier", "receive"))]
)
def test_a_stopped_rank_is_named_at_the_deadline(operation, tmp_path):
    with processes(2, "endless", tmp_path, operation, str(tmp_path), "1.5") as running:
        ready(tmp_path, 2)
        running[1].send_signal(signal.SIGSTOP)
        first, _ = told(running[0]).splitlines()
        assert first.startswith(operation)
        assert "ms for rank 1; see what holds it up, or allow more time" in first
        if operation == "receive":
            return  # the other rank takes no part
        running[1].send_signal(signal.SIGCONT)
        second, _ = told(running[1]).splitlines()
        assert second.endswith(f"rank 0 gave up: {first}")


def test_a_rank_that_was_stopped_is_waited_for(tmp_path):
    with processes(2, "stopping", tmp_path, str(tmp_path)) as running:
        until(lambda: is_stopped(running[1].pid), "rank 1 does not stop")
        ready(tmp_path, 2)
        running[1].send_signal(signal.SIGCONT)
        assert [told(process) for process in running] == ["2.0\n", "2.0\n"]


def test_a_rank_that_never_comes_is_named(tmp_path):
    def case(here):
        if here.rank == 0:
            here.collectives.barrier(Deadline(0.05))

    first, *_ = run_threads(3, case, tmp_path)
    assert str(first).startswith("barrier, rank 0: Timed out waiting ")
    assert str(first).endswith("ms for ranks 1, 2; see what holds them up, or allow more time")


def test_a_group_that_is_not_complete_names_who_is_missing(tmp_path):
    with pytest.raises(
        DistBackendError,
        match=r"^joining the group, rank 0: Timed out waiting .*ms for ranks 1, 2; see what holds them up",
    ):
        connect(PrivateMemory, Folder(tmp_path), 0, 3, Deadline(0.05))


def test_a_rank_that_has_left_is_named(tmp_path):
    def case(here):
        if here.rank:
            here.close()
            here.close = lambda: None
        else:
            here.collectives.barrier(here.deadline)

    error, _ = run_threads(2, case, tmp_path)
    assert str(error) == "barrier, rank 0: rank 1 has left the group"


def test_a_rank_that_gives_up_ends_the_waiting_of_all(tmp_path):
    def case(here):
        if here.rank:
            here.group.abort("the user pressed a key")
        here.collectives.barrier(here.deadline)

    waiting, aborted = run_threads(2, case, tmp_path)
    assert str(waiting) == "barrier, rank 0: rank 1 gave up: the user pressed a key"
    assert str(aborted) == "the group cannot be used any more, make a new one: the user pressed a key"


@pytest.mark.parametrize("operation", ["barrier", "send to rank 0 with tag 0", "receive from rank 0 with tag 0"])
def test_a_rank_that_comes_when_another_has_given_up_is_told_at_once(operation, tmp_path):
    given_up = Event()

    def case(here):
        if here.rank == 0:
            try:
                here.collectives.barrier(Deadline(0.1))
            finally:
                given_up.set()
        given_up.wait(60)
        if operation == "barrier":
            here.collectives.barrier(here.deadline)  # all others have come to it
        else:
            (here.messages.send if "send" in operation else here.messages.receive)(np.zeros(1), 0)

    early, late = run_threads(2, case, tmp_path)
    assert str(early).startswith("barrier, rank 0: Timed out waiting ")
    assert str(late) == f"{operation}, rank 1: rank 0 gave up: {early}"


def test_the_rank_that_failed_first_is_named_once(tmp_path):
    heard = Event()

    def case(here):
        if here.rank == 2:
            here.group.abort("the user pressed a key")
        if here.rank == 1:
            heard.wait(60)  # rank 0 has given up as well, for what it heard of rank 2
        try:
            here.collectives.barrier(here.deadline)
        finally:
            heard.set()

    first, second, _ = run_threads(3, case, tmp_path)
    assert str(first) == "barrier, rank 0: rank 2 gave up: the user pressed a key"
    assert str(second) == "barrier, rank 1: rank 2 gave up: the user pressed a key"


def test_another_thread_can_end_the_waiting(tmp_path):
    def case(here):
        if here.rank == 0:
            thread = Thread(target=here.group.abort, args=("told to stop",))
            thread.start()
            try:
                here.messages.wait(here.messages.receive(np.zeros(1), 1), here.deadline)
            finally:
                thread.join()

    error, _ = run_threads(2, case, tmp_path)
    assert str(error).endswith("told to stop")


def test_an_interrupted_operation_breaks_the_group(tmp_path):
    class Stop(Exception):
        pass

    def case(here):
        if here.rank:

            def drive():
                raise Stop

            here.group.progress = drive
            here.collectives.barrier(here.deadline)
        else:
            with pytest.raises(DistBackendError, match="gave up: barrier was interrupted by Stop"):
                here.messages.wait(here.messages.receive(np.zeros(1), 1), here.deadline)

    first, second = run_threads(2, case, tmp_path)
    assert first is None
    assert isinstance(second, Stop)


# --- memory ---


def test_memory_is_opened_by_its_handle_only(tmp_path):
    memory = SharedMemory.create(8192)
    pid, fd, _ = memory.handle.decode().split()
    peer = SharedMemory.open(memory.handle, 8192)
    memory.view()[100] = 7
    assert peer.view()[100] == 7
    for handle, size in [
        (f"{pid} {fd} {'0' * 32}", 8192),
        (memory.handle.decode(), 4096),
        (f"{pid} 0 {'0' * 32}", 8192),
        (f"{2**22 + 1} {fd} {'0' * 32}", 8192),
    ]:
        with pytest.raises(DistBackendError, match=r"^the shared memory of process \d+ cannot be opened: .* 'xla'"):
            SharedMemory.open(handle.encode(), size)
    peer.close()
    memory.close()


def test_private_memory_belongs_to_its_process():
    memory = PrivateMemory.create(4096)
    assert PrivateMemory.open(memory.handle, 4096).view() == memory.view()
    memory.detach()
    with pytest.raises(DistBackendError, match=r"^the memory of rank 0 is not in this process"):
        PrivateMemory.open(memory.handle, 4096)


def test_no_descriptor_is_left(tmp_path):
    def descriptors():
        return len(os.listdir("/proc/self/fd"))

    before = descriptors()
    run_threads(3, cases.messages, tmp_path, kind=SharedMemory)
    assert descriptors() == before


@pytest.mark.parametrize("size", [1, 2, 5, 64])
def test_places_do_not_overlap(size):
    layout = RegionLayout(size, 64)
    ranks, halves = range(size), (0, 1)
    words = [f(r) for f in (layout.step, layout.state, layout.pid) for r in ranks]
    words += [f(a, b) for f in (layout.written, layout.consumed) for a in ranks for b in ranks]
    spans = [slice(8 * word, 8 * word + 64) for word in words]
    spans += [layout.text(r) for r in ranks]
    spans += [f(r, half) for f in (layout.call, layout.counts, layout.area) for r in ranks for half in halves]
    spans += [layout.ring(a, b) for a in ranks for b in ranks]
    spans.sort(key=lambda span: span.start)
    assert spans[0].start >= 64
    assert spans[-1].stop <= layout.end
    assert all(a.stop <= b.start for a, b in pairwise(spans))
    assert all(span.start % 64 == 0 for span in spans)
    area = layout.area(0, 0)
    assert area.stop - area.start >= CHUNK * (1 + 1 / size) + 64 * (size + 1)


def test_nothing_heavy_is_imported():
    script = (
        "import sys, weft._comm.groups.collectives, weft._comm.groups.messages; "
        "print(sorted({'jax', 'ml_dtypes', 'multiprocessing'} & set(sys.modules)))"
    )
    found = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert found.stdout == "[]\n"


def test_errors_tell_which_ranks_are_missing(tmp_path):
    def case(here):
        if here.rank < 2:
            here.collectives.barrier(Deadline(0.2 if here.rank == 0 else 60))

    first, second, _ = run_threads(3, case, tmp_path)
    assert (first.missing, second.missing) == ((2,), (0,))
