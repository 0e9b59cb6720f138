"""A group of ranks without shared memory: before each operation the ranks compare their calls by messages.

The exchange of calls takes as many rounds as the size of the group has bits: in round k, a rank sends all calls that it
knows to the rank 2^k after it. A rank that has waited for 0.1 s announces this to all others, so that the missing ones
can be named at the deadline.

The data of the operation itself is sent in another way (by XLA or MPI); `complete` waits for it.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import count
from threading import RLock
from time import monotonic, sleep
from typing import NoReturn, TypeVar

import numpy as np

from weft._base.interrupts import uninterrupted
from weft._comm.deadline import Deadline
from weft._comm.groups.abortable_group import AbortableGroup, Failure
from weft._comm.groups.messages import MessageRequest, Messages
from weft._comm.groups.stream import ByteSink, ByteSource, Streams
from weft.errors import CollectiveArgumentsError, DistBackendError

T = TypeVar("T")

_CALLS, _NOTICES = -(1 << 62), -(1 << 62) + 1  # tags that users' messages cannot have
_WAITING, _FAILED, _LEFT = 1, 2, 3
_RECORD = 1024  # bytes of a record: a few calls, or a notice
_VERSION = "\t"  # between the name of a call and its version
_LISTED_CALLS = 4  # different calls that an error lists
_ANNOUNCE_AFTER = 0.1  # seconds after which a rank announces that it waits
_PAUSE = 0.02  # longest time between checks, in seconds; another thread may have moved the awaited message
_YIELDS = 200  # times that the processor is yielded before sleeping
_PAUSES = (20e-6, 1e-3)  # seconds of sleep: at first, and at most
_FAILURE_SECONDS = 1.0  # time in which the end of a rank is noticed after an exchange with it has failed
_LEAVE_SECONDS = 1.0  # time for which a rank that leaves tries to tell the others


class MessageGroup(AbortableGroup):
    """One rank's part of the group. `ranks` are the numbers that errors show, by default 0, 1, …

    A failure is final: every later use raises at once, with the text of the first failure.
    """

    def __init__(self, streams: Streams, rank: int, size: int, ranks: Sequence[int] | None = None) -> None:
        self.rank = rank
        self.size = size
        self.ranks = tuple(ranks or range(size))
        self.failed: str | None = None
        self.broken = False  # whether it has failed, rather than been left
        self.progress: Callable[[], bool] = lambda: False
        self._streams = streams
        self._step = 0
        self._waiting_at = [0] * size  # the last operation in which each rank has announced that it waits
        self._given_up: tuple[int, str] | None = None
        self._left: set[int] = set()
        self._peers = [peer for peer in range(size) if peer != rank]
        self._reading = RLock()
        self.messages = Messages(self)
        self._expect_notice()

    def outgoing(self, peer: int) -> ByteSink:
        """The stream to a peer."""
        return self._streams.outgoing(peer)

    def incoming(self, peer: int) -> ByteSource:
        """The stream from a peer."""
        return self._streams.incoming(peer)

    # --- operations ---

    def run(self, call: object, steps: Callable[[], T], deadline: Deadline) -> T:
        """Call `steps()` once all ranks have made the same call; any exception fails the group."""
        with self._operation(call):
            self._agree(call, deadline)
            return steps()

    def run_if_equal(self, call: object, version: str, steps: Callable[[], T], deadline: Deadline) -> T | None:
        """As `run`, if the ranks have also come with equal versions, which have no tabs; else None on all of them."""
        with self._operation(call):
            return steps() if self._agree(f"{call}{_VERSION}{version}", deadline) else None

    @contextmanager
    def _operation(self, call: object) -> Generator[None]:
        """A block in which any exception fails the group, unless all ranks raise it for their arguments."""
        self.check(call)
        try:
            yield
        except CollectiveArgumentsError:
            raise
        except BaseException as error:
            self.abort(f"{call} was interrupted by {error!r}")  # does nothing if the group has already failed
            raise

    def _agree(self, call: object, deadline: Deadline) -> bool:
        """Return when all ranks have come with this call: whether the versions that may follow it are equal."""
        self._step += 1
        what = str(call).partition(_VERSION)[0]
        ranks_by_call = {str(call): self.rank}
        distance = 1
        # Doubling distances: after as many rounds as the size has bits, every rank knows all calls.
        while distance < self.size:
            target, source = (self.rank + distance) % self.size, (self.rank - distance) % self.size
            sending = self.messages.send(_packed(ranks_by_call), target, _CALLS)
            record = np.empty(_RECORD, np.uint8)
            receiving = self.messages.receive(record, source, _CALLS)
            self._wait(partial(_undone, sending, receiving), what, deadline, self._absent)
            _merge(ranks_by_call, record)
            distance *= 2
        self._read_notices()
        if self._given_up is not None:
            self._fail_by(self._gave_up(*self._given_up), what)
        ranks_by_name = {text.partition(_VERSION)[0]: rank for text, rank in reversed(_sorted(ranks_by_call))}
        if len(ranks_by_name) > 1:
            self.disagree(_sorted(ranks_by_name))
        return len(ranks_by_call) == 1

    def _fail_alike(self, text: str) -> NoReturn:
        self.failed, self.broken = text, True  # without a notice, which might be read before the calls are
        raise DistBackendError(text)

    def _absent(self) -> list[int]:
        """The ranks that have not announced that they wait in the present operation."""
        return [peer for peer in self._peers if self._waiting_at[peer] < self._step]

    def _announce_waiting(self) -> None:
        """Announce, at most once, that this rank waits in the present operation."""
        if self._waiting_at[self.rank] < self._step:
            self._waiting_at[self.rank] = self._step
            self._notify(_WAITING, str(self._step))

    # --- waiting ---

    def wait(self, missing: Callable[[], Sequence[int]], what: object, deadline: Deadline) -> None:
        """Return once `missing()` is empty.

        `DistBackendError` if a missing rank has ended or left the group, a rank has failed, or the deadline has passed.
        """
        self._wait(missing, what, deadline)

    def _wait(
        self,
        missing: Callable[[], Sequence[int]],
        what: object,
        deadline: Deadline,
        absent: Callable[[], Sequence[int]] | None = None,
    ) -> None:
        """As `wait`. In the exchange of calls, `absent` are all ranks that have not come, `missing` direct peers."""
        started = monotonic()
        while missing():
            if self.progress():
                continue
            uninterrupted.poll_waiting(started)
            self._check_peers(missing, what, deadline, absent or missing)
            # Only ranks that wait long announce it, since that is a message to everybody. One announcement makes all
            # others follow, so that the missing ones stand out.
            if absent is not None and (monotonic() > started + _ANNOUNCE_AFTER or self._step in self._waiting_at):
                self._announce_waiting()
            left = deadline.left()
            self._streams.pause(_PAUSE if left is None else min(_PAUSE, left))

    def complete(self, done: Callable[[], bool], what: object, deadline: Deadline) -> None:
        """Return once `done()`, which needs all peers; errors are as for `wait`. Peers that are done may leave."""
        pause, started = _PAUSES[0], monotonic()
        for attempt in count(1):
            if done():
                return
            self.progress()
            if attempt < _YIELDS:
                os.sched_yield()
                continue
            uninterrupted.poll_waiting(started)
            self._check_peers(lambda: () if done() else self._peers, what, deadline, lambda: self._peers, True)
            sleep(pause)
            pause = min(2 * pause, _PAUSES[1])

    def _check_peers(
        self,
        missing: Callable[[], Sequence[int]],
        what: object,
        deadline: Deadline,
        absent: Callable[[], Sequence[int]],
        may_leave: bool = False,
    ) -> None:
        """Fail if the missing ranks can no longer come; what a rank has sent before its end still counts."""
        self._read_notices()
        failure = self._find_failure(missing(), may_leave)
        if failure is None and deadline.expired:
            failure = self._timed_out(deadline, absent() or missing())
        if failure is not None and missing():
            self._fail_by(failure, what)

    def _find_failure(self, missing: Sequence[int], may_leave: bool) -> Failure | None:
        if self.failed is not None:
            return self.failed, ()
        if self._given_up is not None:
            return self._gave_up(*self._given_up)
        ended = self._streams.ended()
        # A rank that has done its part of the operation may have left already.
        for peer in missing:
            if peer in self._left:
                if not may_leave:
                    return f"{self._names([peer])} has left the group", [peer]
            elif peer in ended:
                return f"{self._names([peer])} has ended ({ended[peer]})", [peer]
        return None

    # --- failing and leaving ---

    def fail_after(self, error: Exception, what: object) -> NoReturn:
        """Raise for an exchange that has failed; names the responsible rank if its end is noticed soon."""
        text = " ".join(str(error).split())
        self.complete(lambda: False, f"{what} ({text})", Deadline(_FAILURE_SECONDS))
        raise AssertionError("an exchange that never completes has failed")

    def abort(self, text: str) -> None:
        """Fail the group: waiting ranks, including this one, raise an error with this text."""
        with self._reading:
            if self.failed is None:
                self._notify(_FAILED, text)
                self.failed, self.broken = text, True

    def close(self) -> None:
        """Leave the group. Peers that still wait for this rank fail; the group cannot be used afterwards."""
        if self.failed is None:
            sent = self._notify(_LEFT, "")
            self.failed = "this rank has left the group"
            until = Deadline(_LEAVE_SECONDS)
            while not (all(request.done for request in sent) or until.expired or self._streams.ended()):
                if not self.progress():
                    self._streams.pause(until.left() or 0.0)
        self.messages.close()
        self._streams.close()

    # --- notices ---

    def _notify(self, kind: int, text: str) -> list[MessageRequest]:
        record = np.zeros(_RECORD, np.uint8)
        encoded = text.encode()[: _RECORD - 1]
        record[0] = kind
        record[1 : 1 + len(encoded)] = np.frombuffer(encoded, np.uint8)
        return [self.messages.send(record, peer, _NOTICES) for peer in self._peers]

    def _expect_notice(self) -> None:
        self._notice = np.empty(_RECORD, np.uint8)
        self._notice_request = self.messages.receive(self._notice, None, _NOTICES)

    def _read_notices(self) -> None:
        with self._reading:
            while self.failed is None and self._notice_request.done:
                source, kind = self._notice_request.peer, int(self._notice[0])
                text = self._notice[1:].tobytes().rstrip(b"\0").decode(errors="replace")
                assert source is not None, "a message that has come has a source"
                if kind == _WAITING:
                    self._waiting_at[source] = int(text)
                elif kind == _LEFT:
                    self._left.add(source)
                elif self._given_up is None:
                    self._given_up = source, text
                self._expect_notice()


def _undone(*requests: MessageRequest) -> list[int]:
    """The peers of requests that are not done."""
    return [request.peer for request in requests if not request.done and request.peer is not None]


def _packed(ranks_by_call: dict[str, int]) -> np.ndarray:
    """The calls of ranks as a record. Each line has the first rank with a call, a space, and the call."""
    lines = "\n".join(f"{rank} {call}" for call, rank in _sorted(ranks_by_call)[:_LISTED_CALLS])
    return np.frombuffer(lines.encode()[:_RECORD].ljust(_RECORD, b"\0"), np.uint8)


def _merge(ranks_by_call: dict[str, int], record: np.ndarray) -> None:
    for line in record.tobytes().rstrip(b"\0").decode(errors="replace").split("\n"):
        rank, _, call = line.partition(" ")
        ranks_by_call[call] = min(int(rank), ranks_by_call.get(call, int(rank)))


def _sorted(ranks_by_call: dict[str, int]) -> list[tuple[str, int]]:
    return sorted(ranks_by_call.items(), key=lambda item: item[1])
