"""What one node of a rendezvous does, step by step: without sockets, threads or clocks of its own.

Each act is a generator. It yields what it wants of the shared state (`Read`, `Swap`, `Get`, `Write`, …), gets the
answer sent, and returns what came of it; who carries the steps out is another's business (`_ledger.py`, and the
simulation of `bench/scale.py`). All costs of a node that is not the clerk are independent of the number of nodes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Mapping
from dataclasses import replace
from enum import Enum, auto
from typing import Any, NamedTuple, TypeVar

from weft.distributed.elastic.rendezvous._round import (
    Node,
    Notice,
    Placed,
    Presence,
    Round,
    Rules,
    Seen,
    decode,
    encode,
    excused,
    observe,
    settle,
    silent,
)
from weft.errors import RendezvousStateError

BELL = "bell"
"""The key by which nodes call the clerk."""

_NODES = "node/"
_SHORTEST_PAUSE, _LONGEST_PAUSE = 0.01, 0.25  # seconds between two looks of a node that waits for a place
_LONGEST_SILENCE_OF_READS = 1.0  # seconds between two looks of a node that has one
_BURST, _LOAD = 20_000, 2_000  # nodes beyond these many would look more often than so many times a second together

_T = TypeVar("_T")


class Read(NamedTuple):
    """The notice, and a token of its version."""


class Swap(NamedTuple):
    """Put up a notice where the token names the present version; answers what is there, its token, and success."""

    notice: Notice
    token: Any


class Get(NamedTuple):
    """The value of a key, None where there is none."""

    key: str


class Write(NamedTuple):
    """Set keys."""

    pairs: Mapping[str, bytes]


class Remove(NamedTuple):
    """Forget a key."""

    key: str


class Under(NamedTuple):
    """The keys that begin so, and their values."""

    prefix: str


Request = Read | Swap | Get | Write | Remove | Under
Steps = Generator[Request, Any, _T]


class Verdict(Enum):
    """How far a node is that wants a place."""

    DONE = auto()
    WAIT = auto()
    CLOSED = auto()
    REFUSED = auto()


class Member:
    """One node's view and acts. One act must end, or be given up, before the next begins.

    Attributes:
        notice: as it was read last.
        number, rank: of the round in which this node had a place last; -1 before the first one.
    """

    def __init__(self, node: Node, rules: Rules, clock: Callable[[], float]) -> None:
        self.notice = Notice()
        self.number = self.rank = -1
        self._node = node
        self._rules = rules
        self._clock = clock
        self._token: Any = None
        self._changed_at = clock()  # when the notice was last seen to change
        self._after = -1  # a place in a later round than this is wanted, or held
        self._present = False  # whether this node has told of itself, and its wish
        self._beat = 0
        self._passed_over = -1  # the round that was seen to have no place for this node
        self._seen = Seen()  # as the clerk
        self._settled = -1  # the beat of the notice that `_seen` belongs to

    @property
    def is_clerk(self) -> bool:
        """Whether this node settles rounds for all."""
        return self.notice.clerk == self._node and not self.notice.closed

    def excuse(self, blind: float) -> None:
        """Note that nothing could be read for so many seconds."""
        self._changed_at += blind
        self._seen = excused(self._seen, blind)

    # --- pauses ---

    def pauses(self) -> tuple[float, float]:
        """Seconds between two looks of a node that waits for a place: at first, and in the end."""
        nodes = max(self._rules.min_nodes, self.notice.members)
        return max(_SHORTEST_PAUSE, nodes / _BURST), max(_LONGEST_PAUSE, nodes / _LOAD)

    def reading_pause(self) -> float:
        """Seconds between two looks of a node that has a place, or is the clerk."""
        if self.is_clerk:
            return _LONGEST_SILENCE_OF_READS if self.notice.complete else _LONGEST_PAUSE
        return max(_LONGEST_SILENCE_OF_READS, self.notice.members / _LOAD)

    # --- acts of every node ---

    def look(self) -> Steps[None]:
        """Read the notice."""
        self._note(*(yield Read()))

    def leave(self) -> None:
        """Want a place in a later round than the one this node is in; `join` tells."""
        self._after, self._present = self.number, False

    def join(self) -> Steps[Verdict]:
        """Ask for a place in a later round than the last one, or see whether there is one."""
        yield from self.look()
        if self.notice.closed:
            yield from self.quit()
            return Verdict.CLOSED
        if self.notice.limits not in (None, self._rules.limits):
            yield from self._insist(lambda notice: replace(notice, refused=self._rules.limits))
            yield from self.quit()
            return Verdict.REFUSED
        if not self._present:
            yield Write({**self._presence(), BELL: b"1"})
            self._present = True
        elif (yield from self._has_place()):
            return Verdict.DONE
        return Verdict.WAIT

    def tend(self, *, beat: bool) -> Steps[None]:
        """Show that this node lives, if `beat` is due, look at the others, and do a clerk's work if it is one."""
        if beat and self._present:
            self._beat += 1
            yield Write(self._presence())
        yield from self.look()
        if self.is_vacant():
            yield from self._claim()
        if self.is_clerk:
            yield from self._serve()

    def quit(self) -> Steps[None]:
        """Leave the job, which goes on."""
        self._present = False
        yield Remove(self._key(self._node))
        while self.is_clerk:
            yield from self._serve(resign=True)
        yield Write({BELL: b"1"})

    def close(self) -> Steps[None]:
        """End the job for all."""
        yield from self.look()
        yield from self._insist(lambda notice: replace(notice, closed=True))
        self._present = False
        yield Remove(self._key(self._node))

    def participants(self) -> Steps[frozenset[Node]]:
        """Who takes part, by what the clerk has written; as many bytes as nodes, so for errors only."""
        return (yield from self._record()).participants

    def is_vacant(self) -> bool:
        """Whether this node is to be the clerk, since there is none, or one that shows no sign of life."""
        if self.is_clerk or self.notice.closed or not self._present:
            return False
        return self.notice.clerk is None or self._clock() - self._changed_at >= self._rules.silence

    def _has_place(self) -> Steps[bool]:
        notice = self.notice
        if not notice.complete or notice.placed is None or notice.number <= max(self._after, self._passed_over):
            return False
        place = yield Get(f"place/{notice.placed.clerk}/{self._node}")
        beat, _, rank = (place or b"").partition(b" ")
        if beat != b"%d" % notice.placed.beat:
            self._passed_over = notice.number
            return False
        self.number, self.rank = notice.number, int(rank)
        return True

    def _presence(self) -> dict[str, bytes]:
        return {self._key(self._node): Presence(self._node, self._after, self._beat).encode()}

    def _key(self, node: Node) -> str:
        return f"{_NODES}{node}"

    def _note(self, notice: Notice, token: Any) -> None:
        if (notice.beat, notice.clerk) != (self.notice.beat, self.notice.clerk):
            self._changed_at = self._clock()
        self.notice, self._token = notice, token

    def _swapped(self, notice: Notice) -> Steps[bool]:
        found, token, was_set = yield Swap(replace(notice, beat=self.notice.beat + 1), self._token)
        self._note(found, token)
        return was_set

    def _insist(self, change: Callable[[Notice], Notice]) -> Steps[None]:
        """Change the notice, over again until nobody came between."""
        while (changed := change(self.notice)) != self.notice and not (yield from self._swapped(changed)):
            pass

    # --- acts of the clerk ---

    def _claim(self) -> Steps[None]:
        """Become the clerk, unless another one is faster. One that has shown no sign of life counts as dead."""
        before = self.notice.clerk
        limits = self.notice.limits or self._rules.limits
        if not (yield from self._swapped(replace(self.notice, clerk=self._node, limits=limits))):
            return
        presences = yield from self._presences()
        seen = observe(Seen(), presences, self._clock())
        late = {node: (beat, -math.inf) for node, _, beat in presences if node == before}
        self._seen, self._settled = replace(seen, heard={**seen.heard, **late}), -1

    def _serve(self, *, resign: bool = False) -> Steps[None]:
        """Settle the round by what all nodes tell, and put up the notice of it."""
        if self._settled != self.notice.beat:  # another has written, or this one without hearing so
            self._seen = replace(self._seen, state=(yield from self._record()))
        yield Remove(BELL)
        presences = yield from self._presences()
        now = self._clock()
        seen = observe(self._seen, presences, now)
        dead = silent(seen, now, self._rules) - {self._node}
        seen = settle(seen, [presence for presence in presences if presence.node not in dead], now, self._rules)
        if (yield from self._published(seen.state, resign)):
            self._seen, self._settled = seen, self.notice.beat
            for node in dead:
                yield Remove(self._key(node))

    def _published(self, state: Round, resign: bool) -> Steps[bool]:
        notice = replace(self.notice.of(state), clerk=None if resign else self._node)
        if state != self._seen.state:
            first, second = (f"record/{self._node}/{at}" for at in range(2))
            record = second if self.notice.record == first else first
            pairs = {record: encode(state)}
            before = self._seen.state
            if state.complete and (before.number, before.complete) != (state.number, True):
                placed = Placed(self._node, self.notice.beat + 1)
                ranks = enumerate(state.world)
                pairs |= {f"place/{placed.clerk}/{node}": b"%d %d" % (placed.beat, rank) for rank, node in ranks}
                notice = replace(notice, placed=placed)
            yield Write(pairs)
            notice = replace(notice, record=record)
        return (yield from self._swapped(notice))

    def _presences(self) -> Steps[list[Presence]]:
        return [Presence.decode(data) for data in (yield Under(_NODES)).values()]

    def _record(self) -> Steps[Round]:
        key = self.notice.record
        if not key:
            return Round()
        data = yield Get(key)
        if data is None:
            raise RendezvousStateError(
                f"The rendezvous state is corrupt: {key} is named and not there; start the job under another --rdzv-id"
            )
        return decode(data)
