"""Asynchronous operations, and the executor that runs them in order."""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import CancelledError
from datetime import timedelta
from typing import TypeVar

from weft._base.activity import COLLECTIVES, waiting
from weft._base.interrupts import uninterrupted
from weft._base.site import ends_at_user
from weft._base.timeline import Phase, spanned
from weft._base.types import Result
from weft._comm.stores.store import as_timeout
from weft.distributed._messages import Array, Message
from weft.errors import DistBackendError
from weft.futures import Future

T = TypeVar("T")

_log = logging.getLogger(__name__)


class Work:
    """An operation that was started with `async_op=True`.

    Its results are in the tensors after `wait`, in callbacks of `get_future`, and after waiting for a later operation
    of the group. Until then, the contents of the tensors are undefined, as in PyTorch.
    """

    def __init__(
        self, operation: str = "a collective", deliver: Callable[[Sequence[Array]], Result] = lambda _: None
    ) -> None:
        """Subclasses of users' need not give anything."""
        self._operation = operation
        self._deliver = deliver
        self.arrived: Future[Result] = Future()
        self._delivering = threading.Lock()
        self._result: Result = None
        self._observed = False  # whether a caller has seen its outcome, or is waiting for it

    def _wait_text(self, timeout: object = None) -> str:
        return f"wait: {self._operation}"

    @ends_at_user
    @spanned(Phase.COLLECTIVE, _wait_text)
    def wait(self, timeout: timedelta | float | None = None) -> bool:
        """Block until the results are in the tensors; raises the operation's error.

        `timeout`, a duration or seconds, is only for this wait.
        """
        seconds = None if timeout is None else as_timeout("wait", timeout).total_seconds()
        if seconds is not None and not self._arrived_within(seconds):
            raise DistBackendError(f"{self._operation} was not complete after {seconds:g} s; it goes on, wait() again")
        with waiting(COLLECTIVES, self._operation):
            return self._delivered()

    def _delivered(self) -> bool:
        """Wait for the results, and put them into the tensors."""
        self._observed = True
        arrays = self.arrived.wait()
        with self._delivering:
            if self._deliver is not None:
                deliver, self._deliver = self._deliver, None
                self._result = deliver(arrays)
        return True

    def _arrived_within(self, seconds: float) -> bool:
        done = threading.Event()
        self.arrived.add_done_callback(lambda _: done.set())
        return done.wait(seconds)

    @property
    def delivered(self) -> bool:
        """Whether the results are in the tensors."""
        return self._deliver is None

    def synchronize(self) -> None:
        """Call `wait`."""
        self.wait()

    def is_completed(self) -> bool:
        """Whether the operation has ended, successfully or not."""
        return self.arrived.done()

    def is_success(self) -> bool:
        """Whether it has ended successfully."""
        return self.arrived.done() and self.exception() is None

    def exception(self) -> BaseException | None:
        """The operation's error, or None."""
        if not self.arrived.done():
            return None
        self._observed = True
        try:
            self.arrived.value()
        except BaseException as error:
            return error
        return None

    def log_unobserved(self) -> None:
        """Log the error, if no caller has seen it."""
        if not self._observed and (error := self.exception()) is not None:
            _log.warning(
                "%s, which was started with async_op=True, has failed, and nobody has called wait(): %s",
                self._operation,
                error,
            )

    def result(self) -> Result:
        """The tensors with the results, once they are there."""
        self.wait()
        return self._result

    def source_rank(self) -> int:
        """The rank in the job that a message came from, or was sent to."""
        raise DistBackendError(f"{self._operation} has no source rank: it is no message")

    def _source_rank(self) -> int:
        return self.source_rank()

    def get_future(self) -> Future[Result]:
        """A future of the tensors with the results."""
        self._observed = True
        return self.arrived.then(lambda _: self.result())


def completed(operation: str, results: object) -> Work:
    """The work of an operation that has nothing to do."""
    work = Work(operation, lambda _: results)
    work.arrived.set_result(())
    return work


