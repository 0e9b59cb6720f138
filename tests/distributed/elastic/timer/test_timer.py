"""Timers over a queue and over a named pipe; the processes that miss them are real."""

from __future__ import annotations

import multiprocessing
import os
import select
import signal
import stat
import sys
import threading
import time
from queue import Queue

import pytest

from tests.waiting import until
from weft.distributed.elastic import timer
from weft.distributed.elastic.multiprocessing import start_processes
from weft.distributed.elastic.timer.api import _configured
from weft.errors import DistError

SPAWN = multiprocessing.get_context("spawn")
FAR = 2e10  # seconds since the epoch
STUCK = "Could not send the FileTimerRequest because FileTimerServer is not available."


class Recorder(timer.TimerClient):
    def __init__(self):
        self.calls = []

    def acquire(self, scope_id, expiration_time):
        self.calls.append(("acquire", scope_id, expiration_time))

    def release(self, scope_id):
        self.calls.append(("release", scope_id))


@pytest.fixture
def configured():
    client = Recorder()
    timer.configure(client)
    yield client
    _configured.client = None


# --- requests and blocks ---


def test_requests_compare_by_their_fields():
    request = timer.TimerRequest(1, "a", 2.0)
    assert request == timer.TimerRequest(1, "a", 2.0)
    assert request != timer.TimerRequest(1, "a", 3.0)
    assert timer.FileTimerRequest(1, "a", 2.0, 9) != timer.FileTimerRequest(1, "a", 2.0, 15)
    assert repr(request) == "TimerRequest(1, 'a', 2.0)"


def test_a_file_request_is_json():
    request = timer.FileTimerRequest(7, "scope", 1.5, signal=9)
    text = '{"version": 1, "pid": 7, "scope_id": "scope", "expiration_time": 1.5, "signal": 9}'
    assert request.to_json() == text
    assert timer.FileTimerRequest.from_json(text) == request
    assert request.worker_pid == 7


def test_a_block_sets_and_releases_a_timer(configured):
    before = time.time()
    with timer.expires(after=60):
        line = sys._getframe().f_lineno - 1
        [(_, scope, ends)] = configured.calls
    assert scope == f"{__file__}#{line}"
    assert before + 60 <= ends <= time.time() + 60
    with pytest.raises(KeyError), timer.expires(after=1, scope="named"):
        raise KeyError
    assert configured.calls[-1] == ("release", "named")


def test_a_block_needs_a_client():
    with pytest.raises(DistError, match=r"^Configure timer client before using countdown timers\.$"):
        timer.expires(after=1).__enter__()
    with pytest.raises(TypeError, match=r"^timer\.configure\(\): timer_client must be a TimerClient, got int$"):
        timer.configure(3)
    own = Recorder()
    with timer.expires(after=1, client=own):
        assert len(own.calls) == 1


# --- over a queue ---


@pytest.fixture
def queue():
    queue = SPAWN.Queue()
    yield queue
    queue.close()
    queue.join_thread()


def work(queue, after):
    timer.configure(timer.LocalTimerClient(queue))
    with timer.expires(after=3600, scope="outer"):
        with timer.expires(after=3600, scope="inner"):
            pass
        with timer.expires(after=after, scope="last"):
            if after < 1:
                signal.pause()
    return "done"


def test_a_process_that_misses_its_timer_is_killed(queue):
    server = timer.LocalTimerServer(queue, max_interval=0.01)
    server.start()
    try:
        for after, expected in ((60, 0), (0.01, -signal.SIGKILL)):
            result = start_processes("w", work, {0: (queue, after)}, {0: {}}).wait(20)
            assert result.return_values == ({} if expected else {0: "done"})
            assert [failure.exitcode for failure in result.failures.values()] == ([expected] if expected else [])
    finally:
        server.stop()


def test_timers_of_a_server(queue):
    server = timer.LocalTimerServer(queue)
    first, second, other = (timer.TimerRequest(*fields) for fields in ((1, "a", 5), (1, "b", 9), (2, "a", 5)))
    server.register_timers([first, second, other, timer.TimerRequest(3, "x", 1), timer.TimerRequest(3, "x", -1)])
    assert server.get_expired_timers(4.9) == {}
    assert server.get_expired_timers(5) == {1: [first], 2: [other]}
    server.clear_timers({1})
    assert server.get_expired_timers(FAR) == {2: [other]}
    server.stop()


class Stubborn(timer.LocalTimerServer):
    """Reaps at the second attempt; worker 9 raises."""

    def __init__(self, queue):
        super().__init__(queue, max_interval=0.01)
        self.asked = []
        self.enough = threading.Event()

    def _reap_worker(self, worker_id):
        self.asked.append(worker_id)
        if worker_id == 9:
            raise ValueError("no such worker")
        if self.asked.count(8) == 2:
            self.enough.set()
        return self.asked.count(8) == 2


def test_a_reap_that_fails_is_tried_again(queue, caplog):
    server = Stubborn(queue)
    server.register_timers([timer.TimerRequest(8, "s", 0), timer.TimerRequest(9, "s", 0)])
    server.start()
    assert server.enough.wait(20)
    server.stop()
    assert server.asked == [8, 9, 8]
    assert "Error reaping worker=[8]. Will retry on next watchdog." in caplog.text
    assert "_reap_worker raised; worker=[9] counts as reaped" in caplog.text


