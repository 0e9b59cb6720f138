"""A thread that runs closures in order while there are some."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable

from weft.errors import XlaError


class ClosureThread:
    """Runs closures in order in a thread, which ends when none is left. The process waits for it when it ends."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waiting: deque[Callable[[], object]] = deque()
        self._running = False
        self._failure: Exception | None = None

    def run_all(self, closures: Iterable[Callable[[], object]]) -> None:
        """Add closures; `RuntimeError` if one has raised since the last call. Then the next call runs them."""
        with self._lock:
            self._waiting.extend(closures)
            failure, self._failure = self._failure, None
            if failure is not None:
                raise XlaError("Cannot run asynchronous closure due to previously raised exception") from failure
            if self._waiting and not self._running:
                self._running = True
                threading.Thread(target=self._run, name="step closures").start()

    def _run(self) -> None:
        while (closure := self._next()) is not None:
            try:
                closure()
            except Exception as error:
                with self._lock:
                    self._failure, self._running = error, False
                return
            del closure  # with the tensors that it holds

    def _next(self) -> Callable[[], object] | None:
        with self._lock:
            if self._waiting:
                return self._waiting.popleft()
            self._running = False
            return None
