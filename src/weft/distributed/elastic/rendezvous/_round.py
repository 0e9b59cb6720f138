"""The rounds of a rendezvous: who takes part, who waits, and what a node does next. Reads no clock and opens no socket.

All nodes share one `Round` and write it by compare-and-set. It holds no times, so that clocks need not agree: a node
notes by its own clock when it saw something change (`Seen`), and calls a peer dead whose beats stand still for long.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from enum import Enum, auto
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


@dataclass(frozen=True)
class Round:
    """What all nodes share."""

    number: int = 0
    complete: bool = False
    closed: bool = False
    limits: tuple[int, int] | None = None
    refused: tuple[int, int] | None = None
    """The other limits of a node that was therefore not let in."""
    participants: frozenset[Node] = frozenset()
    waiting: frozenset[Node] = frozenset()
    world: tuple[Node, ...] = ()
    """The participants at the moment of completion, by rank."""
    beats: Mapping[Node, int] = field(default_factory=dict)

    @property
    def lost(self) -> int:
        """How many members of a complete round have left it or died."""
        return len(self.world) - len(self.participants)


@dataclass(frozen=True)
class Seen:
    """The shared round with what one node noted by its own clock."""

    state: Round = Round()
    quorum_since: float | None = None
    heard: Mapping[Node, tuple[int, float]] = field(default_factory=dict)


class Goal(Enum):
    """What a node wants."""

    LEAVE = auto()
    JOIN = auto()
    BEAT = auto()
    CLOSE = auto()
    QUIT = auto()


class Verdict(Enum):
    """How far it is."""

    DONE = auto()
    WAIT = auto()
    CLOSED = auto()
    REFUSED = auto()


def observe(seen: Seen, state: Round, now: float, rules: Rules) -> Seen:
    """What a node knows after reading a state."""
    heard = {}
    for node, beat in state.beats.items():
        known = seen.heard.get(node)
        heard[node] = known if known and known[0] == beat else (beat, now)
    quorum = not state.complete and len(state.participants) >= rules.min_nodes
    kept = seen.quorum_since if seen.state.number == state.number else None
    return Seen(state, (now if kept is None else kept) if quorum else None, heard)


def excused(seen: Seen, blind: float) -> Seen:
    """What a node knows after so many seconds in which it could not read: silence in that time is nobody's fault."""
    heard = {node: (beat, since + blind) for node, (beat, since) in seen.heard.items()}
    return replace(seen, heard=heard)


def silent(seen: Seen, now: float, rules: Rules) -> frozenset[Node]:
    """The nodes that have not shown themselves for too long."""
    return frozenset(node for node, (_, since) in seen.heard.items() if now - since >= rules.silence)


def advance(seen: Seen, me: Node, goal: Goal, now: float, rules: Rules) -> tuple[Round, Verdict]:
    """The state that a node should write for its goal, and how far the goal is."""
    state = _without(seen.state, silent(seen, now, rules) - {me})
    match goal:
        case Goal.JOIN:
            return _join(state, seen, me, now, rules)
        case Goal.LEAVE if me in state.participants:
            moved = replace(state, participants=state.participants - {me}, waiting=state.waiting | {me})
            return _reopened(moved), Verdict.DONE
        case Goal.BEAT if me in state.beats:
            return replace(state, beats={**state.beats, me: state.beats[me] + 1}), Verdict.DONE
        case Goal.CLOSE:
            return replace(_without(state, {me}), closed=True), Verdict.DONE
        case Goal.QUIT:
            return _without(state, {me}), Verdict.DONE
    return state, Verdict.DONE


def late(state: Round, rules: Rules) -> int:
    """How many waiting nodes a new round would take in; nobody needs to be disturbed for the others."""
    if not state.complete or state.closed:
        return 0
    return min(len(state.waiting), rules.max_nodes - len(state.participants))


def _join(state: Round, seen: Seen, me: Node, now: float, rules: Rules) -> tuple[Round, Verdict]:
    limits = (rules.min_nodes, rules.max_nodes)
    if state.closed:
        return _without(state, {me}), Verdict.CLOSED
    if state.limits not in (None, limits):
        return replace(_without(state, {me}), refused=limits), Verdict.REFUSED
    if state.complete and me in state.participants:
        return state, Verdict.DONE
    state = replace(state, limits=limits, beats={**state.beats, me: state.beats.get(me, 0)})
    if state.complete or (me not in state.participants and len(state.participants) >= rules.max_nodes):
        return replace(state, waiting=state.waiting | {me}), Verdict.WAIT
    state = replace(state, participants=state.participants | {me}, waiting=state.waiting - {me})
    if not _may_complete(state, seen, now, rules):
        return state, Verdict.WAIT
    return replace(state, complete=True, world=tuple(sorted(state.participants))), Verdict.DONE


def _may_complete(state: Round, seen: Seen, now: float, rules: Rules) -> bool:
    """At the limit, or with enough nodes when the last call is over, or when all known nodes are back after a round."""
    count = len(state.participants)
    if count == rules.max_nodes:
        return True
    if count < rules.min_nodes:
        return False
    everyone_is_back = state.number > 0 and not state.waiting
    return everyone_is_back or (seen.quorum_since is not None and now - seen.quorum_since >= rules.last_call)


def _without(state: Round, gone: AbstractSet[Node]) -> Round:
    if not gone & (state.participants | state.waiting | set(state.beats)):
        return state
    return _reopened(
        replace(
            state,
            participants=state.participants - gone,
            waiting=state.waiting - gone,
            beats={node: beat for node, beat in state.beats.items() if node not in gone},
        )
    )


def _reopened(state: Round) -> Round:
    """The next round, once the last participant of a complete one has left."""
    if not state.complete or state.participants:
        return state
    return replace(state, number=state.number + 1, complete=False, world=())


def encode(state: Round) -> bytes:
    """The state as JSON; equal states give equal bytes."""
    return json.dumps({
        "number": state.number, "complete": state.complete, "closed": state.closed, "limits": state.limits,
        "refused": state.refused,
        "participants": sorted(state.participants), "waiting": sorted(state.waiting), "world": state.world,
        "beats": [(*node, beat) for node, beat in sorted(state.beats.items())],
    }).encode()  # fmt: skip


def decode(data: bytes) -> Round:
    """The state of `encode`; `RendezvousStateError` for anything else."""
    try:
        read = json.loads(data)
        return Round(
            number=int(read["number"]),
            complete=bool(read["complete"]),
            closed=bool(read["closed"]),
            limits=tuple(read["limits"]) if read["limits"] else None,
            refused=tuple(read["refused"]) if read["refused"] else None,
            participants=frozenset(Node(*node) for node in read["participants"]),
            waiting=frozenset(Node(*node) for node in read["waiting"]),
            world=tuple(Node(*node) for node in read["world"]),
            beats={Node(*node): int(beat) for *node, beat in read["beats"]},
        )
    except (ValueError, TypeError, KeyError) as error:
        raise RendezvousStateError(
            f"The rendezvous state is corrupt: expected JSON of a round, got {data[:80]!r}; "
            "start the job under another --rdzv-id"
        ) from error
