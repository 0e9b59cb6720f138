"""The thread that writes a node's heartbeats."""

from __future__ import annotations

import logging
import threading
import time

from weft.distributed.elastic.rendezvous._executor import Executor
from weft.distributed.elastic.rendezvous.utils import fact
from weft.errors import PeerGoneError, RendezvousConnectionError, RendezvousError

_log = logging.getLogger(__name__)

LISTEN_SECONDS = 0.25
"""How long the leader waits for a wake-up before it checks whether it should stop."""
_STOP_SECONDS = 5.0


class KeepAlive:
    """Writes the heartbeats of a node, reads the status, and does the leader's work if the node is the leader.

    Args:
        executor: runs the node's operations.
        interval: seconds between two heartbeats.
        patience: seconds for which the backend may fail.
    """

    def __init__(self, executor: Executor, interval: float, patience: float) -> None:
        self._executor = executor
        self._interval = interval
        self._patience = patience
        self._stopped = threading.Event()
        self._woken = threading.Event()
        self._thread = threading.Thread(target=self._run, name="rendezvous keep-alive", daemon=True)
        self._thread.start()

    def wake(self) -> None:
        """Wake the thread."""
        self._woken.set()

    def check(self) -> None:
        """Raise `RendezvousConnectionError` if the backend has failed for too long."""
        since, failure = self._executor.failing_since, self._executor.failure
        if since is not None and time.monotonic() - since >= self._patience:
            if isinstance(failure, RendezvousConnectionError) and isinstance(failure.__cause__, PeerGoneError):
                raise failure  # its text needs no addition
            raise RendezvousConnectionError(
                f"the rendezvous has not answered for {time.monotonic() - since:.0f} s ({fact(failure)}); is the "
                "process that serves --rdzv-endpoint alive, and does the network lead there? Start this node again then"
            ) from failure

    def stop(self) -> None:
        """End the thread. This does not wait long for a running call to the backend."""
        self._stopped.set()
        self._woken.set()
        self._thread.join(timeout=_STOP_SECONDS)

    def _run(self) -> None:
        member, due = self._executor.member, time.monotonic() + self._interval
        while not self._stopped.is_set():
            start = time.monotonic()
            beat, pause = start >= due, self._interval
            try:
                self._executor.run(member.tick(beat=beat))
                pause = min(self._interval, member.poll_seconds)
                if beat:
                    due = start + self._interval
            # The thread goes on: short failures are borne, and `check` raises those that last too long in the agent's
            # own thread.
            except RendezvousError as error:
                _log.info("keep-alive of the rendezvous failed, trying again: %s", error)
            now = time.monotonic()
            self._wait(now + pause, now + (now - start))

    def _wait(self, end: float, earliest: float) -> None:
        """Wait until `end` or a wake-up, but at least until `earliest`, so that others get half of the time."""
        self._stopped.wait(earliest - time.monotonic())
        while not self._stopped.is_set() and not self._woken.is_set() and (left := end - time.monotonic()) > 0:
            if not self._executor.member.leads:
                self._woken.wait(left)
                continue
            try:
                if self._executor.await_wake(min(left, LISTEN_SECONDS)):
                    break
            except RendezvousError as error:
                _log.info("the rendezvous fails: %s", error)
                self._stopped.wait(left)
        self._woken.clear()
