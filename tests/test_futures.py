"""`weft.futures`."""

from __future__ import annotations

import gc
import logging
import threading
import traceback
import weakref
from concurrent.futures import ThreadPoolExecutor

import pytest

import weft
from weft.futures import Future, collect_all, wait_all


def test_a_result_reaches_all_who_wait():
    future: Future[int] = Future()
    found: list[int] = []
    threads = [threading.Thread(target=lambda: found.append(future.wait())) for _ in range(3)]
    for thread in threads:
        thread.start()
    future.set_result(7)
    for thread in threads:
        thread.join()
    assert found == [7, 7, 7]
    assert (future.done(), future.value(), future.wait()) == (True, 7, 7)


def test_an_error_is_raised_where_it_is_waited_for():
    future: Future[int] = Future()
    future.set_exception(KeyError("x"))
    with pytest.raises(KeyError, match="x"):
        future.wait()


def test_then_gives_what_the_callback_gives_or_raises():
    future: Future[int] = Future()
    doubled = future.then(lambda f: 2 * f.value())
    failed = doubled.then(lambda f: 1 // (f.value() - 6))
    late = failed.then(lambda f: f.value())
    assert not doubled.done()
    future.set_result(3)
    assert doubled.wait() == 6
    for one in (failed, late):
        with pytest.raises(RuntimeError, match="ZeroDivisionError: integer division or modulo by zero") as caught:
            one.wait()
        assert isinstance(caught.value.__cause__, ZeroDivisionError)
    assert future.then(lambda f: f.value() + 1).wait() == 4


def test_a_future_is_set_once_and_read_when_it_is_done():
    future: Future[int] = Future()
    with pytest.raises(RuntimeError, match=r"^value\(\) was called on a future that is not done"):
        future.value()
    future.set_result(1)
    with pytest.raises(RuntimeError, match=r"^Future can only be marked completed once"):
        future.set_result(2)
    with pytest.raises(AssertionError, match=r"^x is of type str, not an Exception\.$"):
        Future().set_exception("x")  # pyright: ignore[reportArgumentType]  on purpose


def test_a_callback_that_fails_is_logged_and_stops_nobody(caplog):
    future: Future[int] = Future()
    found = []
    future.add_done_callback(lambda f: 1 // 0)
    future.add_done_callback(lambda f: found.append(f.value()))
    with caplog.at_level(logging.ERROR):
        future.set_result(5)
    assert found == [5]
    assert "of a future failed" in caplog.text


def test_several_futures_are_collected_in_order():
    futures = [Future() for _ in range(3)]
    both = collect_all(futures)
    for at in (2, 0, 1):
        assert not both.done()
        futures[at].set_result(at)
    assert both.wait() == futures
    assert wait_all(futures) == [0, 1, 2]
    assert collect_all([]).wait() == []
    failed: Future[int] = Future()
    failed.set_exception(ValueError("late"))
    for wait in (wait_all, lambda all_of_them: collect_all(all_of_them).wait()):
        with pytest.raises(ValueError, match="late"):
            wait([futures[0], failed])
        with pytest.raises(TypeError, match=r"^expected futures, but one is 1, of type int$"):
            wait([futures[0], 1])


@pytest.mark.parametrize("add", [Future.then, Future.add_done_callback])
def test_a_callback_must_be_callable(add):
    with pytest.raises(
        TypeError, match=r"^incompatible function arguments\. A callback must be callable, but got 3, of type int$"
    ):
        add(Future(), 3)


def test_it_is_public_under_the_package():
    assert weft.futures.Future is Future


@pytest.mark.parametrize("begin", [wait_all, lambda futures: collect_all(futures).wait()])
def test_the_first_failure_is_raised_though_others_never_end(begin):
    never, fails = Future(), Future()
    fails.set_exception(KeyError("k"))
    with pytest.raises(KeyError):
        begin([never, fails])
    late = Future()
    with ThreadPoolExecutor(1) as threads:
        waiting = threads.submit(begin, [never, late])
        late.set_exception(KeyError("late"))
        with pytest.raises(KeyError, match="late"):
            waiting.result(timeout=10)


class Held:
    """Something that a weak reference may refer to."""


def test_an_error_that_was_raised_does_not_keep_the_frames_that_it_has_passed():
    future = Future()
    future.set_exception(ValueError("no"))
    following = future.then(lambda done: done.value())

    def fails(waits):
        held = Held()
        refs.append(weakref.ref(held))
        waits()

    refs = []
    gc.disable()
    try:
        for waits in (future.wait, future.value, following.wait, collect_all([future]).wait):
            for _ in range(2):
                with pytest.raises((ValueError, RuntimeError), match=r"no$"):
                    fails(waits)
        for ref in refs:
            assert ref() is None
    finally:
        gc.enable()


@pytest.mark.parametrize("handles", [False, True], ids=["plain", "while handling another error"])
def test_an_error_that_is_passed_on_does_not_keep_the_frames_of_who_completes_the_future(handles):
    def complete():
        held = Held()
        if not handles:
            future.set_exception(ValueError("no"))
            return weakref.ref(held)
        try:
            raise OSError
        except OSError:
            future.set_exception(ValueError("no"))
        return weakref.ref(held)

    future = Future()
    following = future.then(lambda done: done.value()).then(lambda done: done.wait())
    collected = collect_all([future])
    gc.disable()
    try:
        assert complete()() is None
    finally:
        gc.enable()
    with pytest.raises(RuntimeError, match=r"when running the callback: ValueError: no$"):
        following.wait()
    with pytest.raises(ValueError, match=r"^no$"):
        collected.wait()


def test_an_error_of_a_callback_tells_its_line():
    def callback(done):
        raise ValueError(done.value())

    future = Future()
    following = future.then(callback)
    future.set_result("no")
    with pytest.raises(RuntimeError, match="ValueError: no") as caught:
        following.wait()
    assert "callback" in [frame.name for frame in traceback.extract_tb(caught.value.__cause__.__traceback__)]


class Coded(RuntimeError):
    """An exception whose text is not its argument."""

    def __init__(self, code):
        super().__init__(f"code {code}")
        self.code = code


@pytest.mark.parametrize("error", [Coded(5), OSError(2, "not there", "file"), KeyError("x"), StopIteration(3)])
def test_a_raised_error_is_equal_to_the_one_that_was_set(error):
    error.add_note("a note")
    error.__cause__ = ValueError("why")
    future = Future()
    future.set_exception(error)
    for _ in range(2):
        with pytest.raises(type(error)) as caught:
            future.wait()
        raised = caught.value
        assert (str(raised), raised.args, vars(raised)) == (str(error), error.args, vars(error))
        assert raised.__cause__ is error.__cause__
        assert getattr(raised, "filename", None) == getattr(error, "filename", None)
