"""What stands behind the results of collectives: memory of the host, which goes to a device when it is needed there."""

from __future__ import annotations

import numpy as np
import pytest

import weft
import weft.distributed as dist
from weft.distributed import run_threads

SIZES = [3, 1 << 16]  # copied to the device, and taken over


@pytest.mark.parametrize("size", SIZES)
def test_a_snapshot_of_a_result_stays(size):
    def rank(me):
        dist.init_process_group("threads")
        x = weft.ones(size)
        dist.all_reduce(x)
        seen, part = x.numpy(), x.numpy()[1:2]
        x.mul_(3)
        x.add_(1)
        assert x[-1].item() == 7
        return seen.sum() + part.item(), seen.flags.writeable

    assert run_threads(rank) == [(2 * size + 2, False)] * 2


@pytest.mark.parametrize("size", SIZES)
def test_a_result_that_others_share_is_not_written_over(size):
    def rank(me):
        dist.init_process_group("threads")
        x = weft.ones(size)
        dist.all_reduce(x)
        twin = x.detach().clone()
        x.mul_(3).add_(1)
        x.sum().item()
        twin.mul_(5)
        return x[0].item(), twin[-1].item()

    assert run_threads(rank) == [(7, 10)] * 2


@pytest.mark.parametrize("size", SIZES)
def test_results_go_round_without_being_looked_at(size):
    def rank(me):
        dist.init_process_group("threads")
        x = weft.full((size,), 1.0 + me, dtype=weft.bfloat16)
        dist.all_reduce(x, async_op=True).wait()
        dist.all_reduce(x, dist.ReduceOp.MAX, async_op=True).wait()
        dist.broadcast(x, 1)
        gathered = [weft.empty_like(x) for _ in range(2)]
        dist.all_gather(gathered, x)
        return np.unique(weft.cat(gathered).float().numpy()).tolist()

    assert run_threads(rank) == [[3.0]] * 2


def test_a_message_under_way_keeps_its_memory():
    def rank(me):
        dist.init_process_group("threads")
        x = weft.ones(1 << 18)
        dist.all_reduce(x)
        if me:
            got = weft.empty(1 << 18)
            dist.recv(got, 0)
            return got.unique().tolist()
        y = x.detach().clone()
        work = dist.isend(x, 1)
        y.mul_(3).add_(1)
        y.sum().item()
        work.wait()
        return y.unique().tolist()

    assert run_threads(rank) == [[7.0], [2.0]]