# --- over a named pipe ---


@pytest.fixture
def served(tmp_path):
    """A running server, the path of its pipe, and its events."""
    events = []
    path = str(tmp_path / "pipe")
    server = timer.FileTimerServer(path, "run", max_interval=0.01, log_event=lambda *event: events.append(event))
    server.start()
    yield server, path, events
    server.stop()
    assert not os.path.exists(path)


def work_by_file(path, kind, after):
    timer.configure(timer.FileTimerClient(path, signal=kind))
    with timer.expires(after=after, scope="block"):
        if after < 1:
            signal.pause()
    return "done"


def test_a_process_that_misses_its_timer_gets_the_signal(served):
    server, path, events = served
    assert stat.S_ISFIFO(os.stat(path).st_mode)
    assert start_processes("w", work_by_file, {0: (path, 9, 60)}, {0: {}}).wait(20).return_values == {0: "done"}
    context = start_processes("w", work_by_file, {0: (path, signal.SIGTERM, 0.01)}, {0: {}})
    assert context.wait(20).failures[0].exitcode == -signal.SIGTERM
    server.stop()
    server.stop()
    names = [name for name, _ in events]
    assert (names[0], names[-1]) == ("watchdog started", "watchdog stopped")
    request = dict(events)["kill worker process"]
    assert (request.worker_pid, request.scope_id, request.signal) == (context.pids()[0], "block", signal.SIGTERM)
    assert server.get_last_progress_time() <= time.time()


@pytest.mark.parametrize("jump", [-1e6, 1e6])
def test_a_wall_clock_that_jumps_kills_nobody_and_spares_nobody(jump, tmp_path, monkeypatch):
    clock = time.time
    expired = Queue()
    path = str(tmp_path / "pipe")
    server = timer.FileTimerServer(path, "run", max_interval=0.01, log_event=lambda *event: expired.put(event))
    client = timer.FileTimerClient(path, signal=0)
    client.acquire("long", time.time() + 1000)
    client.acquire("short", time.time() + 0.01)
    monkeypatch.setattr(time, "time", lambda: clock() + jump)
    server.register_timers(server._get_requests())
    assert [request.scope_id for request in server._timers._set.values()] == ["long", "short"]
    server.start()
    events = [expired.get(timeout=20) for _ in range(2)]
    assert [(name, request and request.scope_id) for name, request in events] == [
        ("watchdog started", None),
        ("timer expired", "short"),
    ]
    assert 0 <= time.time() - server.get_last_progress_time() < 60
    server.stop()
    assert expired.get(timeout=20) == ("watchdog stopped", None)


def test_without_a_signal_nobody_is_killed(tmp_path):
    expired = threading.Event()
    path = str(tmp_path / "pipe")
    server = timer.FileTimerServer(
        path, "run", 0.01, log_event=lambda name, _: name == "timer expired" and expired.set()
    )
    server.start()
    with timer.expires(after=-1, client=timer.FileTimerClient(path, signal=0)):  # of this process
        assert expired.wait(20)
    server.stop()


def test_garbled_requests_are_passed_over(served, caplog):
    server, path, _ = served
    with open(path, "w") as pipe:
        pipe.write('nonsense\n{"pid": 1}\n[1]\n' + timer.FileTimerRequest(os.getpid(), "kept", FAR).to_json() + "\n")
    until(lambda: server.get_expired_timers(FAR), "the request has not come")
    assert [request.scope_id for request in server.get_expired_timers(FAR)[os.getpid()]] == ["kept"]
    assert caplog.text.count("not a timer request") == 3


def test_timers_of_processes_that_are_gone_are_dropped(served):
    server, _, _ = served
    gone = SPAWN.Process(target=os.getpid)
    gone.start()
    gone.join()
    server.register_timers([timer.FileTimerRequest(gone.pid, "a", FAR), timer.FileTimerRequest(os.getpid(), "a", FAR)])
    server.clear_timers(set())
    assert list(server.get_expired_timers(FAR)) == [os.getpid()]
    assert not server.is_process_running(gone.pid)


def test_a_client_needs_a_server(tmp_path, monkeypatch):
    monkeypatch.setattr("weft.distributed.elastic.timer.file_based_local_timer._PATIENCE", 0.05)
    path = str(tmp_path / "pipe")
    client = timer.FileTimerClient(path)
    with pytest.raises(BrokenPipeError) as caught:  # no pipe
        client.acquire("a", 1)
    assert str(caught.value) == STUCK
    os.mkfifo(path)
    with pytest.raises(BrokenPipeError, match=STUCK):  # no reader
        client.release("a")
    server = timer.FileTimerServer(path, "run")  # which reads nothing, since it has not been started

    def fill():
        for _ in range(100_000):
            client.acquire("a" * 1000, 1)

    with pytest.raises(BrokenPipeError, match=STUCK):
        fill()
    with pytest.raises(DistError, match=rf"^FileTimerRequest larger than {select.PIPE_BUF} bytes is not supported"):
        client.acquire("a" * select.PIPE_BUF, 1)
    server.stop()
