"""The rounds of a rendezvous, without sockets or clocks: what the leader decides, and what nodes do, in any order."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.distributed.elastic.shared_state import SharedState
from weft.distributed.elastic.rendezvous._member import JoinState, Member
from weft.distributed.elastic.rendezvous._round import (
    Heartbeat,
    LeaderState,
    Node,
    Round,
    Rules,
    after_outage,
    observe,
    silent,
)
from weft.distributed.elastic.rendezvous._status import Assignment, Status
from weft.errors import RendezvousStateError

RULES = Rules(min_nodes=2, max_nodes=3, last_call=30.0, silence=15.0)
A, B, C, D = (Node(f"10.0.0.{at}", 100 + at, 0) for at in range(1, 5))


class Cluster:
    """Nodes over one state; time goes by hand. The first one that acts is the leader."""

    def __init__(self, rules=RULES):
        self.rules, self.shared, self.now, self.members = rules, SharedState(), 0.0, {}

    @property
    def status(self):
        return self.shared.status

    @property
    def state(self):
        return Round.decode(self.shared.values[self.status.round_key]) if self.status.round_key else Round()

    def member(self, node, rules=None):
        if node not in self.members:
            self.members[node] = Member(node, rules or self.rules, lambda: self.now)
        return self.members[node]

    def tick(self, *nodes):
        for node in nodes:
            self.shared.run(self.member(node).tick(beat=True))

    def lead(self):
        """Have the leader work, where it lives."""
        if self.status.leader in self.members:
            self.tick(self.status.leader)

    def join(self, node, rules=None):
        verdict = self.shared.run(self.member(node, rules).join())
        self.tick(node)
        self.lead()
        return self.shared.run(self.member(node).join()) if verdict is JoinState.WAIT else verdict

    def again(self, node):
        self.member(node).leave_round()
        return self.join(node)

    def quit(self, node):
        self.shared.run(self.members.pop(node).quit())
        self.lead()

    def die(self, node):
        del self.members[node]

    def pass_time(self, seconds, *alive):
        """Let time pass while these nodes show themselves."""
        for _ in range(int(seconds)):
            self.now += 1
            self.tick(*alive)

    def form(self, *nodes):
        """Bring nodes into a complete round."""
        for node in nodes:
            self.join(node)
        if not self.state.complete:
            self.pass_time(self.rules.last_call, *nodes)
        assert self.state.complete
        assert self.state.participants == set(nodes)
        assert [self.join(node) for node in nodes] == [JoinState.DONE] * len(nodes)
        assert [self.member(node).rank for node in self.state.world] == list(range(len(nodes)))


def test_the_largest_number_completes_at_once_and_ranks_follow_addresses():
    cluster = Cluster()
    assert [cluster.join(node) for node in (C, A, B)] == [JoinState.WAIT, JoinState.WAIT, JoinState.DONE]
    assert cluster.state.world == (A, B, C)
    assert cluster.join(A) is JoinState.DONE
    assert [cluster.member(node).rank for node in (A, B)] == [0, 1]


def test_enough_nodes_wait_for_the_last_call():
    cluster = Cluster()
    cluster.join(A)
    cluster.pass_time(100, A)
    assert cluster.join(A) is JoinState.WAIT, "one node is not enough"
    cluster.join(B)
    cluster.pass_time(29, A, B)
    assert cluster.join(A) is JoinState.WAIT
    cluster.pass_time(1, A, B)
    assert cluster.join(A) is JoinState.DONE
    assert cluster.state.world == (A, B)


def test_a_late_node_is_counted_and_taken_in_by_the_next_round():
    cluster = Cluster()
    cluster.form(A, B)
    assert cluster.join(C) is JoinState.WAIT
    assert cluster.status.num_late(RULES) == 1
    assert cluster.again(A) is JoinState.WAIT, "B is still in the old round"
    assert cluster.again(B) is JoinState.DONE
    assert (cluster.state.number, cluster.state.world) == (1, (A, B, C))
    assert cluster.join(C) is JoinState.DONE


def test_a_node_too_many_disturbs_nobody_until_a_place_is_free():
    cluster = Cluster()
    cluster.form(A, B, C)
    assert cluster.join(D) is JoinState.WAIT
    assert cluster.status.num_late(RULES) == 0
    cluster.quit(B)
    assert (cluster.status.num_lost, cluster.status.num_late(RULES)) == (1, 1)


def test_those_who_had_a_place_come_before_those_who_wait():
    cluster = Cluster()
    cluster.form(B, C, D)
    assert cluster.join(A) is JoinState.WAIT
    assert [cluster.again(node) for node in (B, C, D)][-1] is JoinState.DONE
    assert (cluster.state.world, cluster.join(A)) == ((B, C, D), JoinState.WAIT)


@pytest.mark.parametrize("dead", [A, B])
def test_a_silent_node_is_removed_and_the_others_see_it(dead):
    cluster = Cluster()
    cluster.form(A, B, C)  # A is the leader
    cluster.tick(A, B, C)
    cluster.tick(A, B, C)  # the leader has read the last heartbeat of each
    cluster.die(dead)
    living = {A, B, C} - {dead}
    cluster.pass_time(14, *living)
    assert dead in cluster.state.participants
    cluster.pass_time(2, *living)
    assert (cluster.state.participants, cluster.status.num_lost) == (living, 1)
    assert cluster.status.leader in living
    assert [cluster.again(node) for node in sorted(living)][-1] is JoinState.DONE
    assert cluster.state.world == tuple(sorted(living))


def test_a_removed_node_that_comes_back_waits_like_a_new_one():
    cluster = Cluster()
    cluster.form(A, B, C)
    cluster.pass_time(15, A, C)
    assert cluster.status.num_lost == 1
    cluster.tick(B, A)
    assert (B in cluster.state.waiting, cluster.status.num_late(RULES)) == (True, 1)


def test_a_leader_that_was_stopped_takes_nobody_for_dead_who_went_on():
    cluster = Cluster()
    cluster.form(A, B)
    cluster.pass_time(60, B)  # A was stopped, and B took its place
    assert (cluster.state.participants, cluster.status.leader) == ({B}, B)
    cluster.tick(A)
    assert (cluster.state.participants, cluster.status.leader) == ({B}, B)


def test_a_leader_that_leaves_says_so_at_once():
    cluster = Cluster()
    cluster.form(A, B)
    cluster.quit(A)
    assert (cluster.status.leader, cluster.status.num_lost) == (None, 1)
    cluster.tick(B)
    assert cluster.status.leader == B


def test_a_leader_that_lost_the_answer_to_its_status_assigns_no_ranks_twice():
    cluster = Cluster()
    cluster.join(A)
    cluster.join(B)
    cluster.shared.run(cluster.member(C).join())
    operation, answer = cluster.member(A).tick(beat=True), None
    while not cluster.status.complete:  # and the answer to that is lost
        answer = cluster.shared.answer(operation.send(answer))
    before = cluster.status
    cluster.tick(A)
    assert cluster.status == replace(before, version=before.version + 1)
    assert [cluster.join(node) for node in (A, B, C)] == [JoinState.DONE] * 3


def test_a_closed_job_takes_nobody():
    cluster = Cluster()
    cluster.form(A, B)
    cluster.shared.run(cluster.member(A).close())
    assert cluster.join(C) is JoinState.CLOSED
    assert cluster.status.num_late(RULES) == 0
    assert cluster.status.closed


def test_nodes_with_other_limits_are_refused():
    cluster = Cluster()
    cluster.join(A)
    assert cluster.join(B, RULES._replace(max_nodes=4)) is JoinState.REFUSED
    cluster.lead()
    assert (cluster.state.participants, cluster.status.refused) == ({A}, (2, 4))


def test_shared_state_is_written_and_read():
    cluster = Cluster()
    cluster.form(A, B)
    cluster.join(C)
    cluster.quit(B)
    for state in (cluster.state, Round(), Round(participants=frozenset({A}), waiting=frozenset({B}))):
        assert Round.decode(state.encode()) == state
    full = Status(assignment=Assignment(A, 3), leader=B, limits=(1, 2), refused=(1, 3))
    for status in (cluster.status, Status(), full):
        assert Status.decode(status.encode()) == status
    assert Heartbeat.decode(Heartbeat(A, 2, 7).encode()) == Heartbeat(A, 2, 7)


@pytest.mark.parametrize("data", [b"", b"[]", b'{"number": 1}', b"\xff"])
def test_what_is_corrupt_is_an_error(data):
    for kind, name in ((Round, "a round"), (Status, "a status"), (Heartbeat, "a heartbeat")):
        with pytest.raises(
            RendezvousStateError, match=rf"^The rendezvous state is corrupt: expected JSON of {name}, got b"
        ):
            kind.decode(data)


def test_silence_while_nobody_could_read_is_nobodys_fault():
    state = LeaderState(last_heard={A: (3, 0.0), B: (4, 0.0)})
    assert silent(state, 20, RULES) == {A, B}
    assert silent(after_outage(state, 20), 20, RULES) == set()
    assert silent(after_outage(state, 20), 35, RULES) == {A, B}
    assert observe(state, [], 20).last_heard == {}


NODES = (A, B, C, D)
ACTS = st.sampled_from(["join", "again", "tick", "quit", "die"])
STEPS = st.lists(st.tuples(st.sampled_from(NODES), ACTS, st.integers(0, 6), st.floats(0, 8)), max_size=60)


class Race(Cluster):
    """Nodes whose acts are cut into pieces: those of others come in between, and some end in the middle."""

    def __init__(self):
        super().__init__()
        self.under_way = {}

    def step(self, node, act, pieces):
        """Go on with what a node does, so many requests far, or begin something else."""
        if node not in self.under_way:
            member = self.member(node)
            if act == "again":
                member.leave_round()
            acts = {"tick": lambda: member.tick(beat=True), "quit": member.quit}
            self.under_way[node] = [acts.get(act, member.join)(), None]
        if act == "die":
            del self.under_way[node]  # in the middle; another process of that node may come
            self.members.pop(node, None)
            return
        for _ in range(pieces):
            before = self.status, self.state
            try:
                steps, answer = self.under_way[node]
                self.under_way[node][1] = self.shared.answer(steps.send(answer))
            except StopIteration:
                del self.under_way[node]
                return
            finally:
                self.check_sound(*before)

    def finish(self):
        for node in list(self.under_way):
            while node in self.under_way:
                self.step(node, "tick", 1)

    def check_sound(self, status_before, before):
        status, after = self.status, self.state
        assert status == replace(status.with_round(after), leader=status.leader)
        assert status.version - status_before.version in (0, 1)
        assert len(after.participants) <= RULES.max_nodes
        assert not after.participants & after.waiting
        assert after.number - before.number in (0, 1)
        assert after.participants <= set(after.world) or not after.complete
        if after.complete and (before.number, before.complete) != (after.number, True):
            assert RULES.min_nodes <= len(after.world) == len(after.participants)
        if after.complete and before.complete and after.number == before.number:
            assert after.world == before.world, "ranks are settled"
            assert after.participants <= before.participants, "nobody enters a complete round"
            assert status.assignment == status_before.assignment
        for node, member in self.members.items():
            if after.complete and member.number == after.number:
                assert after.world[member.rank] == node


@settings(max_examples=300, deadline=None)
@given(STEPS)
def test_whatever_nodes_do_rounds_stay_sound(steps):
    race = Race()
    for node, act, pieces, seconds in steps:
        race.now += seconds
        race.step(node, act, pieces)


@settings(max_examples=100, deadline=None)
@given(STEPS, st.sets(st.sampled_from(NODES), min_size=2))
def test_the_living_always_come_together(steps, living):
    """After any past, nodes that keep trying form a round of theirs."""
    race = Race()
    for node, act, pieces, seconds in steps:
        race.now += seconds
        race.step(node, act, pieces)
    race.finish()
    for node in set(NODES) - living:
        race.members.pop(node, None)
    for node in living:
        race.again(node)
    members = {}
    for _ in range(200):
        race.now += 1
        for node in sorted(living):
            status, member = race.status, race.member(node)
            settled = members.get(node) == status.number and status.complete
            if settled and (status.num_late(RULES) or status.num_lost):
                member.leave_round()
                settled = False
            if not settled and race.shared.run(member.join()) is JoinState.DONE:
                members[node] = member.number
            race.tick(node)
    assert race.state.complete
    assert len(race.state.participants) == min(len(living), RULES.max_nodes)
    assert race.state.participants == set(race.state.world) <= living
