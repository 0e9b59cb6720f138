"""Where the ranks of one group meet without memory in common: before each operation, by messages.

In an operation's meeting every rank learns what all of them call, in as many rounds as the size of the group has bits:
in round k a rank tells the one 2^k after it what it has heard so far. Whoever has waited for long tells everybody that
it is here, so that the missing can be named when time is over.

What the operation itself exchanges goes another way (XLA, MPI); `complete` waits for that.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from functools import partial
from itertools import count
from threading import RLock
from time import monotonic, sleep
from typing import NoReturn, TypeVar

import numpy as np

from weft._comm.breakable import Breakable, Trouble
from weft._comm.deadline import Deadline
from weft._comm.messages import Messages, Request
from weft._comm.stream import Source, Streams, Target
from weft.errors import DistBackendError

T = TypeVar("T")

_CALLS, _NOTICES = -(1 << 62), -(1 << 62) + 1  # tags that users' messages do not have
_HERE, _FAILED, _LEFT = 1, 2, 3
_RECORD = 1024  # bytes of a record: a few calls, or a notice
_TOLD = 4  # different calls that an error lists
_SOON = 0.1  # seconds after which a rank tells everybody that it waits
_PAUSE = 0.02  # longest seconds without a look around; another thread may have moved what this one waits for
_YIELDS = 200  # times that the processor is offered to others before sleeping
_NAPS = (20e-6, 1e-3)  # seconds asleep: at first, and at most
_BLAME = 1.0  # seconds after a failed exchange in which the rank that ended must have shown
_FAREWELL = 1.0  # seconds for which a rank that leaves tries to tell the others


class Meeting(Breakable):
    """One rank's side. `ranks` are the numbers that errors show, by default 0, 1, …

    A failure is final: every later use raises at once and tells the first failure.
    """

    def __init__(self, streams: Streams, rank: int, size: int, ranks: Sequence[int] | None = None) -> None:
        self.rank = rank
        self.size = size
        self.ranks = tuple(ranks or range(size))
        self.failed: str | None = None
        self.broken = False  # failed, and not just left
        self.drive: Callable[[], bool] = lambda: False
        self._streams = streams
        self._step = 0
        self._here = [0] * size  # the last meeting at which each rank has told that it waits
        self._given_up: tuple[int, str] | None = None
        self._left: set[int] = set()
        self._peers = [peer for peer in range(size) if peer != rank]
        self._reading = RLock()
        self.messages = Messages(self)
        self._expect_notice()

    def outgoing(self, peer: int) -> Target:
        """The stream to a peer."""
        return self._streams.outgoing(peer)

    def incoming(self, peer: int) -> Source:
        """The stream from a peer."""
        return self._streams.incoming(peer)

    # --- operations ---

    def run(self, call: object, steps: Callable[[], T], deadline: Deadline) -> T:
        """What `steps()` gives once all ranks have come with the same call; what interrupts it breaks the group."""
        self.check(call)
        try:
            self._meet(call, deadline)
            return steps()
        except BaseException as error:
            self.abort(f"{call} was interrupted by {error!r}")  # does nothing where the group has failed
            raise

    def _meet(self, call: object, deadline: Deadline) -> None:
        self._step += 1
        known = {str(call): self.rank}
        distance = 1
        while distance < self.size:
            target, source = (self.rank + distance) % self.size, (self.rank - distance) % self.size
            told = self.messages.send(_packed(known), target, _CALLS)
            record = np.empty(_RECORD, np.uint8)
            heard = self.messages.receive(record, source, _CALLS)
            self._wait(partial(_undone, told, heard), call, deadline, self._absent)
            _merge(known, record)
            distance *= 2
        self._read_notices()
        if self._given_up is not None:
            self._fail_by(self._gave_up(*self._given_up), call)
        if len(known) > 1:
            listed = ", ".join(f"rank {self.ranks[rank]} called {what}" for what, rank in _sorted(known))
            self.failed, self.broken = f"the ranks call different operations: {listed}", True
            raise DistBackendError(self.failed)  # the others find the same

    def _absent(self) -> list[int]:
        """The ranks that have not told that they are at the present meeting."""
        return [peer for peer in self._peers if self._here[peer] < self._step]

    def _say_here(self) -> None:
        """Tell everybody, once, that this rank is at the present meeting."""
        if self._here[self.rank] < self._step:
            self._here[self.rank] = self._step
            self._notify(_HERE, str(self._step))

    # --- waiting ---

    def wait(self, missing: Callable[[], Sequence[int]], what: object, deadline: Deadline) -> None:
        """Return once `missing` names no rank any more; a `DistBackendError` where it cannot come to that.

        That is: a missing rank has ended or left the group, a rank has given up, or the deadline is over.
        """
        self._wait(missing, what, deadline)

    def _wait(
        self, missing: Callable[[], Sequence[int]], what: object, deadline: Deadline,
        absent: Callable[[], Sequence[int]] | None = None,
    ) -> None:  # fmt: skip
        """`absent`, for meetings, names all ranks that have not come, of which `missing` are those this one hears."""
        started = monotonic()
        while missing():
            if self.drive():
                continue
            self._look(missing, what, deadline, absent or missing)
            if absent is not None and (monotonic() > started + _SOON or self._step in self._here):
                self._say_here()
            left = deadline.left()
            self._streams.pause(_PAUSE if left is None else min(_PAUSE, left))

    def complete(self, done: Callable[[], bool], what: object, deadline: Deadline) -> None:
        """Return once `done()`, which concerns all peers; errors as `wait`. Peers may leave, as they may be done."""
        nap = _NAPS[0]
        for turn in count(1):
            if done():
                return
            self.drive()
            if turn < _YIELDS:
                os.sched_yield()
                continue
            self._look(lambda: () if done() else self._peers, what, deadline, lambda: self._peers, True)
            sleep(nap)
            nap = min(2 * nap, _NAPS[1])

    def _look(
        self, missing: Callable[[], Sequence[int]], what: object, deadline: Deadline,
        absent: Callable[[], Sequence[int]], may_leave: bool = False,
    ) -> None:  # fmt: skip
        """Fail where waiting is in vain; what a rank sent before it ended still counts."""
        self._read_notices()
        trouble = self._trouble(missing(), may_leave)
        if trouble is None and deadline.expired:
            trouble = self._timed_out(deadline, absent() or missing())
        if trouble is not None and missing():
            self._fail_by(trouble, what)

    def _trouble(self, missing: Sequence[int], may_leave: bool) -> Trouble | None:
        if self.failed is not None:
            return self.failed, ()
        if self._given_up is not None:
            return self._gave_up(*self._given_up)
        ended = self._streams.ended()
        for peer in missing:
            if peer in self._left:
                if not may_leave:
                    return f"{self._names([peer])} has left the group", [peer]
            elif peer in ended:
                return f"{self._names([peer])} has ended ({ended[peer]})", [peer]
        return None

    # --- failing and leaving ---

    def fail_after(self, error: Exception, what: object) -> NoReturn:
        """Raise for an exchange that broke, in words about the rank that broke it, where that shows soon."""
        text = " ".join(str(error).split())
        self.complete(lambda: False, f"{what} ({text})", Deadline(_BLAME))
        raise AssertionError("an exchange that never completes has failed")

    def abort(self, text: str) -> None:
        """Break the group: waiting ranks, this one too, raise what the text says."""
        with self._reading:
            if self.failed is None:
                self._notify(_FAILED, text)
                self.failed, self.broken = text, True

    def close(self) -> None:
        """Leave the group. Peers that still need this rank are told; nothing here may be used afterwards."""
        if self.failed is None:
            sent = self._notify(_LEFT, "")
            self.failed = "this rank has left the group"
            until = Deadline(_FAREWELL)
            while not (all(request.done for request in sent) or until.expired or self._streams.ended()):
                if not self.drive():
                    self._streams.pause(until.left() or 0.0)
        self.messages.close()
        self._streams.close()

    # --- notices ---

    def _notify(self, kind: int, text: str) -> list[Request]:
        record = np.zeros(_RECORD, np.uint8)
        told = text.encode()[: _RECORD - 1]
        record[0] = kind
        record[1 : 1 + len(told)] = np.frombuffer(told, np.uint8)
        return [self.messages.send(record, peer, _NOTICES) for peer in self._peers]

    def _expect_notice(self) -> None:
        self._notice = np.empty(_RECORD, np.uint8)
        self._coming = self.messages.receive(self._notice, None, _NOTICES)

    def _read_notices(self) -> None:
        with self._reading:
            while self.failed is None and self._coming.done:
                source, kind = self._coming.peer, int(self._notice[0])
                text = self._notice[1:].tobytes().rstrip(b"\0").decode(errors="replace")
                assert source is not None, "a message that has come has a source"
                if kind == _HERE:
                    self._here[source] = int(text)
                elif kind == _LEFT:
                    self._left.add(source)
                elif self._given_up is None:
                    self._given_up = source, text
                self._expect_notice()


def _undone(*requests: Request) -> list[int]:
    """The peers of requests that are not done."""
    return [request.peer for request in requests if not request.done and request.peer is not None]


def _packed(known: dict[str, int]) -> np.ndarray:
    """What ranks call, as a record: the first rank of each call, a space, and the call."""
    lines = "\n".join(f"{rank} {call}" for call, rank in _sorted(known)[:_TOLD])
    return np.frombuffer(lines.encode()[:_RECORD].ljust(_RECORD, b"\0"), np.uint8)


def _merge(known: dict[str, int], record: np.ndarray) -> None:
    for line in record.tobytes().rstrip(b"\0").decode(errors="replace").split("\n"):
        rank, _, call = line.partition(" ")
        known[call] = min(int(rank), known.get(call, int(rank)))


def _sorted(known: dict[str, int]) -> list[tuple[str, int]]:
    return sorted(known.items(), key=lambda item: item[1])
