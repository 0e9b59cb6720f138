"""A group of ranks that share memory: counters, calls, data, and barriers.

The ranks go through *phases* together. In each phase, a rank writes its own area, posts the number of the phase, waits
until all ranks have posted it, and reads the areas of the others. Areas alternate between two halves: a rank that
writes for phase t + 2 has seen all ranks post t + 1, so they have finished reading the areas of phase t.

Memory order. A post must not become visible before the data written ahead of it, and data must not be read before the
counter that announces it. x86 does not reorder stores with stores, or loads with loads, so plain accesses are enough
there (NumPy and memoryview move an aligned 64-bit word by one instruction). On other processors `_memory_fence` is
called in between: it acquires and releases a lock twice. A release is a store-release and the next acquire a
load-acquire; these two are never reordered (on ARM: STLR before LDAR). Earlier accesses stay before the first, and
later ones after the second.
"""

from __future__ import annotations

import os
import platform
import select
from collections.abc import Callable, Sequence
from itertools import count
from threading import Lock
from time import monotonic, sleep
from typing import Protocol

import numpy as np

from weft._base.interrupts import uninterrupted
from weft._comm.deadline import Deadline
from weft._comm.groups.abortable_group import AbortableGroup, Failure
from weft._comm.shared_memory.layout import RegionLayout
from weft._comm.shared_memory.memory import Memory
from weft._comm.shared_memory.ring import Ring
from weft._comm.stores import keys

WEAKLY_ORDERED = platform.machine() not in {"x86_64", "AMD64", "i686"}
_SPINS = range(50)  # reads of a counter before the processor is yielded: about 3 µs
_YIELDS = 1000  # times that the processor is yielded before sleeping
_PAUSES = (20e-6, 1e-3)  # seconds of sleep: at first, and at most
_FAILED, _LEFT = 1, 2


class KeyValueStore(Protocol):
    """A store through which ranks find each other."""

    def set(self, key: str, value: bytes, /) -> None:
        """Publish a value."""
        ...

    def get(self, key: str, /) -> bytes:
        """The value, waiting until there is one."""
        ...


