"""A thread that runs closures in order while there are some."""

from __future__ import annotations

import atexit
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterable, Mapping

from weft._base.state import ambient, using
from weft._base.types import Arg
from weft.errors import XlaError


class ClosureThread:
    """Runs closures in order in a thread, which ends when none is left. The process waits for it when it ends.

    A closure that raises stops the thread until its failure is reported: by the next call of `run` or `raise_failure`,
    or by `sys.excepthook` when the process ends.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waiting: deque[tuple[Callable[[], object], Mapping[str, Arg]]] = deque()
        self._running = False
        self._failure: Exception | None = None
        atexit.register(self._show_failure)

    def run(self, closures: Iterable[Callable[[], object]]) -> None:
        """Add closures, and run those that wait; `RuntimeError`, without adding them, if one has raised."""
        self.raise_failure()
        with self._lock:
            info = ambient().context.debug_info
            self._waiting.extend([(closure, info) for closure in closures])
            if self._waiting and not self._running:
                self._running = True
                threading.Thread(target=self._run, name="step closures").start()

    def raise_failure(self) -> None:
        """Raise `RuntimeError`, once, if a closure has raised."""
        failure = self._taken_failure()
        if failure is not None:
            raise XlaError("Cannot run asynchronous closure due to previously raised exception") from failure

    def _taken_failure(self) -> Exception | None:
        with self._lock:
            failure, self._failure = self._failure, None
            return failure

    def _show_failure(self) -> None:
        """Print the traceback of a failure that was not reported; called when the process ends."""
        failure = self._taken_failure()
        if failure is not None:
            failure.add_note("raised by an asynchronous step closure, after which no step has ended")
            sys.excepthook(type(failure), failure, failure.__traceback__)

    def _run(self) -> None:
        while (next_one := self._next()) is not None:
            closure, info = next_one
            try:
                with using(debug_info=info):
                    closure()
            except Exception as error:
                with self._lock:
                    self._failure, self._running = error, False
                return
            del closure, next_one  # with the tensors that it holds

    def _next(self) -> tuple[Callable[[], object], Mapping[str, Arg]] | None:
        with self._lock:
            if self._waiting:
                return self._waiting.popleft()
            self._running = False
            return None
