"""The rounds of a rendezvous, without sockets or clocks: what nodes write, whatever the order in which they act."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from weft.distributed.elastic.rendezvous._round import (
    Goal,
    Node,
    Round,
    Rules,
    Seen,
    Verdict,
    advance,
    decode,
    encode,
    excused,
    late,
    observe,
    silent,
)
from weft.errors import RendezvousStateError

RULES = Rules(min_nodes=2, max_nodes=3, last_call=30.0, silence=15.0)
A, B, C, D = (Node(f"10.0.0.{at}", 100 + at, 0) for at in range(1, 5))


class Cluster:
    """Nodes over one state; each sees it by its own eyes, and time goes by hand."""

    def __init__(self, rules=RULES):
        self.rules, self.state, self.now, self.seen = rules, Round(), 0.0, {}

    def look(self, node):
        self.seen[node] = observe(self.seen.get(node, Seen()), self.state, self.now, self.rules)

    def act(self, node, goal, rules=None):
        self.look(node)
        self.state, verdict = advance(self.seen[node], node, goal, self.now, rules or self.rules)
        self.look(node)
        return verdict

    def beat(self, seconds, *alive):
        """Let time pass while these nodes show themselves."""
        for _ in range(int(seconds)):
            self.now += 1
            for node in alive:
                self.act(node, Goal.BEAT)

    def form(self, *nodes):
        """Bring nodes into a complete round."""
        for _ in range(2):
            for node in nodes:
                self.act(node, Goal.JOIN)
        if not self.state.complete:
            self.beat(self.rules.last_call, *nodes)
            self.act(nodes[0], Goal.JOIN)
        assert self.state.complete
        assert self.state.participants == set(nodes)


def test_the_largest_number_completes_at_once_and_ranks_follow_addresses():
    cluster = Cluster()
    assert [cluster.act(node, Goal.JOIN) for node in (C, A, B)] == [Verdict.WAIT, Verdict.WAIT, Verdict.DONE]
    assert cluster.state.world == (A, B, C)
    assert cluster.act(A, Goal.JOIN) is Verdict.DONE


def test_enough_nodes_wait_for_the_last_call():
    cluster = Cluster()
    cluster.act(A, Goal.JOIN)
    cluster.beat(100, A)
    assert cluster.act(A, Goal.JOIN) is Verdict.WAIT, "one node is not enough"
    cluster.act(B, Goal.JOIN)
    cluster.look(A)
    cluster.beat(29, A, B)
    assert cluster.act(A, Goal.JOIN) is Verdict.WAIT
    cluster.beat(1, A, B)
    assert cluster.act(A, Goal.JOIN) is Verdict.DONE
    assert cluster.state.world == (A, B)


def test_a_late_node_is_counted_and_taken_in_by_the_next_round():
    cluster = Cluster()
    cluster.form(A, B)
    assert cluster.act(C, Goal.JOIN) is Verdict.WAIT
    assert late(cluster.state, RULES) == 1
    for node in (A, B):
        cluster.act(node, Goal.LEAVE)
    assert (cluster.state.number, cluster.state.complete) == (1, False)
    assert [cluster.act(node, Goal.JOIN) for node in (A, B, C)][-1] is Verdict.DONE
    assert cluster.state.world == (A, B, C)


def test_a_node_too_many_disturbs_nobody_until_a_place_is_free():
    cluster = Cluster()
    cluster.form(A, B, C)
    assert cluster.act(D, Goal.JOIN) is Verdict.WAIT
    assert late(cluster.state, RULES) == 0
    cluster.act(B, Goal.QUIT)
    assert cluster.state.lost == 1
    assert late(cluster.state, RULES) == 1


def test_a_restart_of_all_known_nodes_needs_no_last_call():
    cluster = Cluster()
    cluster.form(A, B)
    cluster.act(A, Goal.LEAVE)
    assert cluster.act(A, Goal.JOIN) is Verdict.WAIT, "B is still in the old round"
    assert late(cluster.state, RULES) == 1
    cluster.act(B, Goal.LEAVE)
    assert cluster.act(B, Goal.JOIN) is Verdict.WAIT
    assert cluster.act(A, Goal.JOIN) is Verdict.DONE
    assert (cluster.state.number, cluster.state.world) == (1, (A, B))


def test_a_silent_node_is_removed_and_the_others_see_it():
    cluster = Cluster()
    cluster.form(A, B, C)
    cluster.beat(14, A, C)
    assert B in cluster.state.participants
    cluster.beat(1, A, C)
    assert cluster.state.participants == {A, C}
    assert cluster.state.lost == 1
    for node in (A, C):
        cluster.act(node, Goal.LEAVE)
    cluster.act(A, Goal.JOIN)
    assert cluster.act(C, Goal.JOIN) is Verdict.DONE
    assert cluster.state.world == (A, C)


def test_a_removed_node_that_comes_back_waits_like_a_new_one():
    cluster = Cluster()
    cluster.form(A, B, C)
    cluster.beat(15, A, C)
    assert cluster.act(B, Goal.BEAT) is Verdict.DONE
    assert B not in cluster.state.beats
    assert cluster.act(B, Goal.JOIN) is Verdict.WAIT
    assert late(cluster.state, RULES) == 1


def test_a_stopped_watcher_does_not_bury_those_who_went_on():
    cluster = Cluster()
    cluster.form(A, B)
    cluster.beat(60, B)  # A was stopped, and B removed it
    assert cluster.state.participants == {B}
    cluster.act(A, Goal.BEAT)
    assert cluster.state.participants == {B}


def test_a_closed_job_takes_nobody():
    cluster = Cluster()
    cluster.form(A, B)
    cluster.act(A, Goal.CLOSE)
    assert cluster.act(C, Goal.JOIN) is Verdict.CLOSED
    assert (cluster.state.waiting, late(cluster.state, RULES)) == (frozenset(), 0)


def test_nodes_with_other_limits_are_refused():
    cluster = Cluster()
    cluster.act(A, Goal.JOIN)
    assert cluster.act(B, Goal.JOIN, RULES._replace(max_nodes=4)) is Verdict.REFUSED
    assert cluster.state.participants == {A}


def test_a_step_that_changes_nothing_returns_the_same_state():
    cluster = Cluster()
    cluster.form(A, B)
    before = cluster.state
    assert cluster.act(A, Goal.JOIN) is Verdict.DONE
    assert cluster.act(C, Goal.QUIT) is Verdict.DONE
    assert cluster.state == before


def test_states_are_written_and_read():
    cluster = Cluster()
    cluster.form(A, B)
    cluster.act(C, Goal.JOIN)
    assert decode(encode(cluster.state)) == cluster.state
    assert decode(encode(Round())) == Round()


@pytest.mark.parametrize("data", [b"", b"[]", b'{"number": 1}', b"\xff"])
def test_a_corrupt_state_is_an_error(data):
    with pytest.raises(
        RendezvousStateError, match=r"^The rendezvous state is corrupt: expected JSON of a round, got b"
    ):
        decode(data)


NODES = (A, B, C, D)
STEPS = st.lists(
    st.tuples(st.sampled_from(NODES), st.sampled_from(list(Goal)), st.booleans(), st.floats(0, 8)), max_size=60
)


@settings(max_examples=200, deadline=None)
@given(STEPS)
def test_whatever_nodes_do_rounds_stay_sound(steps):
    """Stale readers (`fresh` is False) lose the compare-and-set, as with a real backend."""
    cluster = Cluster()
    for node, goal, fresh, seconds in steps:
        if goal is Goal.CLOSE:
            continue
        cluster.now += seconds
        before = cluster.state
        if fresh or node not in cluster.seen:
            cluster.look(node)
        seen = cluster.seen[node]
        state, verdict = advance(seen, node, goal, cluster.now, RULES)
        if seen.state != before and state != seen.state:
            continue  # another wrote in between: nothing is set
        cluster.state = before if state == seen.state else state
        _check_sound(before, cluster.state)
        if verdict is Verdict.DONE and goal is Goal.JOIN and seen.state == before:
            assert node in cluster.state.world


def _check_sound(before, after):
    assert len(after.participants) <= RULES.max_nodes
    assert not after.participants & after.waiting
    assert after.participants | after.waiting == set(after.beats)
    assert after.number - before.number in (0, 1)
    assert after.participants <= set(after.world) or not after.complete
    if after.complete and not before.complete:
        assert RULES.min_nodes <= len(after.world) == len(after.participants)
    if after.complete and before.complete and after.number == before.number:
        assert after.world == before.world, "ranks are settled"
        assert after.participants <= before.participants, "nobody enters a complete round"
    assert decode(encode(after)) == after


@settings(max_examples=100, deadline=None)
@given(STEPS, st.sets(st.sampled_from(NODES), min_size=2))
def test_the_living_always_come_together(steps, living):
    """After any past, nodes that keep trying form a round of theirs."""
    cluster = Cluster()
    for node, goal, _, seconds in steps:
        if goal is not Goal.CLOSE:
            cluster.now += seconds
            cluster.act(node, goal)
    members = {}
    for _ in range(200):
        cluster.now += 1
        for node in sorted(living):
            settled = members.get(node) == cluster.state.number and cluster.state.complete
            if settled and (late(cluster.state, RULES) or cluster.state.lost):
                cluster.act(node, Goal.LEAVE)
                settled = False
            if not settled and cluster.act(node, Goal.JOIN) is Verdict.DONE:
                members[node] = cluster.state.number
            cluster.act(node, Goal.BEAT)
    assert cluster.state.complete
    assert len(cluster.state.participants) == min(len(living), RULES.max_nodes)
    assert cluster.state.participants == set(cluster.state.world) <= living


def test_silence_while_nobody_could_read_is_excused():
    cluster = Cluster()
    cluster.form(A, B)
    seen, now = cluster.seen[A], cluster.now
    assert silent(observe(seen, cluster.state, now + 20, RULES), now + 20, RULES) == {A, B}
    seen = observe(excused(seen, 20), cluster.state, now + 20, RULES)
    assert silent(seen, now + 20, RULES) == set()
    assert silent(seen, now + 35, RULES) == {A, B}