class MemoryGroup(AbortableGroup):
    """One rank's part of the group. `ranks` are the numbers that errors show, by default 0, 1, …

    A failure is final, since counters no longer agree: every later use raises at once, with the text of the first
    failure. While a rank waits, it calls `progress`, which moves messages and returns whether any moved.
    """

    def __init__(self, memory: Memory, rank: int, size: int, ranks: Sequence[int] | None = None) -> None:
        self.rank = rank
        self.size = size
        self.ranks = tuple(ranks or range(size))
        self.layout = RegionLayout(size, memory.start)
        self.step = 0
        self.failed: str | None = None
        self.progress: Callable[[], bool] = lambda: False
        self._memory = memory
        self.view = memory.view()
        self.words = self.view.cast("Q")
        self.bytes = np.frombuffer(self.view, np.uint8)
        self._broken = self.layout.broken
        self._steps = [self.layout.step(r) for r in range(size)]
        self._peers = [cell for r, cell in enumerate(self._steps) if r != rank]
        self._fence_lock = Lock()
        self._pidfds = select.poll()
        self._poll_lock = Lock()  # waiting threads must not poll at the same time
        self._rank_of_pidfd: dict[int, int] = {}  # by process descriptor
        self._dead: set[int] = set()

    def barrier(self, what: object, deadline: Deadline) -> None:
        """Post the next phase and return once all ranks have; `what` names the operation in errors."""
        words = self.words
        step = self.step = self.step + 1
        if WEAKLY_ORDERED:
            self._memory_fence()
        words[self._steps[self.rank]] = step
        for cell in self._peers:
            # Reading a counter again takes a fraction of what yielding the processor does, and mostly all ranks are
            # there within microseconds.
            for _ in _SPINS:
                if words[cell] >= step:
                    break
            else:
                self.wait(self._ranks_behind, what, deadline)
                break
        if WEAKLY_ORDERED:
            self._memory_fence()

    def wait(self, missing: Callable[[], Sequence[int]], what: object, deadline: Deadline) -> None:
        """Return once `missing()` is empty.

        `DistBackendError` if a missing rank has ended or left the group, a rank has failed, or the deadline has passed.
        """
        idle, started = 0, monotonic()
        pause, longest = _PAUSES
        for attempt in count(1):
            if not missing():
                return
            idle = 0 if self.progress() else idle + 1
            # Rarely, since asking for dead peers is a system call.
            if idle > _YIELDS or attempt % _YIELDS == 0:
                uninterrupted.poll_waiting(started)
                self._check_peers(missing, what, deadline)
            if idle > _YIELDS:
                sleep(pause)
                pause = min(2 * pause, longest)
            elif idle:
                os.sched_yield()

    def post(self, word: int, value: int) -> None:
        """Write a counter that announces the data written before."""
        if WEAKLY_ORDERED:
            self._memory_fence()
        self.words[word] = value

    def read(self, word: int) -> int:
        """Read a counter of another rank; the data that it announces may be read afterwards."""
        value = self.words[word]
        if WEAKLY_ORDERED:
            self._memory_fence()
        return value

    def outgoing(self, peer: int) -> Ring:
        """This rank's end of the stream to a peer."""
        return Ring(self, self.rank, peer)

    def incoming(self, peer: int) -> Ring:
        """This rank's end of the stream from a peer."""
        return Ring(self, peer, self.rank)

    def abort(self, text: str) -> None:
        """Fail the group: waiting ranks, including this one, raise an error with this text."""
        if self.failed is None:
            self.failed = text
            span = self.layout.text(self.rank)
            encoded = text.encode()[: span.stop - span.start]
            self.view[span.start : span.start + len(encoded)] = encoded
            self.post(self.layout.state(self.rank), _FAILED)
            # The first failure is the cause; those that follow from it must not hide it.
            if not self.words[self._broken]:
                self.post(self._broken, self.rank + 1)

    def check(self, what: object) -> None:
        """Raise if the group has failed, also if another rank has failed it since the last check."""
        if self.failed is not None or self.words[self._broken]:
            super().check(what)
            failure = self._first_failure()
            assert failure is not None, "somebody has broken it"
            self._fail_by(failure, what)

    def watch(self) -> None:
        """Start to watch the processes of the peers, which have all published their process ids."""
        for rank in range(self.size):
            pid = self.words[self.layout.pid(rank)]
            if pid and rank != self.rank:
                try:
                    descriptor = os.pidfd_open(pid)
                # It has ended since it joined.
                except ProcessLookupError:
                    self._dead.add(rank)
                    continue
                self._rank_of_pidfd[descriptor] = rank
                self._pidfds.register(descriptor, select.POLLIN)

    def close(self) -> None:
        """Leave the group. Peers that still wait for this rank fail; the group cannot be used afterwards."""
        if self.failed is None:
            self.post(self.layout.state(self.rank), _LEFT)
            self.failed = "this rank has left the group"
        for descriptor in self._rank_of_pidfd:
            os.close(descriptor)
        self._rank_of_pidfd.clear()
        del self.words, self.bytes, self.view
        self._memory.close()

    def _ranks_behind(self) -> list[int]:
        """The ranks that have not posted the present phase."""
        words, step = self.words, self.step
        return [rank for rank, cell in enumerate(self._steps) if words[cell] < step]

    def _check_peers(self, missing: Callable[[], Sequence[int]], what: object, deadline: Deadline) -> None:
        """Fail if the missing ranks can no longer come; what a rank has posted before its end still counts."""
        failure = self._find_failure(missing())
        if failure is None and deadline.left() == 0:
            failure = self._timed_out(deadline, missing())
        # Asked again: what a rank had posted just before its end counts.
        if failure is not None and missing():
            self._fail_by(failure, what)

    def _find_failure(self, absent: Sequence[int]) -> Failure | None:
        with self._poll_lock:
            self._dead.update(self._rank_of_pidfd[descriptor] for descriptor, _ in self._pidfds.poll(0))
        states = [self.read(self.layout.state(rank)) for rank in range(self.size)]
        ended = [rank for rank in absent if rank in self._dead and not states[rank]]
        # Before the reports of others: who misses a dead rank may give up sooner than this one notices the end, and the
        # end is the cause.
        if ended:
            return f"{self._names(ended)} has ended (process {self.words[self.layout.pid(ended[0])]})", ended
        if failure := self._first_failure():
            return failure
        if absent and all(states[rank] == _LEFT for rank in absent):
            return f"{self._names(absent)} has left the group", absent
        return None

    def _first_failure(self) -> Failure | None:
        """The failure of the rank that has failed first."""
        if not (count := self.read(self._broken)):
            return None
        message = bytes(self.view[self.layout.text(count - 1)]).rstrip(b"\0")
        return self._gave_up(count - 1, message.decode(errors="replace"))

    def _memory_fence(self) -> None:
        with self._fence_lock:
            pass
        with self._fence_lock:
            pass


def connect(
    kind: type[Memory],
    store: KeyValueStore,
    rank: int,
    size: int,
    deadline: Deadline,
    *,
    key: str = keys.MEMORY,
    ranks: Sequence[int] | None = None,
) -> MemoryGroup:
    """This rank's part of a group, once all of its `size` ranks have joined. They find each other by `key`."""
    needed = RegionLayout(size, kind.start).end
    if rank == 0:
        memory = kind.create(needed)
        store.set(key, memory.handle)
    else:
        memory = kind.open(store.get(key), needed)
    group = MemoryGroup(memory, rank, size, ranks)
    try:
        group.words[group.layout.pid(rank)] = memory.pid
        group.barrier("joining the group", deadline)
        # All have joined: nobody else may open the memory by its descriptor any more.
        memory.detach()
        group.watch()
    except BaseException:
        group.close()
        raise
    return group
