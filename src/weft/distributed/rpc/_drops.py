"""Forks that are gone, and whose owners are to be told: with what is sent next, or in a moment."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import partial
from time import monotonic
from typing import Any

from weft.distributed.rpc._references import GloballyUniqueId
from weft.distributed.rpc._workers import WorkerInfo
from weft.futures import Future

_SECONDS = 0.02  # for which an owner may be left in the belief that a fork is there
NEVER = float("inf")


class Drops:
    """The forks of one worker that are gone. `wake` has the time `due` looked at soon."""

    def __init__(self, wake: Callable[[], None]) -> None:
        self.due = NEVER
        self._wake = wake
        self._waiting: deque[tuple[WorkerInfo, GloballyUniqueId, GloballyUniqueId, Future[Any]]] = deque()

    def __bool__(self) -> bool:
        return bool(self._waiting)

    def add(self, owner: WorkerInfo, number: GloballyUniqueId, fork: GloballyUniqueId, known: Future[Any]) -> None:
        """A fork is gone; `known` is done once the owner knows of it. This may be called from a finalizer."""
        self._waiting.append((owner, number, fork, known))
        if self.due == NEVER:
            self.due = monotonic() + _SECONDS
            self._wake()

    def send(self, note: Callable[..., None]) -> None:
        """Tell the owners, by `note(owner, "drop_fork", number, fork)`, as soon as they know of the fork."""
        self.due = NEVER
        while self._waiting:
            try:
                owner, number, fork, known = self._waiting.popleft()
            except IndexError:
                return  # another thread was faster
            known.add_done_callback(partial(_told, note, owner, number, fork))


def _told(
    note: Callable[..., None], owner: WorkerInfo, number: GloballyUniqueId, fork: GloballyUniqueId, _: Future[Any]
) -> None:
    note(owner, "drop_fork", number, fork)
