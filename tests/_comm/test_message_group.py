"""Ranks that meet by messages over connections: what they are told when a rank does something else, or nothing."""

from __future__ import annotations

import json
import socket
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from weft._comm.deadline import Deadline
from weft._comm.groups.message_group import MessageGroup
from weft._comm.groups.tcp_streams import connect
from weft._comm.stores.store import HashStore
from weft._comm.transport.authentication import Service, authenticate
from weft._comm.transport.key import job_key
from weft.errors import DistBackendError, DistNetworkError, PeerGoneError


def together(size, body):
    """What `body(meeting)` returns on each of `size` ranks."""
    store = HashStore()

    def run(rank):
        meeting = MessageGroup(connect(store, rank, size, Deadline(60)), rank, size)
        try:
            return body(meeting)
        finally:
            meeting.close()

    with ThreadPoolExecutor(size) as threads:
        return list(threads.map(run, range(size)))


def meet(meeting, call="barrier", seconds=60.0):
    return meeting.run(call, lambda: call, Deadline(seconds))


@pytest.mark.parametrize("size", [1, 2, 3, 5])
def test_ranks_go_on_when_all_have_come(size):
    arrived = [0] * size

    def body(meeting):
        for step in range(1, 30):
            arrived[meeting.rank] = step
            assert meet(meeting) == "barrier"
            assert min(arrived) >= step

    together(size, body)


@pytest.mark.parametrize("size", [1, 2, 3, 6])
def test_nothing_runs_where_only_versions_differ(size):
    def body(meeting):
        def run(version, call="sum"):
            return meeting.run_if_equal(call, version, lambda: "ran", Deadline(60))

        results = [run("a"), run(f"{meeting.rank}"), run("b" if meeting.rank < size - 1 else "c"), run("a")]
        if size > 1:
            with pytest.raises(
                DistBackendError, match=r"^the ranks call different operations: rank 0 called max, rank"
            ):
                run("a", call="sum" if meeting.rank else "max")
        return results

    differing = "ran" if size == 1 else None
    assert together(size, body) == [["ran", differing, differing, "ran"]] * size


def test_calls_that_differ_are_told_on_all_ranks():
    def body(meeting):
        with pytest.raises(DistBackendError) as caught:
            meet(meeting, "sum" if meeting.rank < 2 else "barrier")
        with pytest.raises(DistBackendError, match="cannot be used any more, make a new one: the ranks call"):
            meet(meeting)
        return str(caught.value)

    found = together(4, body)
    assert found == ["the ranks call different operations: rank 0 called sum, rank 2 called barrier"] * 4


def test_the_ranks_that_do_not_come_are_named():
    failed = threading.Barrier(5)

    def body(meeting):
        if meeting.rank in (1, 4):
            failed.wait(60)
            return None
        with pytest.raises(DistBackendError) as caught:
            meet(meeting, "sum", 0.5 if meeting.rank == 3 else 60)
        failed.wait(60)
        return str(caught.value)

    first, _, second, third, _ = together(5, body)
    assert third.startswith(
        "sum, rank 3: Timed out waiting 500ms for ranks 1, 4; see what holds them up, or allow more time"
    )
    for told in (first, second):
        assert f"rank 3 gave up: {third}" in told


def test_a_rank_that_comes_when_another_has_given_up_is_told():
    failed = threading.Barrier(2)

    def body(meeting):
        if meeting.rank:
            failed.wait(60)
        with pytest.raises(DistBackendError) as caught:
            meet(meeting, "sum", 60 if meeting.rank else 0.2)
        if not meeting.rank:
            failed.wait(60)
        return str(caught.value)

    early, late = together(2, body)
    assert early.startswith("sum, rank 0: Timed out waiting 2")
    assert late == f"sum, rank 1: rank 0 gave up: {early}"


def test_a_rank_that_leaves_is_named():
    def body(meeting):
        meet(meeting)
        if meeting.rank == 0:
            with pytest.raises(DistBackendError, match=r"^sum, rank 0: rank 1 has left the group$"):
                meet(meeting, "sum")

    together(2, body)


def test_what_breaks_between_meetings_breaks_the_group():
    def body(meeting):
        if meeting.rank == 0:
            with pytest.raises(ZeroDivisionError):
                meeting.run("sum", lambda: 1 / 0, Deadline(60))
        else:
            with pytest.raises(DistBackendError, match="rank 0 gave up: sum was interrupted by ZeroDivisionError"):
                [meet(meeting, "sum") for _ in range(2)]  # the first may be complete before rank 0 breaks the group

    together(2, body)


def test_an_exchange_that_is_not_done_in_time():
    def body(meeting):
        with pytest.raises(DistBackendError) as caught:
            meeting.complete(lambda: False, "sum", Deadline(0.2 if meeting.rank == 0 else 60))
        return str(caught.value)

    first, second = together(2, body)
    assert "sum, rank 0: Timed out waiting 2" in first
    assert "ms for rank 1" in first
    assert second == f"sum, rank 1: rank 0 gave up: {first}"


def test_large_messages_cross():
    def body(meeting):
        mine, theirs = np.full(5_000_000, meeting.rank, np.uint8), np.empty(5_000_000, np.uint8)
        peer = 1 - meeting.rank
        sent, heard = meeting.messages.send(mine, peer), meeting.messages.receive(theirs, peer)
        for request in (sent, heard):
            meeting.messages.wait(request, Deadline(60))
        assert (theirs == peer).all()
        meet(meeting)

    together(2, body)


def test_a_rank_that_does_not_connect_is_named():
    with pytest.raises(DistBackendError, match=r"^joining the group: rank 10 has no connection to 11, 12: "):
        connect(HashStore(), 0, 3, Deadline(0.2), ranks=[10, 11, 12])


def test_others_than_ranks_of_the_group_are_sent_away():
    store = HashStore()
    found = []
    first = threading.Thread(target=lambda: found.append(connect(store, 0, 2, Deadline(60))))
    first.start()
    place = json.loads(store.get("links/0"))
    port = ("127.0.0.1", place["port"])
    with socket.create_connection(port) as stranger, pytest.raises(DistNetworkError, match="has another job key"):
        authenticate(stranger, b"another", Service("links", place["token"]), Deadline(60), "1")
    with socket.create_connection(port) as stray, pytest.raises(PeerGoneError, match="is another listener: it called"):
        authenticate(stray, job_key(), Service("links", "another group's"), Deadline(60), "1")
    found.append(connect(store, 1, 2, Deadline(60)))
    first.join()
    for links in found:
        links.close()