class MessageWork(Work):
    """A send or receive; the thread that waits for it moves messages itself."""

    def __init__(self, message: Message, deliver: Callable[[Sequence[Array]], Result], ranks: Sequence[int]) -> None:
        super().__init__("a message", deliver)
        self._message = message
        self._ranks = ranks
        self._ended = threading.Lock()

    @ends_at_user
    @spanned(Phase.COLLECTIVE, Work._wait_text)
    def wait(self, timeout: timedelta | float | None = None) -> bool:
        """Block until it is complete; raises its error. The timeout is the group's."""
        if timeout is not None:
            as_timeout("wait", timeout)
        with self._ended:
            if not self.arrived.done():
                with waiting(COLLECTIVES, self._operation):
                    self.arrived.settle(self._end)
        return self._delivered()

    def _end(self) -> Sequence[Array]:
        arrays, self._peer = self._message.wait()
        return arrays

    def is_completed(self) -> bool:
        """Whether it is complete."""
        return self.arrived.done() or self._message.done

    def source_rank(self) -> int:
        """The rank in the job that the message came from, or was sent to."""
        self.wait()
        return self._ranks[self._peer]

    def get_future(self) -> Future[Result]:
        """A future of the tensors with the results."""
        future: Future[Result] = Future()
        threading.Thread(target=future.settle, args=(self.result,), daemon=True).start()
        return future


class OrderedExecutor:
    """Runs functions one at a time, in the order of the calls, for all threads.

    A caller that waits runs its function itself if no other one is queued. Other functions are run by a thread, which
    is started when it is first needed. Functions submitted by the callbacks of a function's future run right after it,
    before all queued ones, so that ranks agree on the order.
    """

    def __init__(self, name: str, begin: Callable[[], None] = lambda: None) -> None:
        self._name = name
        self._begin = begin  # called by the thread first
        self._waiting: deque[tuple[Callable[[], Result], Future[Result]]] = deque()
        self._busy = False
        self._lock = threading.Lock()
        self._changed = threading.Condition(self._lock)
        self._thread: threading.Thread | None = None
        self._closed = False

    def run(self, function: Callable[[], T]) -> T:
        """Call `function` when all earlier ones are done; returns its result."""
        if threading.current_thread() is self._thread:
            return function()
        with self._lock:
            free = not (self._busy or self._waiting or self._closed)
            if free:
                self._busy = True
        if not free:
            with uninterrupted.suspended():  # another thread does it, whatever comes here
                return self.submit(function).wait()
        try:
            return function()
        finally:
            self._free()

    def submit(self, function: Callable[[], T], future: Future[T] | None = None) -> Future[T]:
        """A future of the result of `function`."""
        future = Future() if future is None else future
        if threading.current_thread() is self._thread:
            future.settle(function)
            return future
        with self._changed:
            if self._closed:
                raise DistBackendError(f"the process group {self._name!r} has been destroyed")
            if self._thread is None:
                self._thread = threading.Thread(target=self._work, name=f"weft group {self._name}", daemon=True)
                self._thread.start()
            self._waiting.append((function, future))
            self._changed.notify_all()
        return future

    @property
    def busy(self) -> bool:
        """Whether a function is running or queued."""
        return self._busy or bool(self._waiting)

    def close(self, timeout: float) -> bool:
        """Cancel queued functions; returns whether a running one has ended within `timeout` seconds."""
        with self._changed:
            self._closed = True
            cancelled = [future for _, future in self._waiting]
            self._waiting.clear()
            self._changed.notify_all()
        for future in cancelled:
            future.set_exception(CancelledError(f"the process group {self._name!r} was destroyed before this began"))
        thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            thread.join(timeout)  # a thread still running at the interpreter's exit may crash it
        with self._changed:
            return self._changed.wait_for(lambda: not self._busy, timeout)

    def _work(self) -> None:
        self._begin()
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._closed or (self._waiting and not self._busy))
                if self._closed:
                    return
                function, future = self._waiting.popleft()
                self._busy = True
            future.settle(function)
            self._free()
            del function, future

    def _free(self) -> None:
        with self._lock:
            self._busy = False
            if self._waiting or self._closed:
                self._changed.notify_all()
