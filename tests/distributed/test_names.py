"""What users ask and say about groups: backends, levels, names."""

from __future__ import annotations

import subprocess
import sys
import threading
from datetime import timedelta

import pytest

import weft
import weft.distributed as dist
from weft.distributed import distributed_c10d as c10d
from weft.distributed import run_threads
from weft.distributed._group_host import join_threads

# --- backends ---


def test_backends_are_names():
    assert dist.Backend("GLOO") == dist.Backend.GLOO == "gloo"
    assert isinstance(dist.Backend("Mine"), str)
    assert dist.Backend("Mine") == "mine"
    assert set(dist.Backend.backend_list) >= {"gloo", "nccl", "mpi", "shm", "threads", "xla"}
    with pytest.raises(ValueError, match=r"^Backend constructor parameter must be string-ish$"):
        dist.Backend(3)


@pytest.mark.parametrize(
    ("name", "found", "text"),
    [
        ("shm", {"cpu": "shm", "cuda": "shm"}, "cpu:shm,cuda:shm"),
        ("NCCL", {"cuda": "nccl"}, "cuda:nccl"),
        ("cpu:gloo,cuda:nccl", {"cpu": "gloo", "cuda": "nccl"}, "cpu:gloo,cuda:nccl"),
    ],
)
def test_backends_go_by_device(name, found, text):
    config = dist.BackendConfig(dist.Backend(name))
    assert config.get_device_backend_map() == found
    assert repr(config) == text


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("cpu:gloo,cuda", "^Invalid device:backend pairing: 'cuda' in 'cpu:gloo,cuda'; give DEVICE:BACKEND"),
        ("cpu:gloo,cpu:shm", "^Duplicate device type cpu in backend string: cpu:gloo,cpu:shm$"),
    ],
)
def test_pairs_of_devices_and_backends_are_checked(name, text):
    with pytest.raises(ValueError, match=text):
        dist.BackendConfig(name)


def test_each_device_has_a_backend():
    assert dist.get_default_backend_for_device("cpu") == "gloo"
    assert dist.get_default_backend_for_device(weft.device("cuda", 1)) == "nccl"
    with pytest.raises(ValueError, match=r"^Default backend not registered for device : meta$"):
        dist.get_default_backend_for_device("meta")


def test_what_is_there():
    assert dist.is_backend_available("gloo")
    assert dist.is_backend_available("nccl") == dist.is_nccl_available() == weft.cuda.is_available()
    assert not dist.is_backend_available("ucc")
    assert not dist.is_ucc_available()
    assert not dist.is_xccl_available()


def test_users_add_backends():
    asked = []

    def make(store, rank, size, timeout):
        asked.append((rank, size, timeout))
        return join_threads(store, rank, range(size), timeout)

    dist.Backend.register_backend("Test_Mine", make, devices="fpga")
    assert dist.Backend.TEST_MINE == "test_mine"
    assert dist.Backend.default_device_backend_map["fpga"] == "test_mine"
    assert dist.is_backend_available("test_mine")

    def rank_of(rank):
        dist.init_process_group("test_mine", timeout=timedelta(seconds=30))
        x = weft.ones(1)
        dist.all_reduce(x)
        return x.item()

    assert run_threads(rank_of) == [2, 2]
    assert sorted(asked) == [(0, 2, timedelta(seconds=30)), (1, 2, timedelta(seconds=30))]
    with pytest.raises(ValueError, match=r"^test_mine c10d backend already exists$"):
        dist.Backend.register_backend("test_mine", make)


# --- groups ---


def test_groups_tell_what_they_are():
    def rank_of(rank):
        assert dist.group.WORLD is None
        dist.init_process_group("threads")
        whole = dist.group.WORLD
        assert whole is dist.GroupMember.WORLD is c10d._get_default_group()
        other = dist.new_group([0, 1], group_desc="pair")
        found = [
            whole.size(),
            whole.group_desc,
            other.group_desc,
            dist.get_pg_count(),
            dist.get_backend_config(),
            c10d._get_default_store() is whole.store,
            other.group_name == c10d._get_process_group_name(other),
            dist._rank_not_in_group(dist.GroupMember.NON_GROUP_MEMBER),
            dist._rank_not_in_group(None),
        ]
        c10d._set_pg_timeout(timedelta(seconds=7), other)
        assert other.timeout == timedelta(seconds=7)
        assert whole.timeout == c10d.default_pg_timeout
        c10d._abort_process_group(other)
        return [*found, dist.get_pg_count()]

    expected = [2, "default_pg", "pair", 2, "cpu:threads,cuda:threads", True, True, True, False, 1]
    assert run_threads(rank_of) == [expected] * 2


