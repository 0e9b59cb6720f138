"""Errors that end a rank. They are reported before other ranks can notice that it leaves, and fail for want of it."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable

Report = Callable[[BaseException | None], None]
"""Takes the error by which this rank seems to end, or None if it goes on after all."""


class _Reporter(threading.local):
    report: Report | None = None


_reporter = _Reporter()


def report_failures_by(report: Report | None) -> None:
    """Set who is told of errors that seem to end this thread's rank."""
    _reporter.report = report


def before_leaving() -> None:
    """Report the error that is being handled, if there is one; called before peers notice that this rank leaves.

    That may be in a `finally` of the program, long before the error has come to the function that started the rank.
    """
    error = sys.exception()
    if error is not None and _reporter.report is not None:
        _reporter.report(error)


def goes_on() -> None:
    """Withdraw the report: the program has handled the error, and joins a group again."""
    if _reporter.report is not None:
        _reporter.report(None)
