"""How agents learn what the other nodes of their round do."""

from __future__ import annotations

from contextlib import ExitStack, closing

from tests.waiting import until
from weft._comm.stores.store import HashStore
from weft.distributed.elastic._job_report import NodeReport, WorkerReport
from weft.distributed.elastic.agent.server._node_exchange import NodeExchange, look_seconds
from weft.distributed.elastic.agent.server._worker_group import WorkerGroup, WorkerSpec
from weft.errors import DistNetworkError


def exchange(rank, size, store, report=None):
    """That of one node, which reports one worker."""
    group = WorkerGroup(WorkerSpec("trainer", 1, None, entrypoint="true"))
    group.group_rank, group.group_world_size, group.store = rank, size, store
    worker = WorkerReport(rank, 0, 100 + rank, "running", 1.0, 0, {"steps": 3.0}, "calls", ("a remote call", 0.5))
    report = report or NodeReport(rank, f"host{rank}", rank, workers=(worker,))
    return NodeExchange(group, lambda: report)


def test_every_node_can_ask():
    store = HashStore()
    with ExitStack() as stack:
        nodes = [stack.enter_context(closing(exchange(rank, 3, store))) for rank in range(3)]
        for node in nodes:
            reports = node.all_nodes()
            assert [(report.node, report.host, report.answers) for report in reports] == [
                (0, "host0", True),
                (1, "host1", True),
                (2, "host2", True),
            ]
            assert [worker.numbers for report in reports for worker in report.workers] == [{"steps": 3.0}] * 3


def test_a_silent_node_is_shown_as_it_was_last():
    store = HashStore()
    with closing(exchange(0, 2, store)) as here:
        with closing(exchange(1, 2, store)):
            assert [report.answers for report in here.all_nodes()] == [True, True]
        _, gone = here.all_nodes()
        assert (gone.host, gone.answers, len(gone.workers)) == ("host1", False, 1)
    with closing(exchange(0, 2, HashStore())) as here:
        _, never_there = here.all_nodes()
        assert (never_there.host, never_there.answers, never_there.workers) == ("", False, ())


def test_a_store_that_fails_costs_only_the_others():
    class Lost(HashStore):
        def add(self, key, amount):
            raise DistNetworkError("the link is cut")

    with closing(exchange(0, 2, Lost())) as here:
        assert [report.answers for report in here.all_nodes()] == [True, False]


def test_nothing_is_written_while_nobody_asks():
    store = HashStore()
    with closing(exchange(0, 2, store)) as here, closing(exchange(1, 2, store)):
        assert store.num_keys() == 0
        here.all_nodes()
        until(lambda: store.num_keys() == 3, "the asking node does not answer itself", 10)  # request, and two reports


def test_looks_become_rarer_with_more_nodes():
    assert look_seconds(2) == 0.5
    assert look_seconds(10_000) == 10
