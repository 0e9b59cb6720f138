"""Sections that signals do not interrupt, and signals that nothing swallows.

Python runs signal handlers of its own in the main thread, between any two instructions. What they raise (Ctrl-C's
`KeyboardInterrupt`, a time-out) ends whatever runs there. A few stretches of this package must not end half-way: from
the moment at which XLA takes buffers to the one at which results are in their place, there is no copy of a model to go
back to; and a function of jax that is left while it traces leaves jax's own state behind.

So a section replaces the handlers by one that only notes the signal. At the section's end, the signals that have come
meanwhile are handled. Nothing can be lost, since the replacement itself is what Python calls. Masking signals would
not do: XLA's threads get them then, and `_thread.interrupt_main` sends none.
"""

from __future__ import annotations

import _signal  # pyright: ignore[reportMissingModuleSource]  60 microseconds with `signal`, whose numbers are enumerations
import _thread
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from types import FrameType, TracebackType
from typing import Any

getsignal, set_handler = _signal.getsignal, _signal.signal
_FIRST_REALTIME = 32
PATIENCE = 1.0  # seconds for which a signal waits for what should not be cut off, and may wait for ever itself
LONGEST = 10.0  # seconds for which it waits at most, while the program goes on computing
_HANDLED = sorted(n for n in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP} if n < _FIRST_REALTIME)
# Ctrl-C's first: once it is replaced, hardly anything disturbs the replacement of the others.
_NUMBERS = (int(signal.SIGINT), *[int(n) for n in _HANDLED if n != signal.SIGINT])

Handler = Callable[[int, FrameType | None], Any]


# no cell: signals are handled in replays as elsewhere
class _Main:
    """The thread in which Python runs handlers: after a fork, the one that has forked."""

    ident = threading.main_thread().ident


class Section:
    """What `uninterrupted` is the only one of; sections may be nested, and do nothing in threads that get no signals.

    received  the signals that have come within, each with the frame in which it came, and when

    changes   how often a block has begun or ended: another thread sees by it whether the program goes on

    Apart from that it knows how many blocks the main thread is in, whether what follows them belongs to the section
    (`extend`: the number of this extension, or 0), which extension has lasted too long, and the handlers to put back.
    """

    __slots__ = (
        "_depth",
        "_extended",
        "_extensions",
        "_functions",
        "_handlers",
        "_overdue",
        "_replaced",
        "_watched",
        "changes",
        "received",
    )

    def __init__(self) -> None:
        self.changes = 0
        self._depth = 0
        self._extended = 0
        self._extensions = 0
        self._overdue = 0  # the extension that a further signal ends
        self._watched = 0  # the extension that a thread ends
        self.received: list[tuple[int, FrameType | None, float]] = []
        self._replaced: list[tuple[int, Handler]] = []
        self._handlers: tuple[Any, ...] = ()  # those of all `_NUMBERS`, at the last replacement
        self._functions: list[tuple[int, Handler]] = []  # of these, the functions

    def __enter__(self) -> None:
        if _thread.get_ident() == _Main.ident:
            if not (self._depth or self._extended):
                self._replace()
            self._depth += 1
            self.changes += 1

    def __exit__(self, *_: object) -> None:
        if _thread.get_ident() == _Main.ident:
            self._depth -= 1
            self.changes += 1
            if not (self._depth or self._extended):
                self._restore()
            elif not self._depth and self.received:
                self._end_extension_later(self.received[0][0])

    def poll(self) -> None:
        """Handle the signals that have come, at a place within the section where ending it loses nothing."""
        if self.received and _thread.get_ident() == _Main.ident:
            self._handle()

    def poll_waiting(self, started: float) -> None:
        """Handle the signals that have come, where that loses something, but waiting may never end.

        It has to have waited for `PATIENCE` since it `started` (by `time.monotonic`), and since the signal came: what
        came long before, in a step that takes seconds, must not cut off a wait that is about to end.
        """
        if not self.received or _thread.get_ident() != _Main.ident:
            return
        if time.monotonic() >= max(started, self.received[0][2]) + PATIENCE:
            self._handle()

    def extend(self) -> None:
        """Let no signal interrupt what follows until `end_extension`, in whatever function.

        It is for what a program does in several calls of which others must not be left out: between the exchange of
        gradients and the step that they are for, ranks would part for ever. A program that never ends it is
        interrupted all the same: by a second signal that comes `PATIENCE` after the first, or without one, once it
        computes nothing for so long, or after `LONGEST`.
        """
        if _thread.get_ident() == _Main.ident and not self._extended:
            if not self._depth:
                self._replace()
            self._extensions += 1
            self._extended = self._extensions

    def end_extension(self) -> None:
        """Handle the signals that have come since `extend`."""
        if self._extended and _thread.get_ident() == _Main.ident:
            self._extended = 0
            if not self._depth:
                self._restore()

    def on_signal(self, number: int, frame: FrameType | None = None) -> None:
        """What handlers are replaced by."""
        new = all(number != other for other, _, _ in self.received)  # the system, too, keeps a blocked signal once
        if new:
            self.received.append((number, frame, time.monotonic()))
        if self._extended and not self._depth:
            if self._overdue == self._extended:
                self.end_extension()
            elif new:
                self._end_extension_later(number)

    def set_overdue(self, extension: int) -> bool:
        """Let the next signal end an extension; False if that has ended.

        The number says which one: in a training, the next one has long begun when the thread that calls this wakes up.
        """
        self._overdue = extension
        return self._extended == extension

    def _end_extension_later(self, number: int) -> None:
        if self._watched != self._extended:
            self._watched = self._extended
            _thread.start_new_thread(_end_extension, (number, self._extended))

    @contextmanager
    def suspended(self) -> Generator[None]:
        """Let signals interrupt the block, which runs a user's function or waits for others."""
        depth = self._depth
        if not (depth or self._extended) or _thread.get_ident() != _Main.ident:
            yield
            return
        extended, self._extended = self._extended, 0
        self._depth = 0
        try:
            self._restore()
            yield
        finally:
            self._replace()
            self._depth, self._extended = depth, extended

    def _replace(self) -> None:
        handlers = tuple(map(getsignal, _NUMBERS))
        if handlers != self._handlers:
            self._handlers = handlers
            self._functions = [(n, handler) for n, handler in zip(_NUMBERS, handlers, strict=True) if callable(handler)]
        try:
            for entry in self._functions:
                self._replaced.append(entry)
                set_handler(entry[0], _on_signal)
        except BaseException:  # one that came before its own handler was replaced
            self._restore()
            raise

    def _restore(self) -> None:
        """Put all handlers back, then handle what has come."""
        errors: list[BaseException] = []
        while self._replaced:
            number, handler = self._replaced[-1]
            try:
                # A handler that was set within the section stays.
                if getsignal(number) is _on_signal:
                    set_handler(number, handler)
                self._replaced.pop()
            except BaseException as error:  # a signal whose own handler is back already
                errors.append(error)
        if errors:
            raise errors[0]
        if self.received:
            self._handle()

    def _handle(self) -> None:
        number, frame, _ = self.received.pop(0)
        handlers = dict(self._replaced)
        handler = handlers.get(number) or getsignal(number)
        try:
            if callable(handler):
                handler(number, frame)
        finally:
            if self.received:
                self._handle()


