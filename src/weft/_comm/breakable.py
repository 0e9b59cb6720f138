"""What places where ranks meet have in common: they break for all ranks, once, and stay broken."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import NoReturn

from weft._comm.deadline import Deadline
from weft.errors import DistBackendError

Trouble = tuple[str, Sequence[int]]
"""Why waiting is in vain, and for which ranks."""

_SECOND_HAND = re.compile(r"ranks? [\d, ]+ gave up: .*", re.DOTALL)


class Breakable(ABC):
    """A place of ranks, of which this is `rank`; their numbers for errors are `ranks`.

    `failed` tells the first failure; None before it.
    """

    rank: int
    ranks: tuple[int, ...]
    failed: str | None = None

    @abstractmethod
    def abort(self, text: str) -> None:
        """Break the place: waiting ranks, this one too, raise what the text says."""

    def check(self, what: object) -> None:
        """Raise where the place has broken; `what` names the operation that is to begin."""
        if self.failed is not None:
            raise DistBackendError(f"the group cannot be used any more, make a new one: {self.failed}")

    def fail(self, text: str, missing: Sequence[int] = ()) -> NoReturn:
        """Break the place for all ranks, and raise; `missing` are the ranks to blame."""
        self.abort(text)
        error = DistBackendError(text)
        error.missing = tuple(self.ranks[rank] for rank in missing)
        raise error

    def _fail_by(self, trouble: Trouble, what: object) -> NoReturn:
        """Fail in the operation `what`."""
        text, missing = trouble
        self.fail(f"{what}, rank {self.ranks[self.rank]}: {text}", missing)

    def _timed_out(self, deadline: Deadline, missing: Sequence[int]) -> Trouble:
        """What to say where ranks have not come in time."""
        assert deadline.seconds is not None, "it has passed"
        text = f"Timed out waiting {round(1000 * deadline.seconds)}ms for {self._names(missing)}"
        return f"{text}; look what they do, or allow more time", missing

    def _gave_up(self, rank: int, told: str) -> Trouble:
        """What to say of a rank that has failed: what it told, or what that tells of the rank which failed first."""
        first = _SECOND_HAND.search(told)
        return first[0] if first else f"{self._names([rank])} gave up: {told}", [rank]

    def _names(self, ranks: Sequence[int]) -> str:
        return ("rank " if len(ranks) == 1 else "ranks ") + ", ".join(str(self.ranks[rank]) for rank in ranks)
