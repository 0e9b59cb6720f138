"""Threads that read pipes, and run what comes."""

from __future__ import annotations

import socket
import threading
from contextlib import contextmanager
from functools import partial
from queue import SimpleQueue

import pytest

from tests.waiting import until
from weft._comm.transport.authentication import trusted_session_pair
from weft._comm.transport.pipe import CallPipe
from weft._comm.transport.reactor import Reactor
from weft.futures import Future

SECONDS = 60
CALL, ANSWER = 1, 2


class Server:
    """Runs, for a call's number, the function of that number, and answers when it is done."""

    def __init__(self, reactor, functions):
        self.reactor, self.functions = reactor, functions
        self.ran_in = []

    def received(self, pipe, kind, number, body, buffers):
        if kind == CALL:
            self.reactor.run(partial(self.answer, pipe, number))
        else:
            pipe.calls.pop(number).set_result(None)

    def answer(self, pipe, number):
        self.ran_in.append(threading.current_thread())
        self.functions.get(number, lambda: None)()
        pipe.put(ANSWER, number, b"")
        self.reactor.flush(pipe)

    def lost(self, pipe):
        self.reactor.remove(pipe)


@contextmanager
def served(workers, functions):
    """A reactor that serves a pipe and reads the answers to the other end's calls; the server; and the other end."""
    (one, other), (here, there) = socket.socketpair(), trusted_session_pair()
    reactor = Reactor("test", workers)
    server = Server(reactor, functions)
    near, far = CallPipe(one, server, "far", here), CallPipe(other, server, "near", there)
    reactor.add(near, serve=False)
    reactor.add(far, serve=True)
    try:
        yield reactor, server, near
    finally:
        for pipe in (near, far):
            pipe.close("the test is over")
            pipe.free()
        reactor.close(SECONDS)
        assert not [thread for thread in threading.enumerate() if thread.name.startswith("test")]


def begin(reactor, pipe, number):
    """Call; a future of the answer."""
    done = pipe.calls[number] = Future()
    pipe.put(CALL, number, b"")
    reactor.poll(pipe)
    return done


def read(reactor, pipe, done):
    reactor.read_until(pipe, done.done, done.ring, None)


def answered(done):
    """Whether the reactor has read the answer, in good time."""
    waiter = SimpleQueue()
    done.ring(waiter)
    waiter.get(timeout=SECONDS)
    return done.done()


def test_short_functions_all_run_in_the_thread_that_reads(monkeypatch):
    """As long as nobody takes it for busy, which a machine under load may be the reason for."""
    monkeypatch.setattr(Reactor, "_promote", lambda self, leader: None)
    with served(4, {}) as (reactor, server, pipe):
        for number in range(200):
            read(reactor, pipe, begin(reactor, pipe, number))
        assert len(set(server.ran_in)) == 1


def test_a_long_function_holds_nobody_up():
    end = threading.Event()
    with served(2, {1: lambda: end.wait(SECONDS)}) as (reactor, _, pipe):
        long = begin(reactor, pipe, 1)
        for number in range(2, 50):
            assert answered(begin(reactor, pipe, number))
        assert not long.done()
        end.set()
        assert answered(long)


def test_no_more_run_at_a_time_than_may_and_what_comes_is_read_meanwhile():
    end, began = threading.Event(), threading.Semaphore(0)

    def stay():
        began.release()
        end.wait(SECONDS)

    with served(3, dict.fromkeys(range(11), stay)) as (reactor, server, pipe):
        calls = [begin(reactor, pipe, number) for number in range(10)]
        for _ in range(3):
            assert began.acquire(timeout=SECONDS)
        calls.append(begin(reactor, pipe, 10))
        until(lambda: reactor.running == 11, "the last call is not read")  # while three run and the others wait
        assert not began.acquire(timeout=0)
        assert len(server.ran_in) == 3
        end.set()
        assert all(map(answered, calls))


def test_a_function_that_waits_for_an_answer_lets_another_thread_read_at_once():
    depth = 20
    with served(depth + 1, {}) as (reactor, server, pipe):

        def ask(number):
            read(reactor, pipe, begin(reactor, pipe, number))

        server.functions.update({number: partial(ask, number + 1) for number in range(depth)})
        assert answered(begin(reactor, pipe, 0))
        assert len(server.ran_in) == depth + 1
        assert len(set(server.ran_in)) == depth + 1


def test_what_another_thread_leaves_is_run():
    with served(2, {}) as (reactor, _, _):
        for _ in range(100):
            done = threading.Event()
            reactor.run(done.set)
            assert done.wait(SECONDS)


def test_what_a_function_raises_is_told_and_its_thread_goes_on(caplog):
    def fail():
        raise SystemExit("the function is wrong")

    with served(1, {1: fail}) as (reactor, _, pipe):
        failed = begin(reactor, pipe, 1)
        assert answered(begin(reactor, pipe, 2))
        assert not failed.done()
        assert "the function is wrong" in caplog.text


@pytest.mark.parametrize("count", [1, 3])
def test_functions_that_still_run_are_left_alone_at_the_end(count):
    end, began = threading.Event(), threading.Semaphore(0)

    def stay():
        began.release()
        end.wait(SECONDS)

    reactor = Reactor("left alone", 4)
    for _ in range(count):
        reactor.run(stay)
    for _ in range(count):
        assert began.acquire(timeout=SECONDS)
    reactor.close(0)
    end.set()
    for thread in threading.enumerate():
        if thread.name.startswith("left alone"):
            thread.join(SECONDS)
            assert not thread.is_alive()


def test_a_leader_and_a_former_leader_both_end():
    """What wakes them at the end must not be taken by one alone."""
    for _ in range(20):
        reactor = Reactor("test", 2)
        reactor._promote(reactor._leadership)  # as the housekeeping thread does when it takes the first for busy
        threads = list(reactor._threads)
        reactor.close(1.0)
        assert not any(thread.is_alive() for thread in threads)
