"""How ranks meet: whatever each of them has done before, those that come together agree on a part of the store."""

from __future__ import annotations

import random
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from functools import partial

import pytest

from weft._comm.stores import keys
from weft._comm.stores.file_store import FileStore
from weft._comm.stores.meeting import Meeting
from weft._comm.stores.store import HashStore, PrefixStore
from weft._comm.stores.tcp_store import TCPStore
from weft.errors import DistBackendError

_LONG, _SHORT = timedelta(seconds=60), timedelta(milliseconds=50)


@pytest.fixture(params=["hash", "file", "tcp"])
def store(request, tmp_path):
    kinds = {
        "hash": HashStore,
        "file": lambda: FileStore(str(tmp_path / "store"), 1),
        "tcp": lambda: TCPStore("127.0.0.1", 0, 1, is_master=True),
    }
    with_keys = kinds[request.param]()
    yield with_keys
    with_keys.close()


def met(store, rank, size, timeout=_LONG, told="here"):
    """The name of the meeting that a rank comes to, and what the ranks tell there."""
    with Meeting(store, rank, size, "meet", DistBackendError) as meeting:
        return meeting.name, [text.decode() for text in meeting.wait(told, timeout)]


def together(*calls):
    """What calls in threads of their own return, or their errors as texts."""

    def outcome(call):
        try:
            return call()
        except DistBackendError as error:
            return str(error)

    with ThreadPoolExecutor(len(calls)) as pool:
        return [future.result(120) for future in [pool.submit(outcome, call) for call in calls]]


@pytest.mark.parametrize("seed", range(4))
def test_worlds_of_any_sizes_follow_each_other(store, seed):
    sizes = random.Random(seed).choices(range(1, 5), k=8)

    def rank(me):
        return [(at, *met(store, me, size, told=f"{at} of {me}")) for at, size in enumerate(sizes) if me < size]

    places = {}
    for worlds in together(*[partial(rank, me) for me in range(4)]):
        for at, name, told in worlds:
            assert told == [f"{at} of {peer}" for peer in range(sizes[at])]
            assert places.setdefault(at, name) == name
    assert len(set(places.values())) == len(sizes)


def test_ranks_that_have_given_up_unequally_often_meet(store):
    for rank, times in ((0, 3), (2, 1)):
        for _ in range(times):
            with pytest.raises(DistBackendError, match=rf"^meet: rank {rank} waited 0\.05 s for ranks .* of 3; look"):
                met(store, rank, 3, _SHORT)
    names = {name for name, _ in together(*[partial(met, store, rank, 3) for rank in range(3)])}
    assert len(names) == 1


def test_when_one_gives_up_the_others_learn_why():
    store = HashStore()
    first, second = together(partial(met, store, 0, 3), partial(met, store, 1, 3, timedelta(seconds=1)))
    assert second == (
        "meet: rank 1 waited 1 s for rank 2 of 3; look whether they were started, reached the same address, and expect "
        "as many ranks"
    )
    assert first == second.replace("meet:", "meet: rank 0 waited in vain:")


@pytest.mark.parametrize("error", [KeyboardInterrupt(), ValueError("no such device")])
def test_a_rank_that_leaves_by_an_error_is_not_met(store, error):
    with pytest.raises(type(error)), Meeting(store, 1, 2, "meet", DistBackendError):
        raise error
    names = together(partial(met, store, 0, 2), partial(met, store, 1, 2))
    assert names[0][0] == names[1][0]


def test_a_rank_that_fails_is_told_to_those_who_wait():
    store = HashStore()

    def fails():
        with Meeting(store, 1, 2, "meet", DistBackendError) as meeting:
            meeting.store.wait([keys.member(0)], _LONG)  # or rank 0 would go on to the next meeting
            raise DistBackendError("the name is taken")

    waited, failed = together(partial(met, store, 0, 2), fails)
    assert failed == "the name is taken"
    assert waited == "meet: rank 0 waited in vain: rank 1 could not join: the name is taken"


def test_ranks_that_expect_different_numbers_of_ranks_are_told():
    store = HashStore()
    outcomes = together(partial(met, store, 0, 2), partial(met, store, 1, 3), partial(met, store, 2, 3))
    differ = "rank 0 has world_size=2 and rank 1 world_size=3; give all the same"
    assert [text.removeprefix("meet: ").partition("in vain: ")[2] or text[6:] for text in outcomes] == [differ] * 3


def test_a_rank_of_a_larger_world_may_come_first():
    store = PrefixStore("job", HashStore())

    def rank(me):
        return [met(store, me, size)[0] for size in (2, 3) if me < size]

    with ThreadPoolExecutor(3) as pool:
        early = pool.submit(rank, 2)
        assert not early.done()
        later = [pool.submit(rank, me) for me in range(2)]
        assert [future.result(120)[-1] for future in (early, *later)] == ["3.1"] * 3


def test_two_processes_of_one_rank_are_told():
    store = HashStore()
    with Meeting(store, 0, 2, "meet", DistBackendError), pytest.raises(DistBackendError, match="came as rank 0"):
        met(store, 0, 2)