# no cell: signals are handled in replays as elsewhere
uninterrupted = Section()
"""`with uninterrupted:` is a block that no signal ends, in the main thread. It must not wait for anything without
`uninterrupted.suspended()`."""

received = uninterrupted.received
"""The signals that have come within the section: a loop that may take long tests this before it calls `poll`."""


_on_signal = uninterrupted.on_signal


def _end_extension(number: int, extension: int) -> None:
    """Send the main thread a signal once more, which ends an extension that has not ended by itself."""
    started = time.monotonic()
    while True:
        before = uninterrupted.changes
        time.sleep(PATIENCE)
        if not uninterrupted.set_overdue(extension):
            return
        if before == uninterrupted.changes or time.monotonic() > started + LONGEST:
            assert _Main.ident is not None, "it runs"
            signal.pthread_kill(_Main.ident, number)  # does nothing within a block


def _after_fork() -> None:
    """Make the thread that has forked the one of signals; if another one was in a section, end that here."""
    if _Main.ident != _thread.get_ident():
        _Main.ident = _thread.get_ident()
        uninterrupted.received.clear()
        uninterrupted._depth, uninterrupted._extended = 0, 0  # pyright: ignore[reportPrivateUsage]
        uninterrupted._restore()  # pyright: ignore[reportPrivateUsage]


os.register_at_fork(after_in_child=_after_fork)


# --- signals that arrive where Python ignores exceptions --------------------------------------------------------


def keep_ignored_interrupts() -> None:
    """Raise what a signal's handler raises, where Python would only print it, a moment later in the main thread.

    Python ignores exceptions in finalizers and in callbacks of the garbage collector, of which jax has one: about each
    thousandth interrupt of a program of small steps lands there.
    """
    sys.unraisablehook = _Hook(sys.unraisablehook)


class _Hook:
    def __init__(self, before: Callable[[Any], Any]) -> None:
        self._before = before

    def __call__(self, unraisable: Any, /) -> None:
        number = _signal_behind(unraisable.exc_value, unraisable.exc_traceback)
        if number is None:
            self._before(unraisable)
        else:
            _thread.start_new_thread(_interrupt_later, (number,))


def _interrupt_later(number: int) -> None:
    """Send the main thread a signal once it has left the hook, where a second exception would be lost for good."""
    time.sleep(1e-3)
    assert _Main.ident is not None, "it runs"
    signal.pthread_kill(_Main.ident, number)  # and not `interrupt_main`, which would not end a wait


def _signal_behind(error: BaseException | None, trace: TracebackType | None) -> int | None:
    """The signal whose handler has raised an exception, or None."""
    codes: list[Any] = []
    while trace is not None:
        codes.append(trace.tb_frame.f_code)
        trace = trace.tb_next
    handlers = {number: getsignal(number) for number in _NUMBERS}
    for number, handler in handlers.items():
        code = getattr(getattr(handler, "__func__", handler), "__code__", None)
        if code is not None and code in codes:
            return number
    if type(error) is not KeyboardInterrupt:
        return None
    return next((n for n, handler in handlers.items() if handler is signal.default_int_handler), None)
