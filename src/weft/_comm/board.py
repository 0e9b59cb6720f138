"""Where the ranks of one group meet: counters, calls and data over memory that all of them see.

The ranks go through *phases* together. In each, a rank writes its own area, posts the number of the phase, waits
until everybody has posted it, and reads the areas of others. Areas alternate between two halves: whoever writes for
phase t + 2 has seen everybody post t + 1, and so knows that all are done with reading what was written for phase t.

Order of memory. A post must not be seen before what was written ahead of it, nor data be read ahead of the counter
that announces it. Machines of the x86 family keep stores in order, and loads in order, so plain ones are enough there
(NumPy and memoryview move an aligned 64-bit word by one instruction). Elsewhere `_fence` stands between: it takes and
frees a lock twice. Freeing is a store-release and taking it again a load-acquire; these two are never reordered
(on ARM: STLR before LDAR), earlier accesses stay before the first and later ones behind the second.
"""

from __future__ import annotations

import os
import platform
import select
from collections.abc import Callable, Sequence
from itertools import count
from threading import Lock
from time import sleep
from typing import Protocol

import numpy as np

from weft._comm.breakable import Breakable, Trouble
from weft._comm.deadline import Deadline
from weft._comm.layout import Layout
from weft._comm.memory import Memory
from weft._comm.ring import Ring

WEAKLY_ORDERED = platform.machine() not in {"x86_64", "AMD64", "i686"}
_SPINS = range(50)  # looks at a counter before the processor is given up: about 3 µs
_YIELDS = 1000  # times that it is offered to others before sleeping
_NAPS = (20e-6, 1e-3)  # seconds asleep: at first, and at most
_FAILED, _LEFT = 1, 2


class Exchange(Protocol):
    """What ranks find each other through: a store, as far as needed here."""

    def set(self, key: str, value: bytes, /) -> None:
        """Publish a value."""
        ...

    def get(self, key: str, /) -> bytes:
        """The value, waiting until there is one."""
        ...


