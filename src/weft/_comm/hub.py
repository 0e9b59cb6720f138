"""Threads that read pipes and run what comes through them: a leader and its followers.

The leader waits for events, reads the pipe that has one, runs what came itself, and leads on: nothing is handed from
thread to thread, and nobody else is woken. When that takes more than a moment, or is about to wait for something, a
follower is made the leader, and the old one becomes a follower when it has done. A keeper sees to that, and deals with
what may wait for a moment: sending what was put together, and watching answers that nobody waits for.

The pattern: Schmidt, O'Ryan, Pyarali, Kircher and Buschmann, Leader/Followers (PLoP 2000).
"""

from __future__ import annotations

import logging
import os
import select
import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from queue import Empty, SimpleQueue

from weft._comm.pipe import Pipe
from weft._comm.reader import Waiter
from weft._comm.spin import spin

_log = logging.getLogger(__name__)

_MOMENT = 0.0005  # seconds for which the keeper lets things gather, and after which it promotes a follower
_IN_A_ROW = 16  # functions that run before the leader looks for events again
_READ, _WRITE, _END = select.EPOLLIN, select.EPOLLOUT, select.EPOLLRDHUP
_ONCE = select.EPOLLONESHOT


class _Lead:
    """The duty to read, from when a thread is given it until another one is. `beat` is odd while the leader works."""

    __slots__ = ("beat",)

    def __init__(self) -> None:
        self.beat = 0


class _Thread(threading.local):
    lead: _Lead | None = None  # the last one that this thread was given
    deferred: list[Callable[[], None]] | None = None  # what is to be done when it reads no pipe any more


