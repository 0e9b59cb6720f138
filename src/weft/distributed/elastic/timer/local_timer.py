"""Timers over a multiprocessing queue, for workers that are children of the server's process."""

from __future__ import annotations

import os
import time
from queue import Empty
from typing import TYPE_CHECKING

from weft.distributed.elastic.timer.api import (
    RequestQueue,
    TimerClient,
    TimerRequest,
    Timers,
    TimerServer,
    WorkerId,
    end_process,
    on_monotonic_clock,
)

if TYPE_CHECKING:
    from multiprocessing.queues import Queue


class LocalTimerClient(TimerClient):
    """Sends requests to the `LocalTimerServer` of the same host; a worker is identified by its process id."""

    def __init__(self, mp_queue: Queue[TimerRequest]) -> None:
        self._mp_queue = mp_queue

    def acquire(self, scope_id: str, expiration_time: float) -> None:
        """Set the timer of a scope."""
        self._mp_queue.put(TimerRequest(os.getpid(), scope_id, on_monotonic_clock(expiration_time)))

    def release(self, scope_id: str) -> None:
        """Remove the timer of a scope."""
        self._mp_queue.put(TimerRequest(os.getpid(), scope_id, -1))


class MultiprocessingRequestQueue(RequestQueue):
    """Requests in a `multiprocessing.Queue`."""

    def __init__(self, mp_queue: Queue[TimerRequest]) -> None:
        self._mp_queue = mp_queue

    def size(self) -> int:
        """The approximate number of waiting requests."""
        return self._mp_queue.qsize()

    def get(self, size: int, timeout: float) -> list[TimerRequest]:
        """Up to `size` requests; waits for them at most `timeout` seconds."""
        requests: list[TimerRequest] = []
        deadline = time.monotonic() + timeout
        try:
            while len(requests) < size:
                requests.append(self._mp_queue.get(timeout=max(0.0, deadline - time.monotonic())))
        except Empty:
            pass
        return requests


class LocalTimerServer(TimerServer):
    """Kills (SIGKILL) workers of this host whose timers have expired. Start one for each host."""

    def __init__(self, mp_queue: Queue[TimerRequest], max_interval: float = 60, daemon: bool = True) -> None:
        super().__init__(MultiprocessingRequestQueue(mp_queue), max_interval, daemon)
        self._timers = Timers[TimerRequest]()

    def register_timers(self, timer_requests: list[TimerRequest]) -> None:
        """Set or release timers."""
        self._timers.register(timer_requests)

    def clear_timers(self, worker_ids: set[WorkerId]) -> None:
        """Remove all timers of these workers."""
        self._timers.clear(worker_ids)

    def get_expired_timers(self, deadline: float) -> dict[WorkerId, list[TimerRequest]]:
        """Timers that end at or before `deadline`, by process id."""
        return self._timers.expired(deadline)

    def _reap_worker(self, worker_id: int) -> bool:
        return end_process(worker_id)
