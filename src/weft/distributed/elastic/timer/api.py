"""Requests, the two ends that exchange them, and the block that a timer guards."""

from __future__ import annotations

import logging
import os
import signal as signals
import sys
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from typing import Any

from weft.errors import ArgumentError, DistError

_log = logging.getLogger(__name__)


class TimerRequest:
    """Acquires (or, with a negative `expiration_time`, releases) the timer of one scope of one worker.

    `expiration_time` is in seconds of `time.monotonic()`, which all processes of a host share and which never jumps;
    what a `worker_id` is, server and client agree on.
    """

    __slots__ = ("expiration_time", "scope_id", "worker_id")

    def __init__(self, worker_id: Any, scope_id: str, expiration_time: float) -> None:
        self.worker_id = worker_id
        self.scope_id = scope_id
        self.expiration_time = expiration_time

    def _fields(self) -> tuple[Any, ...]:
        return self.worker_id, self.scope_id, self.expiration_time

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and isinstance(other, TimerRequest) and self._fields() == other._fields()

    def __hash__(self) -> int:
        return hash(self._fields())

    def __repr__(self) -> str:
        return f"{type(self).__name__}{self._fields()}"


class TimerClient(ABC):
    """The worker's end."""

    @abstractmethod
    def acquire(self, scope_id: str, expiration_time: float) -> None:
        """Set the timer of a scope; `expiration_time` is in seconds since the epoch, as the clock is now."""

    @abstractmethod
    def release(self, scope_id: str) -> None:
        """Drop the timer of a scope."""


def on_monotonic_clock(expiration_time: float) -> float:
    """A time of the wall clock, as it is now, on the clock of requests; never negative, which would be a release."""
    return max(0.0, time.monotonic() + expiration_time - time.time())


class RequestQueue(ABC):
    """Where a server finds the requests of its clients."""

    @abstractmethod
    def size(self) -> int:
        """Requests that `get` gives without waiting; more may arrive meanwhile."""

    @abstractmethod
    def get(self, size: int, timeout: float) -> list[TimerRequest]:
        """Up to `size` requests; waits at most `timeout` seconds for them."""


class Timers:
    """The timers that are set, by worker and scope."""

    def __init__(self) -> None:
        self._set: dict[tuple[Any, str], Any] = {}

    def register(self, requests: Collection[TimerRequest]) -> None:
        """Carry out requests in their order."""
        for request in requests:
            key = request.worker_id, request.scope_id
            if request.expiration_time < 0:
                self._set.pop(key, None)
            else:
                self._set[key] = request

    def clear(self, worker_ids: Collection[Any]) -> None:
        """Drop all timers of some workers."""
        self._set = {key: request for key, request in self._set.items() if key[0] not in worker_ids}

    def expired(self, deadline: float) -> dict[Any, list[Any]]:
        """Timers that end at or before `deadline`, by worker."""
        expired_by_worker: dict[Any, list[Any]] = {}
        for request in self._set.values():
            if request.expiration_time <= deadline:
                expired_by_worker.setdefault(request.worker_id, []).append(request)
        return expired_by_worker

    def workers(self) -> set[Any]:
        """Workers that have set a timer."""
        return {worker for worker, _ in self._set}


class TimerServer(ABC):
    """Watches timers in a thread and reaps workers that let one expire.

    It looks whenever requests arrive, and at least every `max_interval` seconds.
    """

    def __init__(self, request_queue: RequestQueue, max_interval: float, daemon: bool = True) -> None:
        self._request_queue = request_queue
        self._max_interval = max_interval
        self._daemon = daemon
        self._watchdog_thread: threading.Thread | None = None
        self._stop_signaled = False

    @abstractmethod
    def register_timers(self, timer_requests: list[TimerRequest]) -> None:
        """Set or, where the expiration time is negative, release timers."""

    @abstractmethod
    def clear_timers(self, worker_ids: set[Any]) -> None:
        """Drop all timers of these workers."""

    @abstractmethod
    def get_expired_timers(self, deadline: float) -> dict[Any, list[TimerRequest]]:
        """Timers that end at or before `deadline`, by worker."""

    @abstractmethod
    def _reap_worker(self, worker_id: Any) -> bool:
        """End a worker; False to be asked again at the next look. A worker for which this raises counts as reaped."""

    def start(self) -> None:
        """Begin to watch; returns at once."""
        self._stop_signaled = False
        self._watchdog_thread = threading.Thread(target=self._watch, name=type(self).__name__, daemon=self._daemon)
        self._watchdog_thread.start()

    def stop(self) -> None:
        """End the thread; waits for it at most `max_interval` seconds. Without a thread it does nothing."""
        self._stop_signaled = True
        if self._watchdog_thread:
            self._watchdog_thread.join(self._max_interval)
            self._watchdog_thread = None

    def _watch(self) -> None:
        while not self._stop_signaled:
            try:
                self._run_watchdog()
            except Exception:  # a request that one worker garbled must not end the watch over the others
                _log.exception("Error running watchdog")

    def _run_watchdog(self) -> None:
        wanted = max(1, self._request_queue.size())
        self.register_timers(self._request_queue.get(wanted, self._max_interval))
        reaped = set()
        for worker, requests in self.get_expired_timers(time.monotonic()).items():
            _log.warning("Reaping worker_id=[%s]. Expired timers: %s", worker, [each.scope_id for each in requests])
            if self._reap_worker_no_throw(worker):
                reaped.add(worker)
            else:
                _log.error("Error reaping worker=[%s]. Will retry on next watchdog.", worker)
        self.clear_timers(reaped)

    def _reap_worker_no_throw(self, worker_id: Any) -> bool:
        try:
            return self._reap_worker(worker_id)
        except Exception:
            _log.exception("_reap_worker raised; worker=[%s] counts as reaped", worker_id)
            return True


class _Configured:
    client: TimerClient | None = None


_configured = _Configured()


def configure(timer_client: TimerClient | None) -> None:
    """Set the client that `expires` uses in this process; None for none."""
    if timer_client is not None and not isinstance(timer_client, TimerClient):
        raise ArgumentError(f"timer.configure(): timer_client must be a TimerClient, got {type(timer_client).__name__}")
    _configured.client = timer_client


@contextmanager
def expires(after: float, scope: str | None = None, client: TimerClient | None = None) -> Iterator[None]:
    """Make this worker eligible for reaping when the block takes longer than `after` seconds.

    When and how it is reaped is the server's decision; usually the process is killed. The scope is by default the
    place of the call.
    """
    client = client or _configured.client
    if client is None:
        raise DistError("Configure timer client before using countdown timers.")
    if scope is None:
        caller = sys._getframe(2)  # above contextlib's __enter__
        scope = f"{caller.f_code.co_filename}#{caller.f_lineno}"
    client.acquire(scope, time.time() + after)
    try:
        yield
    finally:
        client.release(scope)


def end_process(pid: int, signal: int = signals.SIGKILL) -> bool:
    """Send a process a signal; True if it is gone or will be."""
    try:
        os.kill(pid, signal)
    except ProcessLookupError:
        _log.info("Process with pid=%s does not exist. Skipping", pid)
    except PermissionError:
        _log.exception("Error terminating pid=%s", pid)
        return False
    return True
