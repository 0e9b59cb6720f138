"""Groups of ranks that fail on all ranks at once, and stay failed."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import NoReturn

from weft._comm.deadline import Deadline
from weft.errors import CollectiveArgumentsError, DistBackendError

Failure = tuple[str, Sequence[int]]
"""The text of an error, and the ranks that have caused it."""

_SECOND_HAND = re.compile(r"ranks? [\d, ]+ gave up: .*", re.DOTALL)


class AbortableGroup(ABC):
    """A group in which this process is `rank`. Errors show the numbers in `ranks`.

    `failed` is the text of the first failure, None before it.
    """

    rank: int
    ranks: tuple[int, ...]
    failed: str | None = None

    @abstractmethod
    def abort(self, text: str) -> None:
        """Fail the group: waiting ranks, including this one, raise an error with this text."""

    def check(self, what: object) -> None:
        """Raise if the group has failed; `what` names the operation that is about to begin."""
        if self.failed is not None:
            raise DistBackendError(f"the group cannot be used any more, make a new one: {self.failed}")

    def fail(self, text: str, missing: Sequence[int] = ()) -> NoReturn:
        """Fail the group on all ranks, and raise; `missing` are the ranks that have caused it."""
        self.abort(text)
        error = DistBackendError(text)
        error.missing = tuple(self.ranks[rank] for rank in missing)
        raise error

    def disagree(self, calls: Sequence[tuple[str, int]]) -> NoReturn:
        """Raise for calls that differ, each with a rank. All ranks know them, and raise this.

        Ranks that have called one operation with other arguments are still in step. If they have called different
        operations, one has probably called more than another, so the group has failed.
        """
        listing = ", ".join(f"rank {self.ranks[rank]} called {call}" for call, rank in calls)
        text = f"the ranks call different operations: {listing}"
        if len({call.partition("(")[0].partition(" ")[0] for call, _ in calls}) == 1:
            raise CollectiveArgumentsError(text)
        self._fail_alike(text)

    def _fail_alike(self, text: str) -> NoReturn:
        """Fail the group where all ranks do so with the same text."""
        self.fail(text)

    def _fail_by(self, failure: Failure, what: object) -> NoReturn:
        """Raise a failure in the operation `what`."""
        text, missing = failure
        self.fail(f"{what}, rank {self.ranks[self.rank]}: {text}", missing)

    def _timed_out(self, deadline: Deadline, missing: Sequence[int]) -> Failure:
        """The failure for ranks that have not come in time."""
        assert deadline.seconds is not None, "it has passed"
        text = f"Timed out waiting {round(1000 * deadline.seconds)}ms for {self._names(missing)}"
        return f"{text}; see what holds {'them' if len(missing) > 1 else 'it'} up, or allow more time", missing

    def _gave_up(self, rank: int, message: str) -> Failure:
        """The failure of a rank with a message; if the message quotes an earlier failure, that one."""
        first = _SECOND_HAND.search(message)
        return first[0] if first else f"{self._names([rank])} gave up: {message}", [rank]

    def _names(self, ranks: Sequence[int]) -> str:
        return ("rank " if len(ranks) == 1 else "ranks ") + ", ".join(str(self.ranks[rank]) for rank in ranks)
