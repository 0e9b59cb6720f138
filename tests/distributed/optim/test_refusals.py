"""What PyTorch's tests of `ZeroRedundancyOptimizer` and of its neighbours expect to be refused, and as what."""

from __future__ import annotations

import pytest

import weft as torch
import weft.distributed as dist
from tests.distributed.refusals import refuses, rows
from weft import nn
from weft.distributed.algorithms.ddp_comm_hooks.ddp_zero_hook import (
    hook_with_zero_step,
    hook_with_zero_step_interleaved,
)
from weft.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook
from weft.distributed.algorithms.model_averaging.averagers import PeriodicModelAverager
from weft.distributed.optim import PostLocalSGDOptimizer, ZeroRedundancyOptimizer
from weft.nn.parallel import DistributedDataParallel
from weft.optim import SGD

LAYER = nn.Linear(2, 2)


def zero(params, **options):
    return ZeroRedundancyOptimizer(params, SGD, **{"lr": 0.1, **options})


def hooked(hook):
    replica = DistributedDataParallel(nn.Linear(2, 2))
    return hook(allreduce_hook, replica, zero(replica.parameters()))


@pytest.mark.parametrize(
    ("call", "kinds", "text"),
    rows(
        ("empty", lambda: zero([]), ValueError, "empty parameter list"),
        ("one tensor", lambda: zero(torch.randn(1)), TypeError, "iterable"),
        ("a number", lambda: zero(1.2), TypeError, "float"),
        ("an item", lambda: zero([LAYER.weight, 42]), TypeError, "int"),
        ("sparse", lambda: zero([torch.sparse_coo_tensor(size=(2, 3))]), ValueError, "dense"),
        ("a group without parameters", lambda: zero([{"lr": 1}]), ValueError, "'params'"),
        (
            "twice",
            lambda: zero([LAYER.weight]).add_param_group({"params": [LAYER.weight]}),
            ValueError,
            "more than one",
        ),
        ("not collected", lambda: zero([LAYER.weight]).state_dict(), RuntimeError, "has not been consolidated"),
        ("rate", lambda: zero([LAYER.weight], lr=-1), ValueError, "Invalid learning rate: -1"),
        ("option", lambda: zero([LAYER.weight], nope=1), TypeError, "nope"),
        ("hook", lambda: hooked(hook_with_zero_step), ValueError, "overlap_with_ddp=True"),
        ("interleaved hook", lambda: hooked(hook_with_zero_step_interleaved), ValueError, "overlap_with_ddp=True"),
        (
            "no averager",
            lambda: PostLocalSGDOptimizer(SGD(LAYER.parameters(), lr=0.1), None).step(),
            AttributeError,
            "average_parameters",
        ),
        (
            "no state",
            lambda: PostLocalSGDOptimizer(SGD(LAYER.parameters(), lr=0.1), PeriodicModelAverager(2)).load_state_dict(
                {}
            ),
            KeyError,
            "param_groups",
        ),
    ),
)
def test_optimizers(call, kinds, text, alone):
    refuses(call, kinds, text)


@pytest.fixture(scope="module")
def alone():
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield
    dist.destroy_process_group()
