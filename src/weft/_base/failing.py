"""Errors that end a rank. They are reported before other ranks can notice that it leaves, and fail for want of it."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator

from weft.errors import LostWorkerError, PeerGoneError

_FAILED_AT = "_weft_failed_at"

Report = Callable[[BaseException | None], None]
"""Takes the error by which this rank seems to end, or None if it goes on after all."""


class _Reporter(threading.local):
    report: Report | None = None


# no cell: only texts and reports depend on it
_reporter = _Reporter()


def report_failures_by(report: Report | None) -> Report | None:
    """Set who is told of errors that seem to end this thread's rank; returns who was told before."""
    before, _reporter.report = _reporter.report, report
    return before


def before_leaving() -> None:
    """Report the error that is being handled, if there is one; called before peers notice that this rank leaves.

    That may be in a `finally` of the program, long before the error has come to the function that started the rank.
    """
    error = sys.exception()
    if error is not None and _reporter.report is not None:
        if not hasattr(error, _FAILED_AT):
            setattr(error, _FAILED_AT, time.time())
        _reporter.report(error)


def failed_at(error: BaseException) -> float:
    """When a rank began to leave because of an error, in seconds since the epoch; now, if it has not."""
    return getattr(error, _FAILED_AT, None) or time.time()


def follows_another(error: BaseException) -> bool:
    """Whether an error tells that another rank is missing, or was raised because of one that does.

    The clocks of hosts differ, and a rank that leaves may need longer to report its error than others need to miss it.
    So where errors of several ranks are known, one that follows another is not the first.
    """
    return any(
        isinstance(each, (LostWorkerError, PeerGoneError)) or getattr(each, "missing", ()) for each in _chain(error)
    )


def _chain(error: BaseException) -> Iterator[BaseException]:
    """The error, and those from which it came."""
    seen: set[int] = set()
    each: BaseException | None = error
    while each is not None and id(each) not in seen:
        seen.add(id(each))
        yield each
        each = each.__cause__ or (None if each.__suppress_context__ else each.__context__)


def goes_on() -> None:
    """Withdraw the report: the program has handled the error, and joins a group again."""
    if _reporter.report is not None:
        _reporter.report(None)
