"""How ranks meet at a store: the ranks 0 to `size - 1`, as often as they like, and each time with a number they share.

Ranks may have come to different numbers of meetings before: in other stores, in worlds of other sizes, or because one
of them has given up and tries again. So the store counts, for each rank and size, how often it has come, and ranks that
have come equally often meet. A meeting ends once and for all: it is held when the last rank has come, or fails when the
first rank gives up, which all others learn. A rank whose next meeting has failed without it goes on to the one after.

A rank waits in one meeting at a time, and rank 0 is a member of all. So if two ranks expect different numbers of ranks,
one of them finds that rank 0 waits for it elsewhere, and ends both meetings.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Sequence
from contextlib import suppress
from datetime import timedelta
from types import TracebackType

from weft._comm.deadline import Deadline
from weft._comm.stores import keys
from weft._comm.stores.store import PrefixStore, Store
from weft.errors import DistError, DistNetworkError, DistStoreError

_HELD = "held"
_ABSENT = "-"  # no rank's claim, so that comparing with it reads one without waiting
_LOOKS = (0.25, 4.0)  # seconds until a waiting rank looks where rank 0 is: at first, and at most
_DEPARTURE = timedelta(seconds=5)  # for which a failed rank, which may serve the store, waits until the others know


class Meeting:
    """One rank's part of the next meeting of `size` ranks at a place, a context.

    `store` is the part of the place for this meeting alone, and `name` its prefix. Within the block the rank waits in
    no other meeting. An error in the block before `wait` has returned fails the meeting. `what` is the function that
    users have called, and `error` the type of the errors: on entering, if two processes come as one rank; in `wait`, if
    the meeting fails.
    """

    name: str
    store: PrefixStore

    def __init__(self, place: Store, rank: int, size: int, what: str, error: type[DistError]) -> None:
        self.rank, self.size = rank, size
        self._place, self._what, self._error = place, what, error
        self._arrived = False

    def __enter__(self) -> Meeting:
        name = secrets.token_hex(8)
        # Random, so that a second process with this rank is told from a repeated request of this one.
        claim = json.dumps([self.size, 0, name])
        if self._place.compare_set(keys.joining(self.rank), "", claim) != claim.encode():
            raise self._error(
                f"two processes came as rank {self.rank}: give each its own rank (RANK in its environment), and each "
                "job a store or file of its own"
            )
        number = self._next_number()
        while self._part(self.size, number).check([keys.OUTCOME]):  # it has failed without this rank
            number = self._next_number()
        self.name, self.store = keys.meeting(self.size, number), self._part(self.size, number)
        self._place.set(keys.joining(self.rank), json.dumps([self.size, number, name]))
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if error is None:
            self._place.set(keys.joining(self.rank), "")
        elif not isinstance(error, DistNetworkError):  # the store answers
            with suppress(DistError):
                self._fail(f"rank {self.rank} could not join: {error if str(error) else type(error).__name__}")
                self._place.set(keys.joining(self.rank), "")

    def _next_number(self) -> int:
        return self._place.add(keys.occasion(self.size, self.rank), 1)

    def _part(self, size: int, number: int) -> PrefixStore:
        return PrefixStore(keys.meeting(size, number), self._place)

    def wait(self, mine: str, timeout: timedelta) -> list[bytes]:
        """Wait until all ranks have come; returns what each of them tells, by rank: `mine` is what this one tells."""
        members = [keys.member(peer) for peer in range(self.size)]
        self.store.set(members[self.rank], mine)
        self._arrived = True
        # By compare-and-set in `_decide`: a rank that gives up at this moment and the last one that comes agree on one
        # outcome.
        if self.store.add(keys.ARRIVED, 1) == self.size:
            self._decide(_HELD)
        if (outcome := self._outcome(members, timeout)) != _HELD:
            self._await_departure()
            by_others = "" if outcome.startswith(f"rank {self.rank} ") else f"rank {self.rank} waited in vain: "
            raise self._error(f"{self._what}: {by_others}{outcome}")
        return self.store.multi_get(members)

    def _fail(self, reason: str) -> None:
        """End the meeting, unless it has been held: all ranks that come to it fail for this reason."""
        if self._decide(reason) == reason:
            self._await_departure()

    def _decide(self, outcome: str) -> str:
        """End this meeting, unless it has ended; returns how it has ended."""
        return self.store.compare_set(keys.OUTCOME, "", outcome).decode()

    def _outcome(self, members: Sequence[str], timeout: timedelta) -> str:
        """How the meeting has ended. At the deadline, or if ranks cannot meet, it fails."""
        deadline, (pause, longest) = Deadline(timeout.total_seconds()), _LOOKS
        while True:
            left = deadline.left() or 0.0
            try:
                self.store.wait([keys.OUTCOME], timedelta(seconds=max(0.001, min(pause, left))))
                return self.store.get(keys.OUTCOME).decode()
            except DistStoreError:
                if deadline.expired:
                    return self._decide(self._lack(members, timeout))
                self._compare_sizes()
                pause = min(2 * pause, longest)

    def _lack(self, members: Sequence[str], timeout: timedelta) -> str:
        missing = [peer for peer, key in enumerate(members) if not self.store.check([key])]
        return (
            f"rank {self.rank} waited {timeout.total_seconds():g} s for {_ranks(missing)} of {self.size}; look whether "
            "they were started, reached the same address, and expect as many ranks"
        )

    def _compare_sizes(self) -> None:
        """End this meeting and that of rank 0, if that one is of another size and lacks this rank."""
        if self.rank == 0:
            return
        claim = self._place.compare_set(keys.joining(0), _ABSENT, _ABSENT).decode()
        if claim in ("", _ABSENT):
            return
        size, number, _ = json.loads(claim)
        theirs = self._part(size, number)
        if number and size != self.size and self.rank < size and not theirs.check([keys.OUTCOME]):
            differ = f"rank 0 has world_size={size} and rank {self.rank} world_size={self.size}; give all the same"
            self._decide(differ)
            theirs.compare_set(keys.OUTCOME, "", differ)

    def _await_departure(self) -> None:
        """Wait until all who have come to a failed meeting know why: they may need this process's store for that."""
        with suppress(DistError):
            if self.store.add(keys.ARRIVED, -1 if self._arrived else 0) <= 0:
                self.store.set(keys.DEPARTED, "1")
            self.store.wait([keys.DEPARTED], _DEPARTURE)


def _ranks(ranks: Sequence[int]) -> str:
    numbers = ", ".join(map(str, ranks[:8])) + (f" and {len(ranks) - 8} others" if len(ranks) > 8 else "")
    return f"rank {numbers}" if len(ranks) == 1 else f"ranks {numbers}"
