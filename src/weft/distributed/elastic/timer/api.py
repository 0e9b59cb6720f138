"""Timer requests, clients and servers, and the `expires` context manager."""

from __future__ import annotations

import logging
import os
import signal as signals
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Collection, Generator
from contextlib import contextmanager
from typing import Any, Generic, TypeAlias, TypeVar

from weft._base.site import calling_frame
from weft.errors import ArgumentError, DistError

_log = logging.getLogger(__name__)


WorkerId: TypeAlias = Any  # the number of a process, or what a user's client and server name workers by


class TimerRequest:
    """Acquires the timer of one scope of one worker or, with a negative `expiration_time`, releases it.

    `expiration_time` is in seconds of `time.monotonic()`, which all processes of a host share and which never jumps.
    The meaning of `worker_id` depends on the kind of server and client.
    """

    __slots__ = ("expiration_time", "scope_id", "worker_id")

    def __init__(self, worker_id: WorkerId, scope_id: str, expiration_time: float) -> None:
        self.worker_id = worker_id
        self.scope_id = scope_id
        self.expiration_time = expiration_time

    def _fields(self) -> tuple[object, ...]:
        return self.worker_id, self.scope_id, self.expiration_time

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and self._fields() == other._fields()

    def __hash__(self) -> int:
        return hash(self._fields())

    def __repr__(self) -> str:
        return f"{type(self).__name__}{self._fields()}"


R = TypeVar("R", bound=TimerRequest)


class TimerClient(ABC):
    """The worker's side."""

    @abstractmethod
    def acquire(self, scope_id: str, expiration_time: float) -> None:
        """Set the timer of a scope; `expiration_time` is in seconds since the epoch."""

    @abstractmethod
    def release(self, scope_id: str) -> None:
        """Remove the timer of a scope."""


def on_monotonic_clock(expiration_time: float) -> float:
    """A time of the wall clock on the monotonic clock of requests. Never negative, which would mean release."""
    return max(0.0, time.monotonic() + expiration_time - time.time())


class RequestQueue(ABC):
    """The queue from which a server reads requests."""

    @abstractmethod
    def size(self) -> int:
        """The number of requests that `get` returns without waiting; more may arrive meanwhile."""

    @abstractmethod
    def get(self, size: int, timeout: float) -> list[TimerRequest]:
        """Up to `size` requests; waits for them at most `timeout` seconds."""


class Timers(Generic[R]):
    """The timers that are set, by worker and scope."""

    def __init__(self) -> None:
        self._set: dict[tuple[WorkerId, str], R] = {}

    def register(self, requests: Collection[R]) -> None:
        """Apply requests in order."""
        for request in requests:
            key = request.worker_id, request.scope_id
            if request.expiration_time < 0:
                self._set.pop(key, None)
            else:
                self._set[key] = request

    def clear(self, worker_ids: Collection[WorkerId]) -> None:
        """Remove all timers of these workers."""
        self._set = {key: request for key, request in self._set.items() if key[0] not in worker_ids}

    def expired(self, deadline: float) -> dict[WorkerId, list[R]]:
        """Timers that end at or before `deadline`, by worker."""
        expired_by_worker: dict[WorkerId, list[R]] = {}
        for request in self._set.values():
            if request.expiration_time <= deadline:
                expired_by_worker.setdefault(request.worker_id, []).append(request)
        return expired_by_worker

    def workers(self) -> set[WorkerId]:
        """Workers that have set a timer."""
        return {worker for worker, _ in self._set}


class TimerServer(ABC):
    """Checks timers in a thread, and reaps workers whose timers have expired.

    It checks whenever requests arrive, and at least every `max_interval` seconds.
    """

    def __init__(self, request_queue: RequestQueue, max_interval: float, daemon: bool = True) -> None:
        self._request_queue = request_queue
        self._max_interval = max_interval
        self._daemon = daemon
        self._watchdog_thread: threading.Thread | None = None
        self._stop_signaled = False

    @abstractmethod
    def register_timers(self, timer_requests: list[TimerRequest]) -> None:
        """Set timers, or release those whose expiration time is negative."""

    @abstractmethod
    def clear_timers(self, worker_ids: set[WorkerId]) -> None:
        """Remove all timers of these workers."""

    @abstractmethod
    def get_expired_timers(self, deadline: float) -> dict[WorkerId, list[TimerRequest]]:
        """Timers that end at or before `deadline`, by worker."""

    @abstractmethod
    def _reap_worker(self, worker_id: WorkerId) -> bool:
        """End a worker. False to be called again at the next check; a worker for which this raises counts as reaped."""

    def start(self) -> None:
        """Start the thread; returns at once."""
        self._stop_signaled = False
        self._watchdog_thread = threading.Thread(target=self._watch, name=type(self).__name__, daemon=self._daemon)
        self._watchdog_thread.start()

    def stop(self) -> None:
        """End the thread; waits for it at most `max_interval` seconds. Does nothing without a thread."""
        self._stop_signaled = True
        if self._watchdog_thread:
            self._watchdog_thread.join(self._max_interval)
            self._watchdog_thread = None

    def _watch(self) -> None:
        while not self._stop_signaled:
            try:
                self._run_watchdog()
            except Exception:  # a malformed request of one worker must not stop the checks of the others
                _log.exception("Error running watchdog")

    def _run_watchdog(self) -> None:
        wanted = max(1, self._request_queue.size())
        self.register_timers(self._request_queue.get(wanted, self._max_interval))
        reaped = set[WorkerId]()
        for worker, requests in self.get_expired_timers(time.monotonic()).items():
            _log.warning("Reaping worker_id=[%s]. Expired timers: %s", worker, [each.scope_id for each in requests])
            if self._reap_worker_no_throw(worker):
                reaped.add(worker)
            else:
                _log.error("Error reaping worker=[%s]. Will retry on next watchdog.", worker)
        self.clear_timers(reaped)

    def _reap_worker_no_throw(self, worker_id: WorkerId) -> bool:
        try:
            return self._reap_worker(worker_id)
        except Exception:
            _log.exception("_reap_worker raised; worker=[%s] counts as reaped", worker_id)
            return True


class _Configured:
    client: TimerClient | None = None


_configured = _Configured()


def configure(timer_client: object) -> None:
    """Set the client that `expires` uses in this process; None for none."""
    if not isinstance(timer_client, TimerClient | None):
        raise ArgumentError(f"timer.configure(): timer_client must be a TimerClient, got {type(timer_client).__name__}")
    _configured.client = timer_client


@contextmanager
def expires(after: float, scope: str | None = None, client: TimerClient | None = None) -> Generator[None]:
    """Let this worker be reaped if the block takes longer than `after` seconds.

    When and how it is reaped depends on the server; usually the process is killed. `scope` defaults to the file and
    line of the call.
    """
    client = client or _configured.client
    if client is None:
        raise DistError("Configure timer client before using countdown timers.")
    if scope is None:
        caller = calling_frame(2)  # above contextlib's __enter__
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
