"""Signals that a process has inherited as ignored, as jobs in the background of a shell do."""

from __future__ import annotations

import signal


def restore_defaults(*numbers: signal.Signals) -> None:
    """Have those of the signals that are ignored do what they do by default; in the main thread."""
    for number in numbers:
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)
