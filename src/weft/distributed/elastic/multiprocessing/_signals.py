"""Signals that ask the launching process to end, raised as exceptions."""

from __future__ import annotations

import logging
import os
import signal
import threading
from collections.abc import Callable
from types import FrameType
from typing import ClassVar, TypeAlias

_DEFAULT = "SIGTERM,SIGINT,SIGHUP,SIGQUIT"
Handler: TypeAlias = Callable[[int, FrameType | None], object] | int | None
"""What Python does at a signal; None where it has not set that."""

_log = logging.getLogger(__name__)


class SignalException(Exception):
    """The launching process was asked to end; `sigval` is the signal. Pass it on with `PContext.close(sigval)`."""

    def __init__(self, msg: str, sigval: signal.Signals) -> None:
        super().__init__(msg)
        self.sigval = sigval


class signals_held:
    """A block that signals do not interrupt: the first that has arrived is raised at its end."""

    arrived: ClassVar[list[int] | None] = None  # None outside of such a block

    def __enter__(self) -> None:
        signals_held.arrived = []

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        arrived, signals_held.arrived = signals_held.arrived, None
        if arrived and kind is None:
            _raise(arrived[0], None)


def _raise(signum: int, frame: FrameType | None) -> None:
    if signals_held.arrived is not None:
        signals_held.arrived.append(signum)
        return
    sigval = signal.Signals(signum)
    raise SignalException(f"Process {os.getpid()} got signal: {sigval}", sigval=sigval)


def raise_on_signals() -> dict[int, Handler]:
    """Let the signals of `TORCHELASTIC_SIGNALS_TO_HANDLE` raise `SignalException`; returns the previous handlers."""
    if threading.current_thread() is not threading.main_thread():
        _log.warning("signals are not handled, since the workers are not started by the main thread")
        return {}
    before: dict[int, Handler] = {}
    for name in os.environ.get("TORCHELASTIC_SIGNALS_TO_HANDLE", _DEFAULT).split(","):
        try:
            number = signal.Signals[name.strip()]
            before[number] = signal.signal(number, _raise)
        except (KeyError, ValueError, OSError) as error:
            _log.warning("TORCHELASTIC_SIGNALS_TO_HANDLE: signal %r cannot be handled: %r", name, error)
    return before


def restore_handlers(before: dict[int, Handler]) -> None:
    """Undo `raise_on_signals`, except for signals whose handler was changed since."""
    if threading.current_thread() is threading.main_thread():
        for number, handler in before.items():
            if signal.getsignal(number) is _raise:
                signal.signal(number, signal.SIG_DFL if handler is None else handler)  # None: it was not set by Python


def die_by_signals() -> None:
    """In a forked worker: let the signals that raise in the launching process end the worker, as by default."""
    for number in signal.valid_signals():
        if signal.getsignal(number) is _raise:
            signal.signal(number, signal.SIG_DFL)
    for number in signals_held.arrived or ():  # before this
        os.kill(os.getpid(), number)
