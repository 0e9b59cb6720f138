"""Threads that read pipes, and run what comes."""

from __future__ import annotations

import socket
import threading
from contextlib import contextmanager
from functools import partial
from queue import SimpleQueue

import pytest

from weft._comm.hub import Hub
from weft._comm.pipe import Pipe
from weft._comm.proof import session_pair
from weft.futures import Future

SECONDS = 60
CALL, ANSWER = 1, 2


class Server:
    """Runs, for a call's number, the function of that number, and answers when it is done."""

    def __init__(self, hub, functions):
        self.hub, self.functions = hub, functions
        self.ran_in = []

    def received(self, pipe, kind, number, body, buffers):
        if kind == CALL:
            self.hub.run(partial(self.answer, pipe, number))
        else:
            pipe.calls.pop(number).set_result(None)

    def answer(self, pipe, number):
        self.ran_in.append(threading.current_thread())
        self.functions.get(number, lambda: None)()
        pipe.put(ANSWER, number, b"")
        self.hub.flush(pipe)

    def lost(self, pipe):
        self.hub.remove(pipe)


@contextmanager
def served(workers, functions):
    """A hub that serves a pipe and reads the answers of the other end's calls; that, the server, and the other end."""
    (one, other), (here, there) = socket.socketpair(), session_pair()
    hub = Hub("test", workers)
    server = Server(hub, functions)
    near, far = Pipe(one, server, "far", here), Pipe(other, server, "near", there)
    hub.add(near, serve=False)
    hub.add(far, serve=True)
    try:
        yield hub, server, near
    finally:
        for pipe in (near, far):
            pipe.close("the test is over")
            pipe.free()
        hub.close(SECONDS)
        assert not [thread for thread in threading.enumerate() if thread.name.startswith("test")]


def begin(hub, pipe, number):
    """Call; a future of the answer."""
    done = pipe.calls[number] = Future()
    pipe.put(CALL, number, b"")
    hub.poll(pipe)
    return done


def read(hub, pipe, done):
    hub.read_until(pipe, done.done, done._ring, None)


def answered(done):
    """Whether the hub has read the answer, in good time."""
    waiter = SimpleQueue()
    done._ring(waiter)
    waiter.get(timeout=SECONDS)
    return done.done()


def test_short_functions_all_run_in_the_thread_that_reads():
    with served(4, {}) as (hub, server, pipe):
        for number in range(200):
            read(hub, pipe, begin(hub, pipe, number))
        most = max(set(server.ran_in), key=server.ran_in.count)
        assert server.ran_in.count(most) > 100  # others had a turn where this one was held up


def test_a_long_function_holds_nobody_up():
    end = threading.Event()
    with served(2, {1: lambda: end.wait(SECONDS)}) as (hub, _, pipe):
        long = begin(hub, pipe, 1)
        for number in range(2, 50):
            assert answered(begin(hub, pipe, number))
        assert not long.done()
        end.set()
        assert answered(long)


def test_no_more_run_at_a_time_than_may_and_what_comes_is_read_meanwhile():
    end, began = threading.Event(), threading.Semaphore(0)

    def stay():
        began.release()
        end.wait(SECONDS)

    with served(3, dict.fromkeys(range(11), stay)) as (hub, server, pipe):
        calls = [begin(hub, pipe, number) for number in range(10)]
        for _ in range(3):
            assert began.acquire(timeout=SECONDS)
        calls.append(begin(hub, pipe, 10))
        while hub.running < 11:  # it has been read, while three run and the others wait
            pass
        assert not began.acquire(timeout=0)
        assert len(server.ran_in) == 3
        end.set()
        assert all(map(answered, calls))


def test_a_function_that_waits_for_an_answer_lets_another_thread_read_at_once():
    depth = 20
    with served(depth + 1, {}) as (hub, server, pipe):

        def ask(number):
            read(hub, pipe, begin(hub, pipe, number))

        server.functions.update({number: partial(ask, number + 1) for number in range(depth)})
        assert answered(begin(hub, pipe, 0))
        assert len(server.ran_in) == depth + 1
        assert len(set(server.ran_in)) == depth + 1


def test_what_another_thread_leaves_is_run():
    with served(2, {}) as (hub, _, _):
        for _ in range(100):
            done = threading.Event()
            hub.run(done.set)
            assert done.wait(SECONDS)


def test_what_a_function_raises_is_told_and_its_thread_goes_on(caplog):
    def fail():
        raise SystemExit("the function is wrong")

    with served(1, {1: fail}) as (hub, _, pipe):
        failed = begin(hub, pipe, 1)
        assert answered(begin(hub, pipe, 2))
        assert not failed.done()
        assert "the function is wrong" in caplog.text


@pytest.mark.parametrize("count", [1, 3])
def test_functions_that_still_run_are_left_alone_at_the_end(count):
    end, began = threading.Event(), threading.Semaphore(0)

    def stay():
        began.release()
        end.wait(SECONDS)

    hub = Hub("left alone", 4)
    for _ in range(count):
        hub.run(stay)
    for _ in range(count):
        assert began.acquire(timeout=SECONDS)
    hub.close(0)
    end.set()
    for thread in threading.enumerate():
        if thread.name.startswith("left alone"):
            thread.join(SECONDS)
            assert not thread.is_alive()


def test_two_threads_that_look_for_a_moment_both_end():
    """The one that leads, and one that led before: what wakes them at the end must not be taken by one alone."""
    for _ in range(20):
        hub = Hub("test", 2)
        hub._promote(hub._lead)  # as its housekeeping does, which took the first for busy
        threads = list(hub._threads)
        hub.close(1.0)
        assert not any(thread.is_alive() for thread in threads)
