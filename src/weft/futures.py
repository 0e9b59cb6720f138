"""Futures: results that arrive later, with callbacks and chaining."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, nullcontext
from queue import SimpleQueue
from typing import Any, Generic, NoReturn, Protocol, TypeGuard, TypeVar

from weft._base.activity import CALLS, process, waiting
from weft.errors import ArgumentError, FutureError, PreconditionError

T = TypeVar("T")
S = TypeVar("S")

_log = logging.getLogger(__name__)


class Waiter(Protocol):
    """Gets an item when a future is done; for instance the queue of a waiting thread."""

    def put(self, _: None, /) -> None: ...


_changing = threading.Lock()  # for all futures: it is held briefly, and a lock for each would take longer to create


class Future(Generic[T]):
    """A result that is set once; any number of threads may wait for it.

    `devices` is accepted for compatibility: values on a device are ready when they are read.
    """

    _is_remote: bool = False  # whether it waits for a remote call

    def __init__(self, *, devices: object = None) -> None:
        del devices
        self._done = False
        self._value: T | None = None
        self._error: BaseException | None = None
        self._callbacks: list[Callable[[Future[T]], Any]] | None = None  # most futures have none
        self._waiters: list[Waiter] | None = None

    def done(self) -> bool:
        """Whether it has a value or an error."""
        return self._done

    def wait(self) -> T:
        """The value; waits for it. Raises the error if there is one."""
        if not self._done:
            if process.activity is None:
                self._await()
            else:
                with waiting_for(self._is_remote):
                    self._await()
        return self.value()

    def _await(self) -> None:
        """Return when it is done. Subclasses may let the waiting thread work on the result."""
        done: SimpleQueue[None] = SimpleQueue()
        self.ring(done)
        done.get()

    def _leave_to_others(self) -> None:
        """Called when a thread is about to wait for several futures, and so does not work on this one's result."""

    def ring(self, waiter: Waiter) -> None:
        """Put an item into `waiter` when this is done."""
        with _changing:
            if not self._done:
                self._waiters = [*(self._waiters or ()), waiter]
                return
        waiter.put(None)

    @property
    def failed(self) -> bool:
        """Whether there is an error."""
        return self._error is not None

    @property
    def has_callbacks(self) -> bool:
        """Whether there are callbacks that have not run."""
        return bool(self._callbacks)

    def value(self) -> T:
        """The value of a future that is done; raises its error. `RuntimeError` if it is not done."""
        if not self._done:
            raise FutureError("value() was called on a future that is not done; call wait(), or done() first")
        if self._error is not None:
            raise _copy(self._error)
        return self._value  # pyright: ignore[reportReturnType]  set with `_done`

    def __reduce__(self) -> NoReturn:
        raise FutureError(
            "Can not pickle torch.futures.Future: only its value can be sent. To answer a remote call with it, put the "
            "function that returns the future under rpc.functions.async_execution"
        )

    def set_result(self, result: T) -> None:
        """Set the value, and run the callbacks. `RuntimeError` if the future is already done."""
        self._finish(result, None)

    def set_exception(self, result: BaseException) -> None:
        """Set an error, which is raised by waiting for the future."""
        if not isinstance(result, BaseException):
            raise PreconditionError(f"{result} is of type {type(result).__name__}, not an Exception.")
        self._finish(None, result)

    def then(self, callback: Callable[[Future[T]], S]) -> Future[S]:
        """A future of the result of `callback(self)`, which is called when this one is done.

        If the callback raises anything else than a `RuntimeError`, the future raises one with its text and cause.
        """
        _require_callable(callback)
        following: Future[S] = Future()
        following._is_remote = self._is_remote
        self.add_done_callback(lambda done: following.settle(lambda: callback(done), _of_callback))
        return following

    def add_done_callback(self, callback: Callable[[Future[T]], object]) -> None:
        """Call `callback(self)` when this is done: in the thread that sets the result, or at once if it is done."""
        _require_callable(callback)
        with _changing:
            if not self._done:
                if self._callbacks is None:
                    self._callbacks = []
                self._callbacks.append(callback)
                return
        self._call(callback)

    def _finish(self, value: T | None, error: BaseException | None) -> None:
        with _changing:
            if self._done:
                raise FutureError("Future can only be marked completed once: it has a value or an error already")
            self._value, self._error, self._done = value, error, True
        for waiter in self._waiters or ():
            waiter.put(None)
        if self._callbacks is not None:
            callbacks, self._callbacks = self._callbacks, None
            for callback in callbacks:
                self._call(callback)

    def settle(
        self, function: Callable[[], T], failure_of: Callable[[BaseException], BaseException] = lambda error: error
    ) -> None:
        """Complete the future with the result of `function`, or with what its exception is by `failure_of`."""
        try:
            result = function()
        except BaseException as error:
            failure = error
        else:
            self.set_result(result)
            return
        try:  # not above, where what callbacks raise would get the failure as its context
            self.set_exception(failure_of(_alone(failure)))
        finally:
            del self, failure  # the error's traceback keeps this frame, and the future keeps the error

    def _call(self, callback: Callable[[Future[T]], object]) -> None:
        """Run a callback. Its exceptions are logged, since they do not concern those who wait."""
        try:
            callback(self)
        except Exception:
            _log.exception("the callback %r of a future failed", callback)