class Board(Breakable):
    """One rank's side of the meeting place. `ranks` are the numbers that errors show, by default 0, 1, …

    A failure is final, since counters no longer agree: every later use raises at once and tells the first failure.
    While a rank waits it calls `drive`, which moves messages and says whether any moved.
    """

    def __init__(self, memory: Memory, rank: int, size: int, ranks: Sequence[int] | None = None) -> None:
        self.rank = rank
        self.size = size
        self.ranks = tuple(ranks or range(size))
        self.layout = Layout(size, memory.start)
        self.step = 0
        self.failed: str | None = None
        self.drive: Callable[[], bool] = lambda: False
        self._memory = memory
        self.view = memory.view()
        self.words = self.view.cast("Q")
        self.bytes = np.frombuffer(self.view, np.uint8)
        self._broken = self.layout.broken
        self._steps = [self.layout.step(r) for r in range(size)]
        self._peers = [cell for r, cell in enumerate(self._steps) if r != rank]
        self._turn = Lock()
        self._watch = select.poll()
        self._looking = Lock()  # threads that wait may not poll together
        self._processes: dict[int, int] = {}  # descriptor of the process -> rank
        self._dead: set[int] = set()

    def meet(self, what: object, deadline: Deadline) -> None:
        """Post the next phase and return once everybody has; `what` names the operation in errors."""
        words = self.words
        step = self.step = self.step + 1
        if WEAKLY_ORDERED:
            self._fence()
        words[self._steps[self.rank]] = step
        for cell in self._peers:
            for _ in _SPINS:
                if words[cell] >= step:
                    break
            else:
                self.wait(self._behind, what, deadline)
                break
        if WEAKLY_ORDERED:
            self._fence()

    def wait(self, missing: Callable[[], Sequence[int]], what: object, deadline: Deadline) -> None:
        """Return once `missing` names no rank any more; a `DistBackendError` where it cannot come to that.

        That is: a missing rank has ended or left the group, a rank has given up, or the deadline is over.
        """
        idle = 0
        nap, longest = _NAPS
        for turn in count(1):
            if not missing():
                return
            idle = 0 if self.drive() else idle + 1
            if idle > _YIELDS or turn % _YIELDS == 0:
                self._look(missing, what, deadline)
            if idle > _YIELDS:
                sleep(nap)
                nap = min(2 * nap, longest)
            elif idle:
                os.sched_yield()

    def post(self, word: int, value: int) -> None:
        """Write a counter that announces what was written before."""
        if WEAKLY_ORDERED:
            self._fence()
        self.words[word] = value

    def read(self, word: int) -> int:
        """Read a counter that somebody else posts; what it announces may be read afterwards."""
        value = self.words[word]
        if WEAKLY_ORDERED:
            self._fence()
        return value

    def outgoing(self, peer: int) -> Ring:
        """This rank's end of the stream to a peer."""
        return Ring(self, self.rank, peer)

    def incoming(self, peer: int) -> Ring:
        """This rank's end of the stream from a peer."""
        return Ring(self, peer, self.rank)

    def abort(self, text: str) -> None:
        """Break the board: waiting ranks, this one too, raise what the text says."""
        if self.failed is None:
            self.failed = text
            place = self.layout.text(self.rank)
            told = text.encode()[: place.stop - place.start]
            self.view[place.start : place.start + len(told)] = told
            self.post(self.layout.state(self.rank), _FAILED)
            if not self.words[self._broken]:
                self.post(self._broken, self.rank + 1)

    def check(self, what: object) -> None:
        """Raise where the place has broken, also by another rank, of which this one has not heard yet."""
        if self.failed is not None or self.words[self._broken]:
            super().check(what)
            trouble = self._first_failure()
            assert trouble is not None, "somebody has broken it"
            self._fail_by(trouble, what)

    def watch(self) -> None:
        """Begin to watch the processes of the peers, which have all told their number."""
        for rank in range(self.size):
            pid = self.words[self.layout.pid(rank)]
            if pid and rank != self.rank:
                try:
                    descriptor = os.pidfd_open(pid)
                except ProcessLookupError:
                    self._dead.add(rank)
                    continue
                self._processes[descriptor] = rank
                self._watch.register(descriptor, select.POLLIN)

    def close(self) -> None:
        """Leave the group. Peers that still need this rank are told; nothing here may be used afterwards."""
        if self.failed is None:
            self.post(self.layout.state(self.rank), _LEFT)
            self.failed = "this rank has left the group"
        for descriptor in self._processes:
            os.close(descriptor)
        self._processes.clear()
        del self.words, self.bytes, self.view
        self._memory.close()

    def _behind(self) -> list[int]:
        """The ranks that have not posted the present phase."""
        words, step = self.words, self.step
        return [rank for rank, cell in enumerate(self._steps) if words[cell] < step]

    def _look(self, missing: Callable[[], Sequence[int]], what: object, deadline: Deadline) -> None:
        """Fail where waiting is in vain; what a rank posted before it ended still counts."""
        trouble = self._trouble(missing())
        if trouble is None and deadline.left() == 0:
            trouble = self._timed_out(deadline, missing())
        if trouble is not None and missing():
            self._fail_by(trouble, what)

    def _trouble(self, absent: Sequence[int]) -> Trouble | None:
        with self._looking:
            self._dead.update(self._processes[descriptor] for descriptor, _ in self._watch.poll(0))
        states = [self.read(self.layout.state(rank)) for rank in range(self.size)]
        ended = [rank for rank in absent if rank in self._dead and not states[rank]]
        if ended:
            return f"{self._names(ended)} has ended (process {self.words[self.layout.pid(ended[0])]})", ended
        if failure := self._first_failure():
            return failure
        if absent and all(states[rank] == _LEFT for rank in absent):
            return f"{self._names(absent)} has left the group", absent
        return None

    def _first_failure(self) -> Trouble | None:
        """What the first rank that has failed tells."""
        if not (count := self.read(self._broken)):
            return None
        told = bytes(self.view[self.layout.text(count - 1)]).rstrip(b"\0")
        return self._gave_up(count - 1, told.decode(errors="replace"))

    def _fence(self) -> None:
        with self._turn:
            pass
        with self._turn:
            pass


def connect(
    kind: type[Memory],
    store: Exchange,
    rank: int,
    size: int,
    deadline: Deadline,
    *,
    key: str = "memory",
    ranks: Sequence[int] | None = None,
) -> Board:
    """This rank's board of a group, once all of its `size` ranks are there. They find each other by `key`."""
    needed = Layout(size, kind.start).end
    if rank == 0:
        memory = kind.create(needed)
        store.set(key, memory.handle)
    else:
        memory = kind.open(store.get(key), needed)
    board = Board(memory, rank, size, ranks)
    try:
        board.words[board.layout.pid(rank)] = memory.pid
        board.meet("joining the group", deadline)
        memory.detach()
        board.watch()
    except BaseException:
        board.close()
        raise
    return board