def test_an_aborted_group_fails():
    def rank_of(rank):
        dist.init_process_group("threads")
        if rank:
            dist.group.WORLD.abort()
        with pytest.raises(RuntimeError, match="rank 1 has aborted the group 'default'"):
            dist.barrier()

    run_threads(rank_of)


def test_a_group_may_be_made_again():
    """By the same members, under the same description: nothing of the one before is found."""

    def rank_of(rank):
        dist.init_process_group("threads", timeout=timedelta(seconds=60))
        found = []
        for members in ([0, 1], [0, 2], [0, 1], [0, 1]):
            if rank in members:
                made = dist.new_group(members, use_local_synchronization=True, group_desc="again")
                x = weft.full((1,), float(rank))
                dist.all_reduce(x, group=made)
                found.append(x.item())
                dist.destroy_process_group(made)
        return found

    assert run_threads(rank_of, nprocs=3) == [[1, 2, 1, 1], [1, 1, 1], [2]]


def test_ranks_of_a_group_may_keep_their_order():
    def rank_of(rank):
        dist.init_process_group("threads")
        made = dist.new_group([2, 0], sort_ranks=False)
        if rank == 1:
            return None
        x = weft.zeros(2)
        dist.all_gather_into_tensor(x, weft.full((1,), float(rank)), group=made)
        return dist.get_rank(made), dist.get_process_group_ranks(made), x.tolist()

    assert run_threads(rank_of, nprocs=3) == [(1, [2, 0], [2, 0]), None, (0, [2, 0], [2, 0])]


@pytest.mark.parametrize("parent", [None, [1, 2, 3, 4]])
def test_a_group_is_split(parent):
    def rank_of(rank):
        dist.init_process_group("threads")
        group = dist.new_group(parent) if parent else None
        if parent and rank not in parent:
            return None
        mine = dist.split_group(group, [[1, 0], [2]], timedelta(seconds=9), group_desc="half")
        if mine is None:
            return []
        x = weft.full((1,), float(rank))
        dist.all_reduce(x, group=mine)
        assert mine.group_desc == "half"
        assert mine.timeout == timedelta(seconds=9)
        return [*mine.ranks, x.item()]

    found = run_threads(rank_of, nprocs=5)
    assert found == ([None, [1, 2, 3], [1, 2, 3], [3, 3], []] if parent else [[0, 1, 1], [0, 1, 1], [2, 2], [], []])


@pytest.mark.parametrize(
    ("ranks", "text"),
    [
        (None, "^split_ranks cannot be None or empty$"),
        ([[]], "^the split group cannot be empty$"),
        ([[0, 0]], "^the split group's size should be less or equal to the world_size set by init_process_group$"),
        ([[1]], r"^Rank 1 at index 0 is out of bounds for group size 1\. Valid ranks are in range \[0, 0\]\.$"),
        ([[0], [0]], r"^the ranks in split_ranks cannot overlap, but rank 0 is in 2 of \[\[0\], \[0\]\]$"),
    ],
)
def test_splits_are_checked(ranks, text):
    def rank_of(rank):
        dist.init_process_group("threads")
        with pytest.raises(ValueError, match=text):
            dist.split_group(split_ranks=ranks)

    run_threads(rank_of, nprocs=1)


def test_subgroups_are_those_of_a_group():
    def rank_of(rank):
        dist.init_process_group("threads")
        group = dist.new_group([1, 2, 3, 4])
        if rank == 0:
            return None
        mine, every = dist.new_subgroups(2, group)
        assert mine in every
        for size, text in (
            (0, r"^The arg 'group_size' \(0\) must be positive$"),
            (5, r"^The arg 'group_size' \(5\) must not exceed the world size \(4\)$"),
            (3, r"^The world size \(4\) must be divisible by 'group_size=3'$"),
            (None, "^Default group size only takes effect when CUDA is available"),
        ):
            with pytest.raises(ValueError, match=text):
                dist.new_subgroups(size, group)
        x = weft.full((1,), float(rank))
        dist.all_reduce(x, group=mine)
        return x.item()

    assert run_threads(rank_of, nprocs=5) == [None, 3, 3, 7, 7]


# --- groups that lose ranks ---


