"""How jobs of remote calls end when workers are killed, stopped, or leave without a word; see `ends.py`."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys

import pytest

from tests.distributed.rpc.ends import LONG, SECONDS
from tests.waiting import is_stopped, until
from weft.distributed.elastic.rendezvous.utils import free_port

SUM = LONG // 4  # of the long tensor


class Failed(Exception):
    """What an order has raised."""


class Nursery:
    """Forks workers, and waits for them."""

    def __init__(self):
        self._control, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._control.settimeout(SECONDS)
        with other:
            command = [sys.executable, "-m", "tests.distributed.rpc.ends", str(other.fileno())]
            quiet = {**os.environ, "WEFT_SLOW_COMPILE_SECONDS": str(SECONDS)}
            self._process = subprocess.Popen(command, pass_fds=[other.fileno()], env=quiet)

    def fork(self, *descriptors):
        socket.send_fds(self._control, [b"fork"], descriptors)
        return int(self._control.recv(100))

    def status(self, pid):
        """How a worker has ended, when it has."""
        self._control.send(b"%d" % pid)
        return int(self._control.recv(100))

    def close(self):
        self._control.close()
        try:
            assert self._process.wait(SECONDS) == 0
        finally:
            self._process.kill()
            self._process.wait()


class Worker:
    """A process that obeys orders."""

    def __init__(self, nursery, errors):
        self._nursery = nursery
        self._errors = errors
        self._socket, other = socket.socketpair()
        self._socket.settimeout(SECONDS)
        with other, open(errors, "w") as file:
            self.pid = nursery.fork(other.fileno(), file.fileno())
        self._answers = self._socket.makefile("r")
        self._status = None

    def tell(self, *order):
        """Give an order, and do not wait."""
        self._socket.sendall(json.dumps(order).encode() + b"\n")

    def heard(self):
        """What came of the next order that nothing was heard of."""
        line = self._answers.readline()
        assert line, self._errors.read_text()
        said = json.loads(line)
        if "error" in said:
            raise Failed(said["error"])
        return said["value"]

    def ask(self, *order):
        self.tell(*order)
        return self.heard()

    def signal(self, number):
        os.kill(self.pid, number)

    def stop(self):
        """Stop it; its threads go on for a moment."""
        self.signal(signal.SIGSTOP)
        self.await_stop()

    def await_stop(self):
        until(lambda: is_stopped(self.pid), f"process {self.pid} does not stop")

    def kill(self):
        self.signal(signal.SIGKILL)
        assert self.status() == -signal.SIGKILL

    def finish(self):
        """Give no more orders."""
        self._socket.shutdown(socket.SHUT_WR)

    def end(self):
        """See it end by itself."""
        self.finish()
        assert (self.status(), self._errors.read_text()) == (0, "")

    def status(self):
        if self._status is None:
            self._status = self._nursery.status(self.pid)
        return self._status

    def close(self):
        self._answers.close()
        self._socket.close()
        if self._status is None:
            self.signal(signal.SIGKILL)
            self.status()


@pytest.fixture(scope="module")
def nursery():
    made = Nursery()
    yield made
    made.close()


@pytest.fixture
def workers(nursery, tmp_path):
    """Starts the workers of a job; `makers` of them have a long tensor to send."""
    made = []

    def begin(size, address=f"file://{tmp_path}/store", makers=(), transports=None):
        made.extend(Worker(nursery, tmp_path / f"errors.{rank}") for rank in range(size))
        for rank in makers:
            made[rank].ask("make")
        for rank, worker in enumerate(made):
            worker.tell("join", rank, size, address, transports)
        for worker in made:
            worker.heard()
        return made

    yield begin
    for worker in made:
        worker.close()


def late(rank, why, seconds=6):
    return (
        f"shutdown: WorkerInfo(id={rank}, name=w{rank}) waited {seconds} s for the other workers to come to "
        f"shutdown(), or for work to end: {why}; allow more time, or leave with graceful=False"
    )


def shut_down(workers, timeout):
    """What `shutdown` raises in each. It comes in time."""
    for one in workers:
        one.tell("shutdown", timeout)
    texts = []
    for one in workers:
        seconds, said = one.heard()
        assert seconds < SECONDS / 2
        texts.append(said)
    return texts


def left_by(workers, timeout=SECONDS):
    """The same; the workers hold nothing any more, and end."""
    texts = shut_down(workers, timeout)
    for one in workers:
        one.tell("left", "threads", "descriptors", "memory")
    for one in workers:
        assert one.heard() == {}
        one.finish()
    for one in workers:
        one.end()
    return texts


def missing(*names):
    return f"shutdown: worker {', '.join(names)} ended without completing shutdown(); the others are done"


def test_who_keeps_the_store_is_killed(workers):
    w0, w1, w2, w3 = workers(4, f"tcp://127.0.0.1:{free_port()}")
    for caller, to in ((w1, "w2"), (w2, "w1"), (w1, "w0"), (w0, "w1")):
        caller.ask("begin", to, "stay", to)
    for to in ("w1", "w1", "w2", "w0"):
        w2.ask("call", to, "until_entered")
    w0.kill()
    lost = r"cannot look for worker w0: |worker w0 was lost|name=w0\): its process has ended"
    with pytest.raises(Failed, match=lost):  # as far as the loss has been noticed
        w2.ask("call", "w0", "same", 1)
    with pytest.raises(Failed, match=r"cannot reach WorkerInfo\(id=0, name=w0\): its process has ended"):
        w3.ask("call", "w0", "same", 1)  # had not
    for to in ("w1", "w2"):
        w3.ask("call", to, "open_gate")  # these two have not called each other before
    assert w2.ask("await_answer") == "w1"
    assert w1.ask("await_answer") == "w2"
    with pytest.raises(Failed, match=r"^worker w0 was lost while w1 waited for it: it has closed the connection$"):
        w1.ask("await_answer")
    assert left_by([w1, w2, w3]) == [missing("w0")] * 3


def test_two_of_four_are_killed_at_once(workers):
    w0, w1, w2, w3 = workers(4)
    for caller, to in ((w0, "w3"), (w3, "w0"), (w0, "w1"), (w3, "w2"), (w1, "w2"), (w2, "w3")):
        caller.ask("begin", to, "stay", to)
    for to in ("w3", "w0", "w1", "w2", "w2", "w3"):
        w0.ask("call", to, "until_entered")
    for one in (w1, w2):
        one.signal(signal.SIGKILL)
    for one in (w1, w2):
        one.kill()
    for caller, to in ((w0, "w3"), (w3, "w0")):
        caller.ask("call", to, "open_gate")
        assert caller.ask("await_answer") == to
    for one, name, lost in ((w0, "w0", "w1"), (w3, "w3", "w2")):
        with pytest.raises(Failed, match=f"^worker {lost} was lost while {name} waited for it: it has closed the conn"):
            one.ask("await_answer")
        for number in (1, 2):
            with pytest.raises(Failed, match=rf"name=w{number}\): its process has ended|^worker w{number} was lost"):
                one.ask("call", f"w{number}", "same", 1)
    assert left_by([w0, w3]) == [missing("w1", "w2")] * 2


@pytest.mark.parametrize("absent", [pytest.param(0, marks=pytest.mark.soak), 2])
def test_one_never_calls_shutdown(workers, absent):
    """Not even the first one, which the others report to."""
    made = workers(3)
    others = [one for one in made if one is not made[absent]]
    assert others[0].ask("call", "w1", "same", 1) == 1
    found = left_by(others, 6)
    for text, rank in zip(found, sorted({0, 1, 2} - {absent}), strict=True):
        assert text == late(rank, f"w{absent} has not come")
    assert left_by([made[absent]]) == [missing(*(f"w{rank}" for rank in (0, 1, 2) if rank != absent))]


@pytest.mark.parametrize("stopped", [pytest.param(0, marks=pytest.mark.soak), 2])
def test_one_is_stopped_and_goes_on_when_the_others_have_left(workers, stopped):
    made = workers(3)
    others = [one for one in made if one is not made[stopped]]
    for one in others:
        one.ask("call", f"w{stopped}", "same", 1)
    made[stopped].stop()
    found = left_by(others, 6)
    made[stopped].signal(signal.SIGCONT)
    why = "there is no answer from w0" if stopped == 0 else "w2 has not come"
    ranks = sorted({0, 1, 2} - {stopped})
    assert found == [late(rank, why) for rank in ranks]
    assert left_by([made[stopped]]) == [missing(*(f"w{rank}" for rank in ranks))]


@pytest.mark.soak
def test_work_does_not_end(workers):
    made = workers(3)
    made[1].ask("begin", "w2", "stay", 1)
    made[0].ask("call", "w2", "until_entered")
    made[2].tell("shutdown", 12)
    first, caller = shut_down(made[:2], 6)
    assert first == late(0, "all have come or ended, and work goes on")
    assert caller == late(1, "there is no answer from w2")
    assert made[2].heard()[1] == late(2, "all have come or ended, and work goes on", 12)  # and it is alone by then


def test_one_ends_without_a_word_while_another_waits_for_it(workers):
    w0, w1, w2 = workers(3)
    for caller, to in ((w0, "w1"), (w1, "w2"), (w2, "w0")):
        caller.ask("begin", to, "stay", to)
    for to in ("w0", "w1", "w2"):
        w0.ask("call", to, "until_entered")
    w1.end()
    with pytest.raises(Failed, match=r"^worker w1 was lost while w0 waited for it: it has closed the connection$"):
        w0.ask("await_answer")
    for to in ("w0", "w2"):
        w0.ask("call", to, "open_gate")
    assert w2.ask("await_answer") == "w0"
    assert left_by([w0, w2]) == [missing("w1")] * 2


def goes_on(w0, w2, lost):
    """A worker is well that has lost another one: it has given all memory back, calls and is called, and ends."""
    assert w0.ask("left", "memory") == {}
    assert w0.ask("call", "w2", "same", 1) == w2.ask("call", "w0", "same", 1) == 1
    assert left_by([w0, w2]) == [missing(lost)] * 2


LOST = r"^worker w1 was lost while w0 waited for it: it has (closed the connection|ended, and its loan with it)$"


def test_a_caller_is_killed_while_it_copies_a_long_tensor(workers):
    w0, w1, w2 = workers(3, makers=[1])
    w1.ask("stop_in_copies")
    w1.tell("send", "w0", "same")
    w1.await_stop()
    w1.kill()
    goes_on(w0, w2, "w1")


def test_a_callee_is_killed_while_it_copies_a_long_tensor(workers):
    w0, w1, w2 = workers(3)
    w1.ask("stop_in_copies")
    w0.ask("begin", "w1", "long_tensor")
    w1.await_stop()
    w1.kill()
    with pytest.raises(Failed, match=LOST):
        w0.ask("await_answer")
    goes_on(w0, w2, "w1")


@pytest.mark.parametrize("transports", [None, ["uv"]], ids=["shared memory", "tcp"])
def test_a_sender_is_killed_while_a_long_tensor_is_on_its_way(workers, transports):
    """The receiver is stopped until then. By TCP most of it has not been sent."""
    w0, w1, w2 = workers(3, makers=[1], transports=transports)
    w1.ask("call", "w0", "same", 1)
    w0.stop()
    w1.ask("send", "w0", "total")
    w1.kill()
    w0.signal(signal.SIGCONT)
    goes_on(w0, w2, "w1")


@pytest.mark.parametrize(
    "transports", [None, pytest.param(["uv"], marks=pytest.mark.soak)], ids=["shared memory", "tcp"]
)
def test_a_receiver_is_killed_while_a_long_tensor_is_on_its_way(workers, transports):
    w0, w1, w2 = workers(3, makers=[0], transports=transports)
    w0.ask("call", "w1", "same", 1)
    w1.stop()
    w0.ask("send", "w1", "total")
    assert w0.ask("call", "w2", "same", 1) == 1
    w1.kill()
    with pytest.raises(Failed, match=LOST):
        w0.ask("await_answer")
    assert w0.ask("tensor_is_freed")
    goes_on(w0, w2, "w1")


def test_a_sender_is_killed_while_its_long_tensor_is_used(workers):
    """What is lent stays as it is."""
    w0, w1, w2 = workers(3, makers=[1])
    w1.ask("send", "w0", "total")
    w0.ask("call", "w0", "until_entered")
    w1.kill()
    w2.ask("call", "w0", "open_gate")
    assert w2.ask("call", "w0", "next_total") == SUM
    goes_on(w0, w2, "w1")


def test_a_receiver_is_killed_while_it_uses_a_long_tensor(workers):
    w0, w1, w2 = workers(3, makers=[0])
    w0.ask("send", "w1", "total")
    w2.ask("call", "w1", "until_entered")
    w1.kill()
    with pytest.raises(Failed, match=LOST):
        w0.ask("await_answer")
    assert w0.ask("tensor_is_freed")
    goes_on(w0, w2, "w1")
