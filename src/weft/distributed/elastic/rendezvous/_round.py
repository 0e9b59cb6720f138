"""The rounds of a rendezvous: who takes part, who waits, and when a round is complete. Reads no clock, opens no socket.

Each node tells of itself under a key of its own (`Presence`). One of them, the clerk, reads what all tell, settles the
`Round`, and puts up a `Notice` whose size does not depend on their number; that is all that the others read. Neither
holds times, so that clocks need not agree: the clerk notes by its own clock when it saw a node's beat change (`Seen`),
and calls one dead whose beat stands still for long.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from weft.errors import RendezvousStateError


class Node(NamedTuple):
    """One launcher process."""

    addr: str
    pid: int
    local_id: int

    def __str__(self) -> str:
        return f"{self.addr}_{self.pid}_{self.local_id}"


class Rules(NamedTuple):
    """What a round needs; times are in seconds."""

    min_nodes: int
    max_nodes: int
    last_call: float
    silence: float

    @property
    def limits(self) -> tuple[int, int]:
        """The fewest and the most nodes, about which all must agree."""
        return self.min_nodes, self.max_nodes


class Presence(NamedTuple):
    """What a node tells of itself: that it lives, and wants a place in a round later than `after`."""

    node: Node
    after: int
    beat: int

    def encode(self) -> bytes:
        """As JSON."""
        return json.dumps(self).encode()

    @classmethod
    def decode(cls, data: bytes) -> Presence:
        """From the JSON of `encode`."""
        node, after, beat = json.loads(data)
        return cls(Node(*node), after, beat)


@dataclass(frozen=True)
class Round:
    """Who takes part. Only the clerk writes it, and only who becomes the clerk reads it."""

    number: int = 0
    complete: bool = False
    participants: frozenset[Node] = frozenset()
    waiting: frozenset[Node] = frozenset()
    world: tuple[Node, ...] = ()
    """The participants at the moment of completion, by rank."""


class Placed(NamedTuple):
    """By whom the members of a complete round were told their ranks, and at which beat of the notice."""

    clerk: Node
    beat: int


@dataclass(frozen=True)
class Notice:
    """What all nodes read, and replace by compare-and-set. Its size does not depend on how many they are."""

    number: int = 0
    complete: bool = False
    closed: bool = False
    limits: tuple[int, int] | None = None
    refused: tuple[int, int] | None = None
    """The other limits of a node that was therefore not let in."""
    members: int = 0
    waiting: int = 0
    size: int = 0
    """How many members a complete round had in the beginning."""
    clerk: Node | None = None
    beat: int = 0
    """Grows with each change, by which the clerk shows that it lives."""
    record: str = ""
    """Under which key the clerk has written the round."""
    placed: Placed | None = None

    @property
    def lost(self) -> int:
        """How many members of a complete round have left it or died."""
        return self.size - self.members if self.complete else 0

    def late(self, rules: Rules) -> int:
        """How many waiting nodes a new round would take in; nobody needs to be disturbed for the others."""
        if not self.complete or self.closed:
            return 0
        return min(self.waiting, rules.max_nodes - self.members)

    def of(self, state: Round) -> Notice:
        """The notice of a round."""
        members, waiting = len(state.participants), len(state.waiting)
        return replace(
            self, number=state.number, complete=state.complete, members=members, waiting=waiting, size=len(state.world)
        )


@dataclass(frozen=True)
class Seen:
    """A round with what the clerk noted by its own clock."""

    state: Round = Round()
    quorum_since: float | None = None
    heard: Mapping[Node, tuple[int, float]] = field(default_factory=dict)


def observe(seen: Seen, presences: Iterable[Presence], now: float) -> Seen:
    """What the clerk knows after reading what the nodes tell of themselves."""
    heard = {}
    for node, _, beat in presences:
        known = seen.heard.get(node)
        heard[node] = known if known and known[0] == beat else (beat, now)
    return replace(seen, heard=heard)


def excused(seen: Seen, blind: float) -> Seen:
    """What it knows after so many seconds in which it could not read: silence in that time is nobody's fault."""
    heard = {node: (beat, since + blind) for node, (beat, since) in seen.heard.items()}
    return replace(seen, heard=heard)


