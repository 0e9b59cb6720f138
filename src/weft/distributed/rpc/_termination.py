"""Termination detection: how the workers of a job find out that its work is over.

The work is over when no call is pending, no function runs, and in two successive rounds the workers together have
served as many calls as they have sent, with the same number in both rounds (Mattern's four-counter method). A worker
that ends before it was asked for its report is left out, and so are the calls to and from it (`_call_counts.py`).

The first living worker is the leader. In each round it queries all others for their counts, and at the end it tells
them that the work is over. Both go through a tree: a worker that is asked for a range of workers splits the range, and
asks the first worker of each part for that part; if it has ended, the next one. Each worker watches the one before it,
and becomes the leader when there is none. A worker is queried only by workers before it, so there is no deadlock, even
if there are two leaders for a moment.

This module has no connections or clocks: `detect_termination` yields steps, and is sent their outcomes.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Any, NamedTuple, TypeAlias, TypeVar

from weft._base.types import Arg
from weft._comm.tree import split
from weft.distributed.rpc._call_counts import Counts, bits

_FIRST_PAUSE, _LONGEST_PAUSE = 0.001, 0.25  # seconds between rounds while work is not over

T = TypeVar("T")

Numbers = frozenset[int]


class Report(NamedTuple):
    """What some workers have sent and served together, and which of them have ended."""

    counts: Counts
    ended: Numbers

    @property
    def balanced(self) -> bool:
        """Whether no call is in flight, provided that a second round gives the same report."""
        sent, served, running, _, peers = self.counts
        return sent == served and not running and not peers & bits(self.ended)


# --- events ---


class Query(NamedTuple):
    """A worker before this one asks for a `Report` of the workers from this one to number `stop`.

    If it gives the numbers of workers that have `ended`, the work is over, and the report is empty. `reply` is used by
    the caller.
    """

    stop: int
    ended: Numbers | None
    reply: Arg


class Ended(NamedTuple):
    """A worker that is watched has ended."""

    number: int


# --- steps ---


class Watch(NamedTuple):
    """Watch a worker."""

    number: int


class Await(NamedTuple):
    """Wait for a `Query` or an `Ended`, at most this many seconds (then the outcome is None) or without limit."""

    seconds: float | None


class FinishCalls(NamedTuple):
    """Wait for the answers to this worker's own calls; the outcome is its `Counts`."""


class Ask(NamedTuple):
    """Query the first worker of each part for that part; the outcome is the reports, None for ended workers."""

    parts: list[range]
    ended: Numbers | None


class SendReport(NamedTuple):
    """Answer a query."""

    query: Query
    report: Report


Step = Watch | Await | FinishCalls | Ask | SendReport
Steps: TypeAlias = Generator[Step, Any, T]
"""Steps, which are sent their outcomes, and what they lead to."""

_EMPTY = Report(Counts(0, 0, 0), frozenset())


def detect_termination(me: int, size: int) -> Steps[Numbers]:
    """The steps of worker `me` of `size` until the work is over; returns the numbers of workers that ended before that.

    The docstrings of the steps describe their outcomes.
    """
    last, pause = None, 0.0
    event: Query | Ended | None = Ended(me)
    watched = me  # no worker is watched yet
    while True:
        match event:
            case Ended(number) if number == watched:
                watched -= 1
                if watched >= 0:
                    yield Watch(watched)
            case Query(stop, ended) if ended is not None:
                yield from _ask_all(range(me + 1, stop), ended)
                yield SendReport(event, _EMPTY)
                return ended
            case Query(stop):
                yield SendReport(event, (yield from _report(me, stop)))
                if watched < 0:  # a worker before this one is alive after all
                    watched = me - 1
                    yield Watch(watched)
            case Ended():
                pass  # of a worker that is no longer watched
            case None:
                report = yield from _report(me, size)
                # Those before this one have ended, or they would have asked it.
                report = report._replace(ended=report.ended.union(range(me)))
                if report == last and report.balanced:
                    yield from _ask_all(range(me + 1, size), report.ended)
                    return report.ended
                pause = min(2 * pause, _LONGEST_PAUSE) or _FIRST_PAUSE if report == last else 0.0
                last = report
        event = yield Await(pause if watched < 0 else None)


def _report(me: int, stop: int) -> Steps[Report]:
    """The report of this worker and those after it, up to number `stop`."""
    counts = yield FinishCalls()
    reports, ended = yield from _ask_all(range(me + 1, stop), None)
    return Report(
        counts.plus(*(report.counts for report in reports)), ended.union(*(report.ended for report in reports))
    )


def _ask_all(numbers: range, over: Numbers | None) -> Steps[tuple[list[Report], Numbers]]:
    """Ask some workers; returns their reports, and the numbers of those that should have been asked but have ended."""
    answers, ended = list[Report](), set[int]()
    parts: list[range] = split(numbers)
    while parts:
        replies: list[Report | None] = yield Ask(parts, over)
        answers += [reply for reply in replies if reply is not None]
        gone = [part for part, reply in zip(parts, replies, strict=True) if reply is None]
        # Only the first of each part was asked; those after it are asked in its place.
        ended.update(part.start for part in gone)
        parts = [part[1:] for part in gone if len(part) > 1]
    return answers, frozenset(ended)
