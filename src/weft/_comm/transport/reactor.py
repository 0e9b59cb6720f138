"""Threads that read pipes and run what comes through them: a leader and its followers.

The leader waits for events, reads the pipe that has one, runs the functions that arrived itself, and goes on leading:
nothing is passed from thread to thread, and no other thread is woken. When a function takes longer than half a
millisecond, or is about to block, a follower is promoted to leader, and the old leader becomes a follower once it is
done. A housekeeping thread promotes followers, and runs callbacks that may be delayed for a moment: sending batched
frames, and watching for answers that no thread waits for.

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
from itertools import count
from queue import Empty, SimpleQueue

from weft._comm.spin import spin
from weft._comm.transport.pipe import CallPipe
from weft._comm.transport.reader_lock import Waiter

_log = logging.getLogger(__name__)

_HOUSEKEEPING_DELAY = 0.0005  # seconds by which callbacks are batched, and after which a follower is promoted
_TASKS_PER_POLL = 16  # functions that run before the leader looks for events again
_READ, _WRITE, _END = select.EPOLLIN, select.EPOLLOUT, select.EPOLLRDHUP
_ONCE = select.EPOLLONESHOT


class _Leadership:
    """One term of a leader. `step` is the number of what it does now, or None while it waits for events."""

    __slots__ = ("step",)

    def __init__(self) -> None:
        self.step: int | None = None


class _ThreadLocal(threading.local):
    leadership: _Leadership | None = None  # the latest term of this thread
    deferred: list[Callable[[], None]] | None = None  # functions to run once it reads no pipe


class Reactor:
    """Runs up to `workers` functions at a time, while one more thread reads. Each thread calls `enter()` first."""

    def __init__(self, name: str, workers: int, enter: Callable[[], None] = lambda: None) -> None:
        self._name = name
        self._enter = enter
        self.workers = workers
        self._epoll = select.epoll()
        self._wake_fd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._epoll.register(self._wake_fd, _READ)
        self._pipes: dict[int, CallPipe] = {}
        self._served: set[CallPipe] = set()  # pipes that are always read here, and not by waiting callers
        self._tasks: deque[Callable[[], None]] = deque()
        self._lock = threading.Lock()
        self._threads: list[threading.Thread] = []
        self._running = self._followers = 0
        self._promotions: SimpleQueue[_Leadership | None] = SimpleQueue()  # each wakes a follower; None ends it
        self._rearm_lock = threading.Lock()  # makes checking whether a thread reads and arming the pipe one step
        self._closed = False
        self._housekeeping_wakeups: SimpleQueue[None] = SimpleQueue()
        self._housekeeping_idle = True
        self._deferred_callbacks: deque[Callable[[], None]] = deque()
        self._thread_local = _ThreadLocal()
        self.on_timer: Callable[[], float | None] = lambda: None
        """Called by the housekeeping thread; returns the seconds until the next call, or None to wait for `wake`."""
        self._housekeeper = threading.Thread(target=self._run_housekeeping, name=f"{name}, keeper", daemon=True)
        self._steps = count()
        self._leadership = _Leadership()
        self._start(self._leadership)
        self._housekeeper.start()

    # --- pipes ---

    def add(self, pipe: CallPipe, *, serve: bool) -> None:
        """Watch a pipe: with `serve` for all that arrives, else only for its end, until it is passed to `poll`."""
        self._pipes[pipe.fileno()] = pipe
        if serve:
            self._served.add(pipe)
        self._epoll.register(pipe.fileno(), _END | _ONCE | (_READ if serve else 0))

    def remove(self, pipe: CallPipe) -> None:
        """Stop watching a pipe."""
        if self._pipes.get(pipe.fileno()) is pipe:
            del self._pipes[pipe.fileno()]
            with suppress(OSError, ValueError):  # the pipe is freed while a reader reports its end
                self._epoll.unregister(pipe.fileno())
        self._served.discard(pipe)

    def flush(self, pipe: CallPipe) -> None:
        """Send the queued frames of a pipe; bytes that the system does not take follow when there is room."""
        pipe.flush()
        if pipe.backlog:
            self.watch(pipe)

    def call_soon(self, callback: Callable[[], None]) -> None:
        """Have the housekeeping thread call `callback` in a moment. This may be called from a finalizer."""
        self._deferred_callbacks.append(callback)
        self.wake()

    def run_callbacks(self) -> None:
        """Run the callbacks of `call_soon` now."""
        for _ in range(len(self._deferred_callbacks)):
            try:
                callback = self._deferred_callbacks.popleft()
            except IndexError:
                return  # the housekeeping thread has taken it
            _run_logged(callback)

    def poll(self, pipe: CallPipe) -> None:
        """Send the queued frames of a pipe, and have it read, unless a thread reads it already."""
        pipe.flush()
        if pipe.close_reason is None and not pipe.reader.held:
            self.watch(pipe)

    def wake(self) -> None:
        """Wake the housekeeping thread."""
        if self._housekeeping_idle:
            self._housekeeping_idle = False
            self._housekeeping_wakeups.put(None)

    def watch(self, pipe: CallPipe) -> None:
        """Arm a pipe for its next event: its end, room to write if frames are queued, and bytes to read.

        It is read if no other thread reads it, and if it is always read here or answers are due.
        """
        with self._rearm_lock, suppress(OSError, ValueError):  # it was removed
            pipe.reader.missed = False
            # A pipe whose answers a caller reads itself must not wake the leader for each of them.
            read = not pipe.reader.held and (pipe in self._served or bool(pipe.calls))
            self._epoll.modify(pipe.fileno(), _END | _ONCE | (_READ if read else 0) | (_WRITE if pipe.backlog else 0))

    def read_until(
        self, pipe: CallPipe, done: Callable[[], bool], notify_with: Callable[[Waiter], None], deadline: float | None
    ) -> None:
        """Read a pipe until `done()`, until it is closed, or until `deadline`, which is a `time.monotonic()`.

        While another thread reads it, this one waits on a waiter, which the reader lock wakes, or whoever has received
        it from `notify_with`.
        """
        if pipe.backlog:
            self.flush(pipe)
        self.yield_leadership()
        waiter: Waiter | None = None
        while not done() and pipe.close_reason is None and (deadline is None or time.monotonic() < deadline):
            if pipe.reader.acquire(waiter):
                deferred = self._thread_local.deferred = []
                try:
                    while (
                        # Callbacks may wait for answers on this very pipe, so it is given up before they run.
                        not deferred
                        and not done()
                        and pipe.close_reason is None
                        and (deadline is None or time.monotonic() < deadline)
                    ):
                        pipe.read(wait=True)
                finally:
                    self._thread_local.deferred = None
                    self._release_reader(pipe)
                for function in deferred:
                    function()
            elif waiter is None:
                waiter = SimpleQueue()
                notify_with(waiter)
            else:
                with suppress(Empty):
                    waiter.get(timeout=None if deadline is None else max(0.0, deadline - time.monotonic()))
        if waiter is not None and pipe.reader.withdraw(waiter):
            self.watch(pipe)

    def _release_reader(self, pipe: CallPipe) -> None:
        """Let a waiting caller read next, or, if there is none and answers are due, a thread of the reactor."""
        if not pipe.reader.release() and (pipe.calls or pipe.reader.missed):
            self.watch(pipe)

    # --- functions ---

    def run(self, function: Callable[[], None]) -> None:
        """Have a function run in a thread of the reactor, once the leader has delivered the frames that it has read."""
        self._tasks.append(function)
        # The leader itself looks for functions after it has read; waking it would be a system call for nothing.
        if self._thread_local.leadership is not self._leadership:
            os.eventfd_write(self._wake_fd, 1)

    def yield_leadership(self) -> None:
        """Let another thread lead if this one does, since it is about to block."""
        if (leadership := self._thread_local.leadership) is self._leadership:
            self._promote(leadership)

    def defer(self, function: Callable[[], None]) -> None:
        """Run a function that may wait for other calls: now, or once this thread no longer reads a pipe."""
        if self._thread_local.deferred is None:
            function()
        else:
            self._thread_local.deferred.append(function)

    @property
    def threads(self) -> int:
        """How many threads there are, without the housekeeping thread."""
        return len(self._threads)

    @property
    def running(self) -> int:
        """How many functions run or wait to run."""
        return self._running + len(self._tasks)

    @property
    def busy(self) -> bool:
        """Whether functions wait to run."""
        return bool(self._tasks)

    def close(self, seconds: float) -> None:
        """Stop all threads; functions that still run after `seconds` are left alone."""
        with self._lock:
            self._closed = True
            threads = [self._housekeeper, *self._threads]
        self._housekeeping_wakeups.put(None)
        os.eventfd_write(self._wake_fd, 1)
        for _ in threads:
            self._promotions.put(None)
        end = time.monotonic() + seconds
        for thread in threads:
            if thread is not threading.current_thread():
                thread.join(max(0.0, end - time.monotonic()))
        # A thread that still runs a function may use the descriptors; closed ones could belong to somebody else then.
        if not any(thread.is_alive() for thread in threads):
            self._epoll.close()
            os.close(self._wake_fd)

    # --- threads ---

    def _start(self, leadership: _Leadership) -> None:
        name = f"{self._name}, thread {len(self._threads)}"
        thread = threading.Thread(target=self._run_thread, args=(leadership,), name=name, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _promote(self, leader: _Leadership | None) -> None:
        """Make a follower or a new thread the leader, unless the term of `leader` has ended already."""
        with self._lock:
            # Two threads may notice at once that the leader blocks.
            if self._leadership is not leader or self._closed:
                return
            self._leadership = _Leadership()
            if self._followers:
                self._followers -= 1
                self._promotions.put(self._leadership)
            else:
                self._start(self._leadership)

    def _run_thread(self, leadership: _Leadership | None) -> None:
        self._enter()
        while leadership is not None:
            self._thread_local.leadership = leadership
            more = bool(self._tasks)  # which the last leader has left
            while self._leadership is leadership and not self._closed:
                events = self._epoll.poll(0, 1) if more else self._next_event()
                leadership.step = next(self._steps)
                self.wake()
                for fd, event in events:
                    self._handle_event(fd, event)
                more = self._run_tasks(leadership)
                leadership.step = None
            if self._closed:  # a former leader may still wait for an event
                os.eventfd_write(self._wake_fd, 1)
            while self._run_tasks(leadership):
                pass
            with self._lock:
                self._followers += 1
            leadership = self._promotions.get()

    def _next_event(self) -> list[tuple[int, int]]:
        """Wait for an event; spin first, since in a series of calls the next one comes at once."""
        poll = self._epoll.poll
        events: list[tuple[int, int]] = []
        spin(lambda: events.extend(poll(0, 1)) or events)
        return events or poll(-1, 1)

    def _handle_event(self, fd: int, event: int) -> None:
        """Write to and read from a pipe that is ready. If a caller reads it, that caller also notices its end."""
        pipe = self._pipes.get(fd)
        if pipe is None:
            if fd == self._wake_fd:
                with suppress(BlockingIOError):  # during a promotion two threads poll
                    os.eventfd_read(self._wake_fd)
            return
        if event & _WRITE:
            pipe.flush()
        if event & ~_WRITE and pipe.reader.acquire():
            deferred = self._thread_local.deferred = []
            try:
                pipe.read(wait=False)
            finally:
                self._thread_local.deferred = None
                if not pipe.reader.release() and pipe.close_reason is None:
                    self.watch(pipe)
            for function in deferred:
                _run_logged(function)
        elif not event & ~_WRITE or pipe.backlog:
            self.watch(pipe)

    def _run_tasks(self, leadership: _Leadership) -> bool:
        """Run some of the waiting functions; returns whether more may run now."""
        if not self._tasks:
            return False
        with self._lock:
            if self._running == self.workers:
                return False  # the next thread that has finished its functions takes them
            self._running += 1
        for _ in range(_TASKS_PER_POLL):
            try:
                function = self._tasks.popleft()
            except IndexError:
                break
            # Each function restarts the half millisecond after which the keeper takes this thread for blocked.
            leadership.step = next(self._steps)
            _run_logged(function)
        with self._lock:
            self._running -= 1
        return bool(self._tasks)

    def _run_housekeeping(self) -> None:
        self._enter()
        seconds: float | None = None
        last_step = None
        while not self._closed:
            try:
                self._housekeeping_wakeups.get(timeout=seconds)
                time.sleep(_HOUSEKEEPING_DELAY)
            except Empty:
                pass
            self._housekeeping_idle = True
            self.run_callbacks()
            leadership = self._leadership
            step = leadership.step
            if step is not None:
                # At the same step as half a millisecond ago, or longer: it blocks.
                if step == last_step:
                    self._promote(leadership)
                self.wake()
            last_step = step
            seconds = self._run_timer()

    def _run_timer(self) -> float | None:
        deferred = self._thread_local.deferred = []
        try:
            return self.on_timer()
        finally:
            self._thread_local.deferred = None
            for function in deferred:
                self.run(function)


def _run_logged(function: Callable[[], None]) -> None:
    """Run a function; an exception is logged, and the thread goes on."""
    try:
        function()
    except BaseException:
        _log.exception("%r failed", function)