def silent(seen: Seen, now: float, rules: Rules) -> frozenset[Node]:
    """The nodes that have not shown themselves for too long."""
    return frozenset(node for node, (_, since) in seen.heard.items() if now - since >= rules.silence)


def settle(seen: Seen, presences: Collection[Presence], now: float, rules: Rules) -> Seen:
    """What comes of a round where these nodes live, and tell this. Who tells nothing has left or is dead."""
    state = _reopened(_moved(seen.state, presences), rules)
    quorum = not state.complete and len(state.participants) >= rules.min_nodes
    kept = seen.quorum_since if seen.state.number == state.number else None
    since = (now if kept is None else kept) if quorum else None
    if since is not None and _may_complete(state, now - since, rules):
        state = replace(state, complete=True, world=tuple(sorted(state.participants)))
    return replace(seen, state=state, quorum_since=since)


def _moved(state: Round, presences: Collection[Presence]) -> Round:
    """Members that want a later round, and all who are new, wait."""
    staying = {node for node, after, _ in presences if node in state.participants and after < state.number}
    waiting = {node for node, *_ in presences} - staying
    return replace(state, participants=frozenset(staying), waiting=frozenset(waiting))


def _reopened(state: Round, rules: Rules) -> Round:
    """The next round, once the last member of a complete one has left; an open one takes in those who wait.

    Those who were members come first.
    """
    if state.complete and state.participants:
        return state
    former = frozenset(state.world)
    if state.complete:
        state = replace(state, number=state.number + 1, complete=False, world=())
    order = sorted(state.waiting, key=lambda node: (node not in former, node))
    let_in = frozenset(order[: max(rules.max_nodes - len(state.participants), 0)])
    return replace(state, participants=state.participants | let_in, waiting=state.waiting - let_in)


def _may_complete(state: Round, quorate: float, rules: Rules) -> bool:
    """At the limit, or with enough nodes when the last call is over, or at once after a round, with all who live."""
    return len(state.participants) == rules.max_nodes or state.number > 0 or quorate >= rules.last_call


def encode(state: Round) -> bytes:
    """The round as JSON; equal ones give equal bytes."""
    return json.dumps({
        "number": state.number, "complete": state.complete, "world": state.world,
        "lost": sorted(set(state.world) - state.participants),
        "participants": sorted(state.participants - set(state.world)), "waiting": sorted(state.waiting),
    }).encode()  # fmt: skip


def decode(data: bytes) -> Round:
    """The round of `encode`; `RendezvousStateError` for anything else."""
    try:
        read = json.loads(data)
        world = _nodes(read["world"])
        participants = frozenset(world).difference(_nodes(read["lost"])).union(_nodes(read["participants"]))
        waiting = frozenset(_nodes(read["waiting"]))
        return Round(int(read["number"]), bool(read["complete"]), participants, waiting, world)
    except (ValueError, TypeError, KeyError) as error:
        raise _corrupt("a round", data) from error


def encode_notice(notice: Notice) -> bytes:
    """The notice as JSON; equal ones give equal bytes."""
    return json.dumps(vars(notice)).encode()


def decode_notice(data: bytes) -> Notice:
    """The notice of `encode_notice`; `RendezvousStateError` for anything else."""
    try:
        read = json.loads(data)
        for name in ("limits", "refused"):
            read[name] = tuple(read[name]) if read[name] else None
        read["clerk"] = Node(*read["clerk"]) if read["clerk"] else None
        read["placed"] = Placed(Node(*read["placed"][0]), read["placed"][1]) if read["placed"] else None
        return Notice(**read)
    except (ValueError, TypeError, KeyError) as error:
        raise _corrupt("a notice", data) from error


def _nodes(read: Iterable[Iterable]) -> tuple[Node, ...]:
    return tuple(Node(*node) for node in read)


def _corrupt(what: str, data: bytes) -> RendezvousStateError:
    return RendezvousStateError(
        f"The rendezvous state is corrupt: expected JSON of {what}, got {data[:80]!r}; "
        "start the job under another --rdzv-id"
    )
