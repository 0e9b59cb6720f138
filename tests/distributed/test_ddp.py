"""`DistributedDataParallel`, with ranks as threads. That replicas equal one process is in `test_replicas.py`."""

from __future__ import annotations

import copy
import io
import os
import threading
from datetime import timedelta

import pytest

import weft
import weft.distributed as dist
from weft import nn
from weft.distributed.device_mesh import init_device_mesh
from weft.nn.modules.module import register_module_forward_pre_hook, register_module_full_backward_hook
from weft.nn.parallel import DistributedDataParallel


@pytest.fixture(autouse=True)
def _cores(monkeypatch):
    """Enough of them to send buckets while the backward pass goes on."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(64)))


def join():
    dist.init_process_group("threads", timeout=timedelta(seconds=60))


class Partly(nn.Module):
    """Which of its layers takes part depends on what it is told."""

    def __init__(self):
        super().__init__()
        self.a, self.b, self.never = nn.Linear(2, 2), nn.Linear(2, 2), nn.Linear(2, 2)

    def forward(self, x, which):
        return (self.a if which == "a" else self.b)(x).sum()


def test_unused_parameters_are_named_with_the_first_rank_that_differs():
    def body(rank):
        join()
        model = DistributedDataParallel(Partly())
        with pytest.raises(RuntimeError) as caught:
            model(weft.ones(1, 2), "ab"[rank % 2]).backward()
        return str(caught.value)

    found = dist.run_threads(body, nprocs=3)
    assert found[0].startswith(
        "Rank 0: parameters without a gradient in this backward pass: b.weight, b.bias, never.weight, never.bias. "
        "The first rank that differs is rank 1, where they are: a.weight, a.bias, never.weight, never.bias. "
    )
    assert "find_unused_parameters=True" in found[2]


def test_unused_parameters_may_be_found():
    def body(rank):
        join()
        module = Partly()
        model = DistributedDataParallel(module, find_unused_parameters=True)
        found = []
        for which in ("ab"[rank % 2], "a"):
            model.zero_grad()
            model(weft.full((1, 2), rank + 1.0), which).backward()
            found.append([None if p.grad is None else p.grad.tolist() for p in (module.a.bias, module.b.bias)])
        assert module.never.weight.grad is None
        return found

    for found in dist.run_threads(body, nprocs=2):
        assert found[0] == [[0.5, 0.5], [0.5, 0.5]]
        assert found[1] == [[1, 1], None]


def test_gradients_add_up_without_sync():
    def body(rank):
        join()
        module = nn.Linear(1, 1, bias=False)
        model = DistributedDataParallel(module)
        with model.no_sync():
            model(weft.tensor([[rank + 1.0]])).backward()
        alone = module.weight.grad.item()
        model(weft.tensor([[10.0]])).backward()
        return alone, module.weight.grad.item()

    assert dist.run_threads(body) == [(1, 11.5), (2, 11.5)]


def test_a_communication_hook_takes_the_place_of_the_average():
    def body(rank):
        join()
        module = nn.Sequential(nn.Linear(3, 2, bias=False), nn.Linear(2, 1, bias=False))
        model = DistributedDataParallel(module, bucket_cap_mb=5e-6)
        seen = []

        def hook(state, bucket):
            seen.append((state, bucket.index(), bucket.is_last(), [tuple(g.shape) for g in bucket.gradients()]))
            work = dist.all_reduce(bucket.buffer(), async_op=True)
            return work.get_future().then(lambda future: 10 * future.value()[0])

        model.register_comm_hook("state", hook)
        with pytest.raises(RuntimeError, match="can only be called once"):
            model.register_comm_hook("state", hook)
        model(weft.ones(1, 3)).sum().backward()
        assert seen == [("state", 0, False, [(1, 2)]), ("state", 1, True, [(2, 3)])]
        weights = module[1].weight.detach().tolist()[0]
        assert module[0].weight.grad.tolist() == [pytest.approx([20 * w] * 3) for w in weights]

    dist.run_threads(body)


def test_buffers_are_those_of_rank_0():
    def body(rank):
        join()
        module = nn.BatchNorm1d(2)
        model = DistributedDataParallel(module)
        for _ in range(2):
            model(weft.full((4, 2), float(rank + 1))).sum().backward()
        model(weft.zeros(4, 2))
        return module.running_mean.tolist()

    first, second = dist.run_threads(body)
    assert first == second


@pytest.mark.parametrize(
    ("options", "at_start", "later"),
    [({}, True, True), ({"forward_sync_buffers": False}, True, False), ({"init_sync": False}, False, True)],
)
def test_when_buffers_are_made_equal(options, at_start, later):
    def body(rank):
        join()
        module = nn.BatchNorm1d(1, affine=True).eval()
        module.running_mean.fill_(float(rank))
        model = DistributedDataParallel(module, **options)
        first = module.running_mean.item()
        found = []
        for trains in (False, False, True, False):  # the first pass, and the first after one that trains
            module.running_mean.fill_(float(rank))
            with weft.set_grad_enabled(trains):
                model(weft.ones(2, 1))
            found.append(module.running_mean.item())
        return first, found

    zero, (first, found) = dist.run_threads(body)
    assert zero == (0, [0, 0, 0, 0])
    assert first == (0 if at_start else 1)
    assert found == ([0, 1, 1, 0] if later else [1, 1, 1, 1])


def test_models_that_differ_are_refused():
    def body(rank):
        join()
        DistributedDataParallel(nn.Linear(2, 2 + rank))

    with pytest.raises(RuntimeError, match=r"parameter weight of shape \[[23], 2\] and type"):
        dist.run_threads(body)


def test_a_module_without_parameters_and_a_bad_bucket_size_are_refused():
    def body(rank):
        join()
        with pytest.raises(RuntimeError, match="doesn't have any parameter that requires a gradient"):
            DistributedDataParallel(nn.ReLU())
        with pytest.raises(ValueError, match="bucket_cap_mb must be positive"):
            DistributedDataParallel(nn.Linear(1, 1), bucket_cap_mb=0)

    dist.run_threads(body, nprocs=1)
    with pytest.raises(ValueError, match="Default process group has not been initialized"):
        DistributedDataParallel(nn.Linear(1, 1))


@pytest.mark.parametrize("buffers", [False, True])
def test_unequal_numbers_of_steps_are_told_of_join(buffers):
    def run(rank):
        join()
        model = DistributedDataParallel(nn.BatchNorm1d(2) if buffers else nn.Linear(2, 2))
        model(weft.ones(2, 2)).sum().backward()
        if rank == 1:
            with pytest.raises(RuntimeError, match=r": rank 0 has left the group\n") as raised:
                model(weft.ones(2, 2)).sum().backward()
            return raised.value.__notes__

    told = ["if ranks have unequal numbers of batches, train in `with model.join():`"]
    assert dist.run_threads(run) == [None, told]


def test_hooks_of_all_modules_see_replicas():
    from_torch = ["DistributedDataParallel", "Sequential", "Linear"]

    calls = {f"rank {rank}": [] for rank in range(2)}

    def see(module, *_):
        calls[threading.current_thread().name].append(type(module).__name__)

    def body(rank):
        join()
        net = DistributedDataParallel(nn.Sequential(nn.Linear(3, 4)))
        net(weft.ones(2, 3, requires_grad=True)).sum().backward()

    with register_module_forward_pre_hook(see), register_module_full_backward_hook(see):
        dist.run_threads(body, nprocs=2)
    assert list(calls.values()) == [from_torch + from_torch[::-1]] * 2


def test_copies_and_files_of_a_replica_are_replicas():
    def program(rank):
        dist.init_process_group("threads")
        replica = DistributedDataParallel(weft.nn.Linear(2, 1), static_graph=True)
        weft.nn.init.ones_(replica.module.weight)
        average = weft.optim.swa_utils.AveragedModel(replica)
        file = io.BytesIO()
        weft.save(replica, file)
        file.seek(0)
        copies = [copy.deepcopy(replica), average.module, weft.load(file, weights_only=False)]
        weft.nn.init.zeros_(replica.module.weight)
        for one in copies:
            one(weft.full((1, 2), float(rank))).sum().backward()
        assert replica.module.weight.grad is None
        own = DistributedDataParallel(weft.nn.Linear(2, 1), process_group=dist.new_group([0, 1]))
        with pytest.raises(RuntimeError, match="only supported when using DDP with the default process group"):
            copy.deepcopy(own)
        return [(one.module.weight.tolist(), one.module.weight.grad.tolist()) for one in copies]

    assert dist.run_threads(program) == [[([[1, 1]], [[0.5, 0.5]])] * 3] * 2


def test_a_mesh_gives_the_group():
    def body(rank):
        join()
        mesh = init_device_mesh("cpu", (2, 1), mesh_dim_names=("dp", "tp"))["dp"]
        module = DistributedDataParallel(nn.Linear(1, 1, bias=False), device_mesh=mesh)
        module(weft.full((1, 1), 1.0 + rank)).sum().backward()
        assert module.device_mesh is mesh
        assert module.process_group is mesh.get_group()
        return module.module.weight.grad.item()

    assert dist.run_threads(body) == [1.5, 1.5]
