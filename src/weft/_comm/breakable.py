"""What places where ranks meet have in common: they break for all ranks, once, and stay broken."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import NoReturn

from weft.errors import DistBackendError

_SECOND_HAND = re.compile(r"ranks? [\d, ]+ gave up: .*", re.DOTALL)


class Breakable(ABC):
    """A place of ranks, whose numbers for errors are `ranks`. `failed` tells the first failure, None before it."""

    ranks: tuple[int, ...]
    failed: str | None = None

    @abstractmethod
    def abort(self, text: str) -> None:
        """Break the place: waiting ranks, this one too, raise what the text says."""

    def check(self, what: object) -> None:
        """Raise where the place has broken; `what` names the operation that is to begin."""
        if self.failed is not None:
            raise DistBackendError(f"the group cannot be used any more, make a new one: {self.failed}")

    def fail(self, text: str) -> NoReturn:
        """Break the place for all ranks, and raise."""
        self.abort(text)
        raise DistBackendError(text)

    def _gave_up(self, rank: int, told: str) -> str:
        """What to say of a rank that has failed: what it told, or what that tells of the rank which failed first."""
        first = _SECOND_HAND.search(told)
        return first[0] if first else f"{self._names([rank])} gave up: {told}"

    def _names(self, ranks: Sequence[int]) -> str:
        return ("rank " if len(ranks) == 1 else "ranks ") + ", ".join(str(self.ranks[rank]) for rank in ranks)
