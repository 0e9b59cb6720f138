"""The operations of one node of a rendezvous (`_requests.py`). It has no sockets or threads, and is given its clock.

Nodes read the status, which has a fixed size. One of them is the leader: it decides on rounds from the heartbeats of
all nodes. If there is no leader, or it has been silent for too long, the first node that writes itself into the status
by compare-and-set becomes the leader. For all other nodes, the cost of an operation does not depend on their number.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from enum import Enum, auto

from weft._comm.stores import keys
from weft.distributed.elastic.rendezvous._backend import Token
from weft.distributed.elastic.rendezvous._requests import (
    DeleteKey,
    GetKey,
    Operation,
    ReadStatus,
    Scan,
    SetKeys,
    SwapStatus,
)
from weft.distributed.elastic.rendezvous._round import (
    Heartbeat,
    LeaderState,
    Node,
    Round,
    Rules,
    advance,
    after_outage,
    observe,
    silent,
)
from weft.distributed.elastic.rendezvous._status import Assignment, Status
from weft.errors import RendezvousStateError

_SHORTEST_PAUSE, _LONGEST_PAUSE = 0.01, 0.25  # seconds between two reads of a node that waits for a place in a round
_POLL_SECONDS = 1.0  # between two reads of a node with a place
_FIRST_READS_PER_SECOND, _READS_PER_SECOND = 20_000, 2_000  # of all nodes together


class JoinState(Enum):
    """The outcome of an attempt to join a round."""

    DONE = auto()
    WAIT = auto()
    CLOSED = auto()
    REFUSED = auto()


class Member:
    """One node's view and operations. An operation must end, or be abandoned, before the next one begins.

    Attributes:
        status: the status that was read last.
        number, rank, world_size: those of the last round in which this node had a place; before it, -1, -1 and 0.
    """

    def __init__(self, node: Node, rules: Rules, clock: Callable[[], float]) -> None:
        self.status = Status()
        self.number = self.rank = -1
        self.world_size = 0
        self._node = node
        self._rules = rules
        self._clock = clock
        self._token: Token = None
        self._changed_at = clock()  # when a change of the status was last seen
        self._after = -1  # this node wants, or has, a place in a later round than this
        self._registered = False  # whether this node's heartbeat exists and shows the present `_after`
        self._heartbeats = 0
        self._skipped = -1  # a round that has no place for this node
        self._leader_state = LeaderState()
        self._leader_version = -1  # the version of the status that this state belongs to

    @property
    def leads(self) -> bool:
        """Whether this node is the leader."""
        return self.status.leader == self._node and not self.status.closed

    @property
    def should_lead(self) -> bool:
        """Whether this node should try to become the leader: there is none, or it has been silent for too long."""
        if self.leads or self.status.closed or not self._registered:
            return False
        return self.status.leader is None or self._clock() - self._changed_at >= self._rules.silence

    @property
    def join_pauses(self) -> tuple[float, float]:
        """Seconds between two reads of a node that waits for a place: the first pause, and the longest one."""
        nodes = max(self._rules.min_nodes, self.status.num_members)
        return max(_SHORTEST_PAUSE, nodes / _FIRST_READS_PER_SECOND), max(_LONGEST_PAUSE, nodes / _READS_PER_SECOND)

    @property
    def poll_seconds(self) -> float:
        """Seconds between two reads of a node that has a place or is the leader."""
        if self.leads:
            return _POLL_SECONDS if self.status.complete else _LONGEST_PAUSE
        return max(_POLL_SECONDS, self.status.num_members / _READS_PER_SECOND)

    @property
    def num_late(self) -> int:
        """The number of waiting nodes that a new round would take in."""
        return self.status.num_late(self._rules)

    @property
    def num_lost(self) -> int:
        """The number of members of this node's round that have left; 1 if there is a later round without this node."""
        if self.status.closed:
            return 0
        return self.status.num_lost if self.status.number == self.number else 1

    def note_outage(self, seconds: float) -> None:
        """Take into account that nothing could be read for this time."""
        self._changed_at += seconds
        self._leader_state = after_outage(self._leader_state, seconds)

    def leave_round(self) -> None:
        """Ask for a place in a later round than the present one. `join` then publishes this."""
        self._after, self._registered = self.number, False

    # --- operations of every node ---

    def read(self) -> Operation[None]:
        """Read the status."""
        self._note(*(yield ReadStatus()))

    def join(self) -> Operation[JoinState]:
        """Ask for a place in a later round than the last one, or check whether there is one."""
        yield from self.read()
        if self.status.closed:
            yield from self.quit()
            return JoinState.CLOSED
        # The limits of nodes decide when a round is complete: with different ones, nodes would disagree about it. The
        # refused limits are written so that the others can say why the job has ended.
        if self.status.limits not in (None, self._rules.limits):
            yield from self._change(lambda status: replace(status, refused=self._rules.limits))
            yield from self.quit()
            return JoinState.REFUSED
        if not self._registered:
            # The leader waits for the key, so it takes in a new node at once instead of at its next look.
            yield SetKeys({**self._heartbeat(), keys.WAKE: b"1"})
            self._registered = True
        elif (yield from self._has_place()):
            return JoinState.DONE
        return JoinState.WAIT

    def tick(self, *, beat: bool) -> Operation[None]:
        """Write a heartbeat if `beat`, read the status, and do the leader's work if this node is the leader."""
        if beat and self._registered:
            self._heartbeats += 1
            yield SetKeys(self._heartbeat())
        yield from self.read()
        if self.should_lead:
            yield from self._campaign()
        if self.leads:
            yield from self._lead()

    def quit(self) -> Operation[None]:
        """Leave the job, which continues without this node."""
        self._registered = False
        yield DeleteKey(keys.heartbeat(self._node))
        # Resigning tells the others at once; otherwise they would wait until the leader has been silent for too long.
        while self.leads:
            yield from self._lead(resign=True)
        yield SetKeys({keys.WAKE: b"1"})

    def close(self) -> Operation[None]:
        """End the job for all nodes."""
        yield from self.read()
        yield from self._change(lambda status: replace(status, closed=True))
        self._registered = False
        yield DeleteKey(keys.heartbeat(self._node))

    def participants(self) -> Operation[frozenset[Node]]:
        """The participants, as the leader has written them. For errors only: their size grows with the number."""
        return (yield from self._written_round()).participants

    def _has_place(self) -> Operation[bool]:
        status = self.status
        if not status.complete or status.assignment is None or status.number <= max(self._after, self._skipped):
            return False
        place = yield GetKey(keys.rank_of(status.assignment.leader, self._node))
        version, _, rank = (place or b"").partition(b" ")
        # A rank of an earlier round, or of an assignment whose status another leader has overwritten, is still under
        # the key.
        if version != b"%d" % status.assignment.version:
            self._skipped = status.number
            return False
        self.number, self.rank, self.world_size = status.number, int(rank), status.world_size
        return True

    def _heartbeat(self) -> dict[str, bytes]:
        return {keys.heartbeat(self._node): Heartbeat(self._node, self._after, self._heartbeats).encode()}

    def _note(self, status: Status, token: Token) -> None:
        # Times are those of this node's clock alone: it notes when it has seen a change, as clocks of nodes need not
        # agree.
        if (status.version, status.leader) != (self.status.version, self.status.leader):
            self._changed_at = self._clock()
        self.status, self._token = status, token

    def _swap(self, status: Status) -> Operation[bool]:
        """Replace the status that was read last; False if another node has replaced it."""
        present, token, was_set = yield SwapStatus(replace(status, version=self.status.version + 1), self._token)
        self._note(present, token)
        return was_set

    def _change(self, change: Callable[[Status], Status]) -> Operation[None]:
        """Change the status; repeated until no other node has changed it in between."""
        while (changed := change(self.status)) != self.status and not (yield from self._swap(changed)):
            pass

    # --- operations of the leader ---

    def _campaign(self) -> Operation[None]:
        """Become the leader, unless another node is faster. The old leader counts as dead until it sends heartbeats."""
        old_leader = self.status.leader
        limits = self.status.limits or self._rules.limits
        if not (yield from self._swap(replace(self.status, leader=self._node, limits=limits))):
            return
        heartbeats = yield from self._read_heartbeats()
        state = observe(LeaderState(), heartbeats, self._clock())
        # A leader that was stopped goes on later. Its old heartbeat must not make it a member until it writes a new
        # one.
        dead = {node: (beat, -math.inf) for node, _, beat in heartbeats if node == old_leader}
        self._leader_state, self._leader_version = replace(state, last_heard={**state.last_heard, **dead}), -1

    def _lead(self, *, resign: bool = False) -> Operation[None]:
        """Decide on the round from all heartbeats, and publish it. With `resign`, this node then stops leading."""
        # The leader's own notes are only good for the status that it has written itself; a call whose answer was lost
        # may have been carried out.
        if (
            self._leader_version != self.status.version
        ):  # written by another node, or by this one in a call that has failed
            self._leader_state = replace(self._leader_state, current=(yield from self._written_round()))
        # Deleted before the heartbeats are read: a node that wakes the leader in between is seen now, or wakes it
        # again.
        yield DeleteKey(keys.WAKE)
        heartbeats = yield from self._read_heartbeats()
        now = self._clock()
        state = observe(self._leader_state, heartbeats, now)
        dead = silent(state, now, self._rules) - {self._node}
        state = advance(state, [heartbeat for heartbeat in heartbeats if heartbeat.node not in dead], now, self._rules)
        if (yield from self._publish(state.current, resign)):
            self._leader_state, self._leader_version = state, self.status.version
            for node in dead:
                yield DeleteKey(keys.heartbeat(node))

    def _publish(self, current: Round, resign: bool) -> Operation[bool]:
        """Write a round and the ranks of its members, and then a status that refers to them."""
        status = replace(self.status.with_round(current), leader=None if resign else self._node)
        before = self._leader_state.current
        if current != before:
            # The round grows with the number of nodes, so the status, which all read, only has its key.
            status = replace(status, round_key=self._free_round_key())
            pairs = {status.round_key: current.encode()}
            if current.complete and (before.number, before.complete) != (current.number, True):
                assignment = Assignment(self._node, self.status.version + 1)
                status = replace(status, assignment=assignment)
                for rank, node in enumerate(current.world):
                    pairs[keys.rank_of(self._node, node)] = b"%d %d" % (assignment.version, rank)
            # First the data and then the status that names it: a leader that dies in between leaves nothing that others
            # would read.
            yield SetKeys(pairs)
        return (yield from self._swap(status))

    def _free_round_key(self) -> str:
        """A key of this leader's that the status does not refer to, since others may be reading the other one."""
        first, second = keys.rounds_of(self._node)
        return second if self.status.round_key == first else first

    def _read_heartbeats(self) -> Operation[list[Heartbeat]]:
        return [Heartbeat.decode(data) for data in (yield Scan(keys.HEARTBEATS)).values()]

    def _written_round(self) -> Operation[Round]:
        key = self.status.round_key
        if not key:
            return Round()
        data = yield GetKey(key)
        if data is None:
            raise RendezvousStateError(
                f"The rendezvous state is corrupt: {key} is named and not there; start the job under another --rdzv-id"
            )
        return Round.decode(data)