def _of_callback(error: BaseException) -> BaseException:
    """What a callback's exception is to those who wait for its result: it is a `RuntimeError`."""
    if isinstance(error, RuntimeError) or not isinstance(error, Exception):
        return error
    failure = FutureError(f"Got the following error when running the callback: {type(error).__name__}: {error}")
    failure.__cause__ = error
    return failure


def _alone(error: BaseException) -> BaseException:
    """An error that was raised; if it is only passed on from a future, then without its way.

    The frames of a traceback keep those that have called them, whatever these do, and all that they refer to: here the
    frames of the thread that completes the future. What a function itself has raised tells where by its traceback.
    """
    innermost = error.__traceback__
    while innermost is not None and innermost.tb_next is not None:
        innermost = innermost.tb_next
    if innermost is not None and innermost.tb_frame.f_code is Future.value.__code__:
        error.__traceback__ = error.__context__ = None
    return error


def _copy(error: BaseException) -> BaseException:
    """A copy of an error, to be raised, or the error itself if it has fields that cannot be copied.

    An exception keeps the frames that it has passed, with all that they refer to. If these refer to the future, and the
    future to that exception, all of it would be freed by a garbage collection only; references to other workers' values
    among it.
    """
    kind = type(error)
    builtin = next(base for base in kind.__mro__ if base.__module__ == "builtins")
    if builtin.__basicsize__ != BaseException.__basicsize__:
        return error
    copy = kind.__new__(kind, *error.args)
    copy.__dict__.update(error.__dict__)
    copy.__cause__, copy.__context__ = error.__cause__, error.__context__
    copy.__suppress_context__ = error.__suppress_context__
    return copy.with_traceback(error.__traceback__)


def is_future(x: object) -> TypeGuard[Future[Any]]:
    """Whether this is a future, of whatever."""
    return isinstance(x, Future)


def collect_all(futures: Iterable[Future[T]]) -> Future[list[Future[T]]]:
    """A future of the list of `futures`: done when all of them are, or as soon as one fails, with its error."""
    members = _members(futures)
    collected: Future[list[Future[Any]]] = Future()
    if not members:
        collected.set_result(members)
        return collected
    collected._is_remote = any(member._is_remote for member in members)
    left = len(members)
    lock = threading.Lock()

    def count(future: Future[T]) -> None:
        nonlocal left
        # Members are completed by different threads, and only one of them may settle the result.
        with lock:
            before, left = left, 0 if future.failed else left - 1
        if before > 0 and left <= 0:
            collected.settle(lambda: _checked(future, members))

    for future in members:
        future.add_done_callback(count)
    return collected


def wait_all(futures: Iterable[Future[T]]) -> list[T]:
    """The values of all futures in order, once all are done; raises the first error as soon as there is one."""
    members = _members(futures)
    if len(members) == 1:
        return [members[0].wait()]
    finished: SimpleQueue[Future[Any]] = SimpleQueue()
    for future in members:
        # So that somebody reads the answers of all: this thread waits for whichever comes first.
        if not future.done():
            future._leave_to_others()
        future.ring(_QueueWaiter(future, finished))
    with waiting_for(any(member._is_remote for member in members)):
        for _ in members:
            finished.get().value()
    return [future.value() for future in members]


def waiting_for(remote: bool) -> AbstractContextManager[None]:
    """A block in which a thread waits for futures; for remote calls, if `remote` is true."""
    return waiting(CALLS, "a remote call") if remote else nullcontext()


class _QueueWaiter:
    """Waits for a future, and puts it into a queue when it is done."""

    __slots__ = ("_finished", "_future")

    def __init__(self, future: Future[Any], finished: SimpleQueue[Future[Any]]) -> None:
        self._future, self._finished = future, finished

    def put(self, _: None) -> None:
        self._finished.put(self._future)


def _checked(future: Future[T], members: list[Future[T]]) -> list[Future[T]]:
    """The list, unless this future has failed."""
    future.value()
    return members


def _members(futures: Iterable[Future[T]]) -> list[Future[T]]:
    members = list(futures)
    for future in members:
        if not isinstance(future, Future):
            raise ArgumentError(f"expected futures, but one is {future!r}, of type {type(future).__name__}")
    return members


def _require_callable(callback: object) -> None:
    if not callable(callback):
        raise ArgumentError(
            "incompatible function arguments. A callback must be callable, but got "
            f"{callback!r}, of type {type(callback).__name__}"
        )