@pytest.mark.parametrize("flags", [c10d.SHRINK_DEFAULT, c10d.SHRINK_ABORT])
def test_the_default_group_goes_on_without_some(flags):
    def rank_of(rank):
        dist.init_process_group("threads", timeout=timedelta(seconds=60))
        other = dist.new_group([0, 2])
        if rank == 1:
            return None
        before = dist.group.WORLD
        found = dist.shrink_group([1], shrink_flags=flags)
        assert found is dist.group.WORLD is not before
        assert dist.get_pg_count() == 1
        with pytest.raises(ValueError, match="has been destroyed"):
            dist.barrier(other)
        again = dist.new_group([0, 1])
        x = weft.full((1,), float(rank))
        dist.all_reduce(x)
        dist.all_reduce(x, group=again)
        return dist.get_rank(), dist.get_world_size(), x.item()

    assert run_threads(rank_of, nprocs=3) == [(0, 2, 4), None, (1, 2, 4)]


def test_another_group_goes_on_without_some():
    def rank_of(rank):
        dist.init_process_group("threads", timeout=timedelta(seconds=60))
        group = dist.new_group([1, 2, 3])
        if rank not in (1, 3):
            return None
        group = dist.shrink_group([1], group)
        x = weft.full((1,), float(rank))
        dist.all_reduce(x, group=group)
        return group.ranks, dist.get_rank(group), dist.get_rank(), x.item()

    assert run_threads(rank_of, nprocs=4) == [None, ((1, 3), 0, 1, 4), None, ((1, 3), 1, 3, 4)]


@pytest.mark.parametrize(
    ("excluded", "flags", "error", "text"),
    [
        (1, 0, TypeError, "^ranks_to_exclude must be a list, but got int"),
        ([], 0, ValueError, "^ranks_to_exclude cannot be empty"),
        (["1"], 0, TypeError, "^ranks must be integers, but element 0 of "),
        ([2], 0, ValueError, "^Rank 2 at index 0 is out of bounds for group size 2"),
        ([1, 1], 0, ValueError, "^Duplicate rank in ranks_to_exclude"),
        ([0, 1], 0, ValueError, "^Cannot exclude all 2 ranks from process group"),
        ([0], 0, RuntimeError, r"^Current rank 0 is in the exclusion list and should not call shrink_group\(\)"),
        ([1], 5, ValueError, "^Invalid shrink_flags value: 5"),
    ],
)
def test_what_makes_no_sense_to_leave_out(excluded, flags, error, text):
    def rank_of(rank):
        dist.init_process_group("threads")
        if rank == 0:
            with pytest.raises(error, match=text):
                dist.shrink_group(excluded, shrink_flags=flags)
        dist.barrier()

    run_threads(rank_of)


# --- operations ---


def test_barriers_have_a_time_of_their_own():
    failed = threading.Event()

    def rank_of(rank):
        dist.init_process_group("threads")
        if rank == 0:
            with pytest.raises(RuntimeError, match=r"^barrier, rank 0: Timed out waiting 100ms for rank 1"):
                dist.barrier(timeout=timedelta(seconds=0.1))
            failed.set()
        failed.wait(60)
        with pytest.raises(RuntimeError, match="Timed out"):  # on the rank that comes late, too
            dist.barrier()

    run_threads(rank_of)


def test_a_timeout_may_be_a_number():
    def rank_of(rank):
        dist.init_process_group("threads")
        with pytest.warns(UserWarning, match=r"^Please specify timeout arg as a timedelta\. Converting current value"):
            dist.monitored_barrier(timeout=60.0)

    run_threads(rank_of, nprocs=1)


def test_reductions_of_complex_numbers():
    def rank_of(rank):
        dist.init_process_group("threads")
        for op in dist.ReduceOp:
            x = weft.tensor([1 + 2j])
            if dist.supports_complex(op):
                dist.all_reduce(x, op)
            else:
                for reduce in (dist.all_reduce, lambda x, op: dist.all_reduce_coalesced([x], op)):
                    with pytest.raises(ValueError, match=f"^all_reduce does not support {op.name} on complex tensors$"):
                        reduce(x, op)
                with pytest.raises(RuntimeError, match=f"^reduce does not support {op.name} on complex tensors$"):
                    dist.reduce(x, 0, op)
                with pytest.raises(RuntimeError, match=f"^reduce_scatter does not support {op.name} on complex"):
                    dist.reduce_scatter(x, [x], op)
        x = weft.ones(1)
        dist.all_reduce(x, dist._make_nccl_premul_sum(2.0))
        return x.item()

    assert run_threads(rank_of, nprocs=1) == [2]


