"""The simulation of docs/scale.md, with few agents and workers: it ends, and no host does more than it says."""

import pytest
from bench.scale.agents import Job
from bench.scale.simulation import TCP_STORE
from bench.scale.store import NODES
from bench.scale.workers import Workers

from weft.distributed.elastic.rendezvous._round import Round


@pytest.mark.parametrize("size", [5, 9, 80])
def test_agents_join_start_anew_and_leave_with_the_same_messages_whatever_their_number(size):
    job = Job(size, spare=2)
    most = {"join": 30, "idle": 30, "restart": 40, "leave": 30}
    for event in ("join", "idle", "restart"):
        others, _ = getattr(job, event)()
        assert others.most_messages <= most[event], event
        assert others.seconds <= 10
    leader = job.leader()
    for dead in (leader, next(agent.at for agent in job.living() if agent.at != leader)):
        others, _ = job.death(dead)
        assert others.most_messages <= 100
        assert others.seconds <= 40
    living = {agent.node for agent in job.living()}
    shared = job.sim.store.shared
    current = Round.decode(shared.values[NODES + shared.status.round_key])
    assert set(current.world) == living
    assert {current.world[agent.member.rank] for agent in job.living()} == living, "each has its own rank"
    others, _ = job.leave()
    assert others.most_messages <= most["leave"]


@pytest.mark.parametrize("seed", range(5))
def test_agents_come_together_when_messages_are_lost_and_one_dies_meanwhile(seed):
    job = Job(12, TCP_STORE._replace(loss=0.05), seed, spare=3)
    job.sim.at(0.06 + seed * 0.05, lambda: job.sim.kill(seed))
    job.join()
    job.restart()
    job.leave()


@pytest.mark.parametrize("size", [20, 300])
def test_workers_join_and_leave_with_as_many_messages_whatever_their_number(size):
    workers = Workers(size)
    for event in (workers.join, workers.leave):
        for load in event():
            assert load.most_messages <= 60