class Hub:
    """Up to `workers` functions run at a time; one thread more reads on meanwhile. Each thread begins with `enter`."""

    def __init__(self, name: str, workers: int, enter: Callable[[], None] = lambda: None) -> None:
        self._name = name
        self._enter = enter
        self.workers = workers
        self._epoll = select.epoll()
        self._bell = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._epoll.register(self._bell, _READ)
        self._pipes: dict[int, Pipe] = {}
        self._serving: set[Pipe] = set()  # pipes that are always read here, and not by waiting callers
        self._tasks: deque[Callable[[], None]] = deque()
        self._lock = threading.Lock()
        self._threads: list[threading.Thread] = []
        self._running = self._followers = 0
        self._promotions: SimpleQueue[_Lead | None] = SimpleQueue()  # each wakes a follower; None ends it
        self._watching = threading.Lock()  # who looks last whether somebody reads must be the last to say so
        self._closed = False
        self._chores: SimpleQueue[None] = SimpleQueue()
        self._resting = True
        self._late: deque[Callable[[], None]] = deque()
        self._thread = _Thread()
        self.alarm: Callable[[], float | None] = lambda: None
        """Called by the keeper; returns the seconds until it should be called again, None for not before `wake`."""
        self._keeper = threading.Thread(target=self._keep, name=f"{name}, keeper", daemon=True)
        self._lead = _Lead()
        self._start(self._lead)
        self._keeper.start()

    # --- pipes ---

    def add(self, pipe: Pipe, *, serve: bool) -> None:
        """Watch a pipe: always, or only for its end until it is passed to `soon`."""
        self._pipes[pipe.fileno()] = pipe
        if serve:
            self._serving.add(pipe)
        self._epoll.register(pipe.fileno(), _END | _ONCE | (_READ if serve else 0))

    def remove(self, pipe: Pipe) -> None:
        """Watch it no more."""
        if self._pipes.get(pipe.fileno()) is pipe:
            del self._pipes[pipe.fileno()]
            self._epoll.unregister(pipe.fileno())
        self._serving.discard(pipe)

    def flush(self, pipe: Pipe) -> None:
        """Send what the pipe holds back; what the system does not take follows when there is room."""
        pipe.flush()
        if pipe.backlog:
            self.watch(pipe)

    def soon(self, chore: Callable[[], None]) -> None:
        """Have the keeper do something in a moment. This may be called from a finalizer."""
        self._late.append(chore)
        self.wake()

    def settle(self) -> None:
        """Do at once what the keeper would do in a moment."""
        for _ in range(len(self._late)):
            try:
                chore = self._late.popleft()
            except IndexError:
                return  # the keeper was faster
            _do(chore)

    def poll(self, pipe: Pipe) -> None:
        """Send what a pipe holds back, and read it, unless somebody does."""
        pipe.flush()
        if pipe.why is None and not pipe.reader.taken:
            self.watch(pipe)

    def wake(self) -> None:
        """Have the keeper look around in a moment."""
        if self._resting:
            self._resting = False
            self._chores.put(None)

    def watch(self, pipe: Pipe) -> None:
        """Wait for the next event of a pipe: its end, room to write where that lacks, and bytes where some may come."""
        with self._watching, suppress(OSError, ValueError):  # it was removed
            pipe.reader.missed = False
            read = not pipe.reader.taken and (pipe in self._serving or bool(pipe.calls))
            self._epoll.modify(pipe.fileno(), _END | _ONCE | (_READ if read else 0) | (_WRITE if pipe.backlog else 0))

    def read_until(
        self, pipe: Pipe, done: Callable[[], bool], ring: Callable[[Waiter], None], end: float | None
    ) -> None:
        """Return when `done()`, when the pipe is lost, or at the time `end`; meanwhile this thread reads the pipe.

        Where another thread reads, this one waits at the waiter that `ring` is given, or for the reader lock.
        """
        if pipe.backlog:
            self.flush(pipe)
        self.yield_leadership()
        waiter: Waiter | None = None
        while not done() and pipe.why is None and (end is None or time.monotonic() < end):
            if pipe.reader.acquire(waiter):
                deferred = self._thread.deferred = []
                try:
                    while not deferred and not done() and pipe.why is None and (end is None or time.monotonic() < end):
                        pipe.read(wait=True)
                finally:
                    self._thread.deferred = None
                    self._leave(pipe)
                for function in deferred:
                    function()
            elif waiter is None:
                waiter = SimpleQueue()
                ring(waiter)
            else:
                with suppress(Empty):
                    waiter.get(timeout=None if end is None else max(0.0, end - time.monotonic()))
        if waiter is not None and pipe.reader.withdraw(waiter):
            self.watch(pipe)

    def _leave(self, pipe: Pipe) -> None:
        """Leave the reading to a caller that waits, else to the hub where something is to come."""
        if not pipe.reader.release() and (pipe.calls or pipe.reader.missed):
            self.watch(pipe)

    # --- functions ---

    def run(self, function: Callable[[], None]) -> None:
        """Have a function run in a thread of the hub: in the one that leads, when it has handed on all it read."""
        self._tasks.append(function)
        if self._thread.lead is not self._lead:
            os.eventfd_write(self._bell, 1)

    def yield_leadership(self) -> None:
        """Let another thread lead, if this one does: it is about to wait for something."""
        if (lead := self._thread.lead) is self._lead:
            self._promote(lead)

    def defer(self, function: Callable[[], None]) -> None:
        """Do something in this thread that may wait for other calls: as soon as it reads no pipe."""
        if self._thread.deferred is None:
            function()
        else:
            self._thread.deferred.append(function)

    @property
    def threads(self) -> int:
        """How many threads there are, besides the keeper."""
        return len(self._threads)

    @property
    def running(self) -> int:
        """How many functions run, or wait to."""
        return self._running + len(self._tasks)

    @property
    def busy(self) -> bool:
        """Whether functions wait to run."""
        return bool(self._tasks)

    def close(self, seconds: float) -> None:
        """Stop all threads; functions that still run after `seconds` are left alone."""
        with self._lock:
            self._closed = True
            threads = [self._keeper, *self._threads]
        self._chores.put(None)
        os.eventfd_write(self._bell, 1)
        for _ in threads:
            self._promotions.put(None)
        end = time.monotonic() + seconds
        for thread in threads:
            if thread is not threading.current_thread():
                thread.join(max(0.0, end - time.monotonic()))
        if not any(thread.is_alive() for thread in threads):
            self._epoll.close()
            os.close(self._bell)

    # --- threads ---

    def _start(self, lead: _Lead) -> None:
        name = f"{self._name}, thread {len(self._threads)}"
        thread = threading.Thread(target=self._serve, args=(lead,), name=name, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _promote(self, leader: _Lead | None) -> None:
        """Have a follower lead, unless one has done so since `leader` was seen to."""
        with self._lock:
            if self._lead is not leader or self._closed:
                return
            self._lead = _Lead()
            if self._followers:
                self._followers -= 1
                self._promotions.put(self._lead)
            else:
                self._start(self._lead)

    def _serve(self, lead: _Lead | None) -> None:
        self._enter()
        while lead is not None:
            self._thread.lead = lead
            more = bool(self._tasks)  # since the last one led
            while self._lead is lead and not self._closed:
                found = self._epoll.poll(0, 1) if more else self._next_event()
                lead.beat += 1
                self.wake()
                for fd, event in found:
                    self._attend(fd, event)
                more = self._work(lead)
                lead.beat += 1
            if self._closed:  # one that led before may look, too
                os.eventfd_write(self._bell, 1)
            while self._work(lead):
                pass
            with self._lock:
                self._followers += 1
            lead = self._promotions.get()

    def _next_event(self) -> list[tuple[int, int]]:
        """Wait for an event; the next one of a dialogue comes at once."""
        poll, found = self._epoll.poll, []
        spin(lambda: found.extend(poll(0, 1)) or found)
        return found or poll(-1, 1)

    def _attend(self, fd: int, event: int) -> None:
        """Write and read what a pipe is ready for. Where a caller reads it, that one finds its end itself."""
        pipe = self._pipes.get(fd)
        if pipe is None:
            if fd == self._bell:
                with suppress(BlockingIOError):  # two threads look for a moment when another one is promoted
                    os.eventfd_read(self._bell)
            return
        if event & _WRITE:
            pipe.flush()
        if event & ~_WRITE and pipe.reader.acquire():
            deferred = self._thread.deferred = []
            try:
                pipe.read(wait=False)
            finally:
                self._thread.deferred = None
                if not pipe.reader.release() and pipe.why is None:
                    self.watch(pipe)
            for function in deferred:
                _do(function)
        elif not event & ~_WRITE or pipe.backlog:
            self.watch(pipe)

    def _work(self, lead: _Lead) -> bool:
        """Run some of what waits to run; whether more may run now."""
        if not self._tasks:
            return False
        with self._lock:
            if self._running == self.workers:
                return False  # whoever ends next goes on with it
            self._running += 1
        for _ in range(_IN_A_ROW):
            try:
                function = self._tasks.popleft()
            except IndexError:
                break
            lead.beat += 2
            _do(function)
        with self._lock:
            self._running -= 1
        return bool(self._tasks)

    def _keep(self) -> None:
        self._enter()
        seconds: float | None = None
        seen = None
        while not self._closed:
            try:
                self._chores.get(timeout=seconds)
                time.sleep(_MOMENT)
            except Empty:
                pass
            self._resting = True
            self.settle()
            found = lead, beat = self._lead, self._lead.beat
            if found != seen:
                self.wake()
            elif beat % 2:
                self._promote(lead)
                self.wake()
            seen = found
            seconds = self._look_at_the_clock()

    def _look_at_the_clock(self) -> float | None:
        deferred = self._thread.deferred = []
        try:
            return self.alarm()
        finally:
            self._thread.deferred = None
            for function in deferred:
                self.run(function)


def _do(function: Callable[[], None]) -> None:
    """Run a function; what it raises is logged, and its thread goes on for others."""
    try:
        function()
    except BaseException:
        _log.exception("%r failed", function)
