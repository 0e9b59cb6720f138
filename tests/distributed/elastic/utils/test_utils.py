"""Helpers for workers and launchers."""

import logging
from concurrent.futures import ThreadPoolExecutor

import pytest

from weft.distributed import HashStore
from weft.distributed.elastic.utils import get_env_variable_or_raise, get_socket_with_port, macros
from weft.distributed.elastic.utils.data import CyclingIterator, ElasticDistributedSampler
from weft.distributed.elastic.utils.distributed import create_c10d_store, get_free_port
from weft.distributed.elastic.utils.logging import get_logger
from weft.distributed.elastic.utils.store import barrier, get_all, store_timeout, synchronize


def test_the_environment(monkeypatch):
    monkeypatch.setenv("THERE", "1")
    assert get_env_variable_or_raise("THERE") == "1"
    with pytest.raises(ValueError, match=r"^Environment variable NOT_THERE expected, but not set$"):
        get_env_variable_or_raise("NOT_THERE")


def test_the_local_rank_is_put_into_arguments():
    assert macros.substitute(["--dev=${local_rank}", "$$ $HOME", 3], "1") == ["--dev=1", "$$ $HOME", 3]


def test_ports():
    with get_socket_with_port() as held:
        assert held.getsockname()[1] not in (0, get_free_port())


def test_loggers(monkeypatch):
    monkeypatch.setenv("LOGLEVEL", "DEBUG")
    assert (get_logger().name, get_logger("own").level) == (__name__, logging.DEBUG)
    monkeypatch.delenv("LOGLEVEL")
    assert get_logger("own").level == logging.WARNING


# --- over a store ---


@pytest.fixture
def store():
    return HashStore()


def in_three(function):
    with ThreadPoolExecutor(3) as pool:
        return [found.result(20) for found in [pool.submit(function, rank) for rank in range(3)]]


def test_a_store_on_a_free_port():
    store = create_c10d_store(True, "localhost")
    try:
        other = create_c10d_store(False, "localhost", store.port, 2, wait_for_workers=False)
        other.set("k", "v")
        assert store.get("k") == b"v"
        other.close()
    finally:
        store.close()
    with pytest.raises(ValueError, match=r"^server_port must be specified when world_size > 1, got server_port=-1"):
        create_c10d_store(True, "localhost", world_size=2)


def test_all_get_what_all_have(store):
    said = [b"0", b"1", b"2"]
    assert in_three(lambda rank: synchronize(store, said[rank], rank, 3, "sync")) == [said] * 3
    assert in_three(lambda rank: store.set(f"data{rank}", said[rank]) or get_all(store, rank, "data", 3)) == [said] * 3


def test_a_timeout_is_put_back(store):
    before = store.timeout
    with pytest.raises(RuntimeError, match=r"^wait timeout after 10ms"), store_timeout(store, 0.01):
        store.get("absent")
    assert store.timeout == before


def test_those_who_miss_a_barrier_are_named(store):
    in_three(lambda rank: barrier(store, 3, "all", 20, rank))
    with pytest.raises(
        RuntimeError,
        match=r"^Timed out waiting on barrier on rank 1, for key prefix: some \(world_size=3, "
        r"missing_ranks=\[host0, host2\], timeout=0\.05\)$",
    ):
        barrier(store, 3, "some", 0.05, 1, "host{}".format)
    with pytest.raises(RuntimeError, match=r"^wait timeout after 50ms, keys: "):
        barrier(store, 3, "none", 0.05)
    with pytest.raises(AssertionError, match=r"^Tracing requires rank information"):
        barrier(store, 3, "wrong", rank_tracing_decoder=str)


# --- data ---


def test_passes_are_one():
    assert list(CyclingIterator(3, lambda epoch: iter([epoch, epoch]))) == [0, 0, 1, 1, 2, 2]
    assert list(CyclingIterator(4, lambda epoch: iter([epoch] * (epoch % 2)), start_epoch=1)) == [1, 3]


def test_the_rest_of_a_dataset_is_shared():
    samplers = [ElasticDistributedSampler(range(10), 2, rank, start_index=3) for rank in range(2)]
    shares = [list(sampler) for sampler in samplers]
    assert [len(share) for share in shares] == [len(sampler) for sampler in samplers] == [4, 4]
    assert set(shares[0] + shares[1]) == set(range(3, 10))
    assert shares[1][-1] == shares[0][0], "the order begins anew to make the shares equally long"
    samplers[0].set_epoch(1)
    assert list(samplers[0]) != shares[0]
    with pytest.raises(ValueError, match=r"^Start index 10 should be less than dataset size 10$"):
        ElasticDistributedSampler(range(10), 2, 0, start_index=10)
