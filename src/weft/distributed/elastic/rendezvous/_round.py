"""The rounds of a rendezvous: participants, waiting nodes, and completion. Pure functions, without clock or sockets.

Each node writes its heartbeat under its own key. One node, the leader, reads all heartbeats and decides on the round.
Neither contains times, so clocks need not agree. The leader notes by its own clock when it has seen a heartbeat change
(`LeaderState`); a node whose heartbeat does not change for too long counts as dead.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from weft._base.types import Json
from weft.errors import RendezvousStateError


class Node(NamedTuple):
    """One launcher process."""

    addr: str
    pid: int
    local_id: int

    def __str__(self) -> str:
        return f"{self.addr}_{self.pid}_{self.local_id}"


class Rules(NamedTuple):
    """The limits of a round; times are in seconds."""

    min_nodes: int
    max_nodes: int
    last_call: float
    silence: float

    @property
    def limits(self) -> tuple[int, int]:
        """The smallest and largest number of nodes, which must be the same for all nodes."""
        return self.min_nodes, self.max_nodes


class Heartbeat(NamedTuple):
    """Shows by a growing `beat` that a node is alive. The node wants a place in a later round than `after`."""

    node: Node
    after: int
    beat: int

    def encode(self) -> bytes:
        """As JSON."""
        return json.dumps(self).encode()

    @classmethod
    def decode(cls, data: bytes) -> Heartbeat:
        """From the JSON of `encode`; `RendezvousStateError` for anything else."""
        try:
            node, after, beat = json.loads(data)
            return cls(Node(*node), int(after), int(beat))
        except (ValueError, TypeError) as error:
            raise corrupt("a heartbeat", data) from error


@dataclass(frozen=True)
class Round:
    """The participants of a round, and the waiting nodes. The leader writes it, and only a new leader reads it."""

    number: int = 0
    complete: bool = False
    participants: frozenset[Node] = frozenset()
    waiting: frozenset[Node] = frozenset()
    world: tuple[Node, ...] = ()
    """The participants at the moment of completion, by rank."""

    def encode(self) -> bytes:
        """As JSON; equal rounds give equal bytes."""
        return json.dumps(
            {
                "number": self.number,
                "complete": self.complete,
                "world": self.world,
                "lost": sorted(set(self.world) - self.participants),
                "participants": sorted(self.participants - set(self.world)),
                "waiting": sorted(self.waiting),
            }
        ).encode()

    @classmethod
    def decode(cls, data: bytes) -> Round:
        """From the JSON of `encode`; `RendezvousStateError` for anything else."""
        try:
            fields = json.loads(data)
            world = _nodes(fields["world"])
            participants = frozenset(world).difference(_nodes(fields["lost"])).union(_nodes(fields["participants"]))
            waiting = frozenset(_nodes(fields["waiting"]))
            return cls(int(fields["number"]), bool(fields["complete"]), participants, waiting, world)
        except (ValueError, TypeError, KeyError) as error:
            raise corrupt("a round", data) from error


@dataclass(frozen=True)
class LeaderState:
    """A round, with what the leader has noted by its own clock."""

    current: Round = Round()
    quorum_since: float | None = None
    """The time since which an open round has enough nodes."""
    last_heard: Mapping[Node, tuple[int, float]] = field(default_factory=dict[Node, tuple[int, float]])
    """The last heartbeat of each node, and the time when it was first seen."""


def observe(state: LeaderState, heartbeats: Iterable[Heartbeat], now: float) -> LeaderState:
    """The leader's state after reading these heartbeats."""
    last_heard: dict[Node, tuple[int, float]] = {}
    for node, _, beat in heartbeats:
        latest = state.last_heard.get(node)
        last_heard[node] = latest if latest and latest[0] == beat else (beat, now)
    return replace(state, last_heard=last_heard)


def after_outage(state: LeaderState, seconds: float) -> LeaderState:
    """The leader's state after a time without reads, which does not count as silence of the nodes."""
    heartbeats = {node: (beat, since + seconds) for node, (beat, since) in state.last_heard.items()}
    return replace(state, last_heard=heartbeats)


def silent(state: LeaderState, now: float, rules: Rules) -> frozenset[Node]:
    """The nodes whose heartbeats have not changed for too long."""
    return frozenset(node for node, (_, since) in state.last_heard.items() if now - since >= rules.silence)


def advance(state: LeaderState, heartbeats: Collection[Heartbeat], now: float, rules: Rules) -> LeaderState:
    """The next state, given the heartbeats of the living nodes. A node without one has left or is dead."""
    current = _reopened(_moved(state.current, heartbeats), rules)
    has_quorum = not current.complete and len(current.participants) >= rules.min_nodes
    before = state.quorum_since if state.current.number == current.number else None
    # The last call begins anew whenever a round falls below the least number of nodes.
    since = (now if before is None else before) if has_quorum else None
    if since is not None and _may_complete(current, now - since, rules):
        current = replace(current, complete=True, world=tuple(sorted(current.participants)))
    return replace(state, current=current, quorum_since=since)


def _moved(current: Round, heartbeats: Collection[Heartbeat]) -> Round:
    """The round in which new nodes, and members that want a later round, wait."""
    staying = {node for node, after, _ in heartbeats if node in current.participants and after < current.number}
    waiting = {node for node, *_ in heartbeats} - staying
    return replace(current, participants=frozenset(staying), waiting=frozenset(waiting))


def _reopened(current: Round, rules: Rules) -> Round:
    """The next round if a round is complete and its last member has left; an open round takes in waiting nodes.

    Former members are taken first.
    """
    # A round with members goes on; who comes late waits until its members have restarted.
    if current.complete and current.participants:
        return current
    old_world = frozenset(current.world)
    if current.complete:
        current = replace(current, number=current.number + 1, complete=False, world=())
    # Who had a place keeps it, so that a node too many disturbs nobody.
    order = sorted(current.waiting, key=lambda node: (node not in old_world, node))
    let_in = frozenset(order[: max(rules.max_nodes - len(current.participants), 0)])
    return replace(current, participants=current.participants | let_in, waiting=current.waiting - let_in)


def _may_complete(current: Round, quorum_seconds: float, rules: Rules) -> bool:
    """Whether an open round with enough nodes is complete: it is full, or not the first, or the last call is over."""
    return len(current.participants) == rules.max_nodes or current.number > 0 or quorum_seconds >= rules.last_call


def corrupt(expected: str, data: bytes) -> RendezvousStateError:
    """The error for shared state that is not the expected JSON."""
    return RendezvousStateError(
        f"The rendezvous state is corrupt: expected JSON of {expected}, got {data[:80]!r}; "
        "start the job under another --rdzv-id"
    )


def _nodes(entries: Iterable[Iterable[Json]]) -> tuple[Node, ...]:
    return tuple(Node(*entry) for entry in entries)
