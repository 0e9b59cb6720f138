"""How the workers of a job find out that its work is over, and tell each other.

It is over when nobody waits for a call, nothing runs, and in two rounds one after the other all workers together have
served as many calls as they have made, the same number both times (Mattern's four-counter method). Who ends without
having been asked is left out, and so are the calls that it has made or served (`_traffic.py`).

The first worker that lives leads. In each round it asks all others for their counts, and in the end it tells them; both
go through a tree: who is asked for a range of workers asks the first of each part of it for that part, and where that
one has ended, the next. Each worker watches the one before it, and leads when there is none. Only those before a worker
ask it, so that nobody waits in a circle, even where two lead for a moment.

These are decisions alone, without connections or clocks: `take_part` yields what is to be done, and gets what came of
it.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Any, NamedTuple

from weft._comm.tree import split
from weft.distributed.rpc._traffic import Counts, bits

_FIRST_PAUSE, _LONGEST_PAUSE = 0.001, 0.25  # seconds between rounds while something still runs

Numbers = frozenset[int]


class Report(NamedTuple):
    """What some workers have made and served together, and which of them have ended."""

    counts: Counts
    ended: Numbers

    @property
    def balanced(self) -> bool:
        """Whether nothing may be under way: it is not where a second round says the same."""
        made, served, running, _, peers = self.counts
        return made == served and not running and not peers & bits(self.ended)


# --- what happens to a worker ---


class Query(NamedTuple):
    """A worker before this one asks for a `Report` of this one and those after it, before number `stop`.

    Or, with the numbers of those that have `ended`, it says that the work is over; then the report is empty.
    `reply` is whatever the answer needs.
    """

    stop: int
    ended: Numbers | None
    reply: Any


class Ended(NamedTuple):
    """A worker that was watched has ended."""

    number: int


# --- what a worker does ---


class Watch(NamedTuple):
    """Watch a worker."""

    number: int


class Await(NamedTuple):
    """Wait for a `Query` or an `Ended`, for some seconds (then None) or for as long as it takes."""

    seconds: float | None


class Settle(NamedTuple):
    """Wait for the answers to this worker's own calls; gives its `Counts`."""


class Ask(NamedTuple):
    """Ask the first of each part for the whole part, as a `Query` says; gives the answers, None of who has ended."""

    parts: list[range]
    ended: Numbers | None


class Answer(NamedTuple):
    """Answer a query."""

    query: Query
    report: Report


Step = Watch | Await | Settle | Ask | Answer
_EMPTY = Report(Counts(0, 0, 0), frozenset())


def take_part(me: int, size: int) -> Generator[Step, Any, Numbers]:
    """The part of worker `me` of `size` until the work is over; returns the numbers of those that ended before it was.

    Each step gets what its class says that it gives.
    """
    last, pause = None, 0.0
    watched, event = me, Ended(me)  # nobody is watched yet
    while True:
        match event:
            case Ended(number) if number == watched:
                watched -= 1
                if watched >= 0:
                    yield Watch(watched)
            case Query(stop, ended) if ended is not None:
                yield from _ask_all(range(me + 1, stop), ended)
                yield Answer(event, _EMPTY)
                return ended
            case Query(stop):
                yield Answer(event, (yield from _report(me, stop)))
                if watched < 0:  # somebody before this one lives after all
                    watched = me - 1
                    yield Watch(watched)
            case None:
                report = yield from _report(me, size)
                report = report._replace(ended=report.ended.union(range(me)))
                if report == last and report.balanced:
                    yield from _ask_all(range(me + 1, size), report.ended)
                    return report.ended
                pause = min(2 * pause, _LONGEST_PAUSE) or _FIRST_PAUSE if report == last else 0.0
                last = report
        event = yield Await(pause if watched < 0 else None)


def _report(me: int, stop: int) -> Generator[Step, Any, Report]:
    """The report of this worker and those after it."""
    counts = yield Settle()
    reports, ended = yield from _ask_all(range(me + 1, stop), None)
    return Report(
        counts.plus(*(report.counts for report in reports)), ended.union(*(report.ended for report in reports))
    )


def _ask_all(numbers: range, over: Numbers | None) -> Generator[Step, Any, tuple[list[Report], Numbers]]:
    """Ask some workers; returns the answers, and the numbers of those that were to be asked and have ended."""
    answers, ended, parts = list[Report](), set[int](), split(numbers)
    while parts:
        replies = yield Ask(parts, over)
        answers += [reply for reply in replies if reply is not None]
        gone = [part for part, reply in zip(parts, replies, strict=True) if reply is None]
        ended.update(part.start for part in gone)
        parts = [part[1:] for part in gone if len(part) > 1]
    return answers, frozenset(ended)
