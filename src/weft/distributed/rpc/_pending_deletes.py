"""Deleted forks, which are reported to their owners with the next call to them, or after a moment."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from time import monotonic
from typing import Protocol

from weft._base.types import Result
from weft._comm.transport.pipe import CallPipe
from weft.distributed.rpc._call import NEVER
from weft.distributed.rpc._protocol import Note
from weft.distributed.rpc._references import Number, References
from weft.distributed.rpc._workers import WorkerInfo
from weft.futures import Future

_SECONDS = 0.02  # the longest delay of a delete
_TOGETHER = 1000  # the most forks in one message


class HasReferences(Protocol):
    """An agent, as far as deletes need it."""

    references: References


@Note
def delete_forks(agent: HasReferences, forks: list[tuple[Number, Number]]) -> None:
    """Delete forks; each is given by the number of a value and that of the fork."""
    for number, fork in forks:
        agent.references.delete_fork(number, fork)


class PendingDeletes:
    """The deleted forks of one worker. `wake()` lets the attribute `due` be checked soon."""

    def __init__(self, wake: Callable[[], None]) -> None:
        self.due = NEVER
        self._wake = wake
        self._waiting: deque[tuple[WorkerInfo, tuple[Number, Number], Future[Result]]] = deque()

    def __bool__(self) -> bool:
        return bool(self._waiting)

    def add(self, owner: WorkerInfo, number: Number, fork: Number, acknowledgement: Future[Result]) -> None:
        """Add a deleted fork; `acknowledgement` is done once the owner knows of it. May be called from a finalizer."""
        # No lock is taken: a finalizer may run while this very thread is within `send`.
        self._waiting.append((owner, ((number[0], number[1]), (fork[0], fork[1])), acknowledgement))
        if self.due == NEVER:
            self.due = monotonic() + _SECONDS
            self._wake()

    def send(self, tell: Callable[..., None], sending: CallPipe | None = None) -> None:
        """Tell the owners that know of the forks, by `tell(owner, delete_forks, forks, sending=…)`.

        Each of `forks` is the number of a value, and that of the deleted fork. Deletes sent now may go together with
        the next frames of `sending`; those that wait for an owner are sent alone.
        """
        self.due = NEVER
        gone: dict[WorkerInfo, list[tuple[Number, Number]]] = {}
        while self._waiting:
            try:
                owner, fork, acknowledgement = self._waiting.popleft()
            except IndexError:
                break  # another thread has done it
            # An owner that is told of a deletion first, and then of the fork, would keep the value for ever.
            if acknowledgement.done():
                gone.setdefault(owner, []).append(fork)
            else:
                acknowledgement.add_done_callback(lambda _, owner=owner, fork=fork: tell(owner, delete_forks, [fork]))
        for owner, forks in gone.items():
            for at in range(0, len(forks), _TOGETHER):
                tell(owner, delete_forks, forks[at : at + _TOGETHER], sending=sending)
