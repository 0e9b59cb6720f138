"""What PyTorch's tests of joins, averages and communication hooks expect to be refused, and as what."""

from __future__ import annotations

from collections import OrderedDict

import pytest

import weft as torch
import weft.distributed as dist
from tests.distributed.refusals import refuses, rows
from weft import nn
from weft.distributed.algorithms.ddp_comm_hooks.powerSGD_hook import PowerSGDState
from weft.distributed.algorithms.join import Join, Joinable, JoinHook
from weft.distributed.algorithms.model_averaging.averagers import PeriodicModelAverager
from weft.distributed.algorithms.model_averaging.hierarchical_model_averager import HierarchicalModelAverager
from weft.nn.parallel import DistributedDataParallel
from weft.utils.data.distributed import DistributedSampler


class Member(Joinable):
    def __init__(self, group=None):
        super().__init__()
        self._group = group

    def join_hook(self, **kwargs):
        return JoinHook()

    @property
    def join_device(self):
        return torch.device("cpu")

    @property
    def join_process_group(self):
        return self._group or dist.group.WORLD


def joined(members, **options):
    with Join(members, **options):
        for member in members:
            Join.notify_join_context(member)


def hooked(hook):
    replica = DistributedDataParallel(nn.Linear(1, 1))
    replica.register_comm_hook(None, hook)
    replica(torch.ones(1, 1)).sum().backward()


def annotated(**annotations):
    def hook(state, bucket):
        pass

    hook.__annotations__ = annotations
    return hook


def raising(state, bucket):
    raise ValueError("mine")


def levels(*pairs):
    return lambda: HierarchicalModelAverager(OrderedDict(pairs))


@pytest.mark.parametrize(
    ("call", "kinds", "text"),
    rows(
        ("nobody", lambda: joined([]), ValueError, "at least one joinable"),
        ("groups", lambda: joined([Member(), Member(dist.new_group([0]))]), ValueError, "process group"),
        (
            "warm-up",
            lambda: PeriodicModelAverager(2, warmup_steps=-1),
            ValueError,
            "``warmup_steps`` must be a non-neg",
        ),
        ("period", lambda: PeriodicModelAverager(0), ValueError, "``period`` must be a positive"),
        ("no levels", levels(), ValueError, "``period_group_size_dict`` must not be empty"),
        ("period of a level", levels((0, 1)), ValueError, "positive"),
        ("last level", levels((2, 4)), ValueError, "4 must be equal to the size of arg ``process_group`` 1"),
        ("iterations", lambda: PowerSGDState(None, start_powerSGD_iter=1), ValueError, "start_powerSGD_iter"),
        ("no hook", lambda: hooked(3), TypeError, "callable"),
        ("annotation", lambda: hooked(annotated(bucket=int)), ValueError, "GradBucket"),
        ("returned annotation", lambda: hooked(annotated(**{"return": int})), ValueError, "Future"),
        ("no future", lambda: hooked(lambda state, bucket: 3), RuntimeError, "must return a torch.futures.Future"),
        ("hook", lambda: hooked(raising), ValueError, "^mine"),
        (
            "rank",
            lambda: DistributedSampler([1, 2], num_replicas=2, rank=2),
            ValueError,
            r"^Invalid rank 2, .*\[0, 1\]$",
        ),
        ("negative rank", lambda: DistributedSampler([1], 2, -1), ValueError, "^Invalid rank -1"),
    ),
)
def test_algorithms(call, kinds, text, alone):
    refuses(call, kinds, text)


@pytest.fixture(scope="module")
def alone():
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield
    dist.destroy_process_group()