def test_former_names_of_reductions():
    with pytest.warns(FutureWarning, match=r"^`torch\.distributed\.reduce_op` is deprecated"):
        assert dist.reduce_op.SUM is dist.ReduceOp.SUM
    with pytest.raises(AttributeError, match="has no reduction 'XOR'"):
        dist.reduce_op.XOR


def test_the_module_that_scripts_import_from():
    assert c10d.ReduceOp is dist.ReduceOp
    assert c10d.all_reduce is dist.all_reduce
    assert c10d._coalescing_manager is dist._coalescing_manager
    with pytest.raises(AttributeError, match="has no attribute 'no_such_name'"):
        c10d.no_such_name


def test_addresses_lead_to_a_store():
    store, rank, size = next(dist.rendezvous("tcp://localhost:0?rank=0&world_size=1"))
    assert (rank, size) == (0, 1)
    store.set("a", "b")
    assert store.get("a") == b"b"
    with pytest.raises(RuntimeError, match=r"^`url` must be a string\. <class 'int'>: 3$"):
        dist.rendezvous(3)
    with pytest.raises(RuntimeError, match=r"^Rendezvous handler for tcp:// already registered$"):
        dist.register_rendezvous_handler("tcp", lambda url: iter(()))


# --- debugging ---


def test_the_level_comes_from_the_environment(monkeypatch):
    assert dist.get_debug_level() is dist.DebugLevel.OFF
    for text, level in (("detail", dist.DebugLevel.DETAIL), ("INFO", dist.DebugLevel.INFO)):
        monkeypatch.setenv("TORCH_DISTRIBUTED_DEBUG", text)
        dist.set_debug_level_from_env()
        assert dist.get_debug_level() is level
    monkeypatch.setenv("TORCH_DISTRIBUTED_DEBUG", "much")
    with pytest.raises(ValueError, match=r"^The value of TORCH_DISTRIBUTED_DEBUG must be OFF, INFO, or DETAIL\.$"):
        dist.set_debug_level_from_env()
    dist.set_debug_level(dist.DebugLevel.OFF)
    assert dist.get_debug_level() == 0


STOPPED = """
import sys
import weft.distributed as dist

def program(rank):
    dist.init_process_group("threads")
    answer = rank
    for _ in range(2):
        dist.breakpoint(rank=1, skip=1)
    return dist.group.WORLD.timeout.total_seconds()

print(dist.run_threads(program))
"""


def test_one_rank_stops_in_the_debugger():
    found = subprocess.run(
        [sys.executable, "-c", STOPPED],
        input="up\np f'rank {answer}'\nc\n",
        capture_output=True,
        text=True,
        check=False,
    )
    assert found.returncode == 0, found.stderr
    assert "breakpoint(rank=1): the other ranks wait. Type `up` to see the frame that called it." in found.stdout
    assert "(Pdb) 'rank 1'" in found.stdout
    assert found.stdout.endswith("[3600.0, 3600.0]\n")


def test_optimizers_have_pytorchs_modules():
    from weft.distributed.optim import post_localSGD_optimizer

    assert post_localSGD_optimizer.PostLocalSGDOptimizer is dist.optim.PostLocalSGDOptimizer


@pytest.mark.parametrize(
    "meet", [dist.barrier, dist.monitored_barrier, lambda timeout: dist.new_group(timeout=timeout)]
)
def test_timeouts_are_durations(meet):
    def rank_of(rank):
        dist.init_process_group("threads")
        with pytest.raises(TypeError, match=r"^Expected timeout argument to be of type datetime\.timedelta, got 3$"):
            meet(timeout=3)

    run_threads(rank_of, nprocs=1)


def test_without_a_group_there_is_none_to_destroy():
    with pytest.raises(AssertionError, match=r"^Process group cannot be None"):
        dist.destroy_process_group()


def test_questions_about_a_group_of_others():
    def rank_of(rank):
        dist.init_process_group("threads")
        group = dist.new_group([1])
        if rank:
            return
        for ask in (dist.get_backend, dist.get_backend_config, dist.get_process_group_ranks):
            with pytest.raises(ValueError, match=r"^Invalid process group specified"):
                ask(group)
        assert (dist.get_rank(group), dist.get_world_size(group)) == (-1, -1)
        dist.destroy_process_group(group)

    run_threads(rank_of)
