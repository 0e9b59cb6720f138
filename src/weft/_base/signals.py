"""Signals that a process ignores by inheritance, such as background jobs of a shell do."""

from __future__ import annotations

import signal


def restore_defaults(*numbers: signal.Signals) -> None:
    """Restore the default handlers of those of the signals that are ignored. Call it in the main thread."""
    for number in numbers:
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)
