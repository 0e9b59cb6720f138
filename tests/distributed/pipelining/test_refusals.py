"""What PyTorch refuses of pipelines, and as what."""

from __future__ import annotations

import pytest

import weft as torch
import weft.distributed as dist
from tests.distributed.refusals import refuses, rows
from weft import nn
from weft.distributed.pipelining import (
    PipelineStage,
    ScheduleGPipe,
    ScheduleInterleaved1F1B,
    ScheduleZBVZeroBubble,
    SplitPoint,
    pipeline,
)
from weft.distributed.pipelining.microbatch import TensorChunkSpec, merge_chunks, split_args_kwargs_into_chunks
from weft.distributed.pipelining.schedules import get_schedule_class

X = torch.ones(8, 4)
FIRST = TensorChunkSpec(0)


def halves():
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
    return pipeline(model, (X,), split_spec={"1": SplitPoint.BEGINNING})


@pytest.mark.parametrize(
    ("call", "kinds", "text"),
    rows(
        (
            "too few specs",
            lambda: split_args_kwargs_into_chunks((X, X), {}, 2, (FIRST,)),
            AssertionError,
            "2 positional",
        ),
        (
            "another spec",
            lambda: split_args_kwargs_into_chunks((X,), {}, 2, (3,)),
            AssertionError,
            "TensorChunkSpec.* 3$",
        ),
        ("no chunks", lambda: split_args_kwargs_into_chunks((X,), {}, 0), RuntimeError, "larger than 0, got 0"),
        ("no dim", lambda: split_args_kwargs_into_chunks((X,), {}, 2, (TensorChunkSpec(7),)), IndexError, "got 7"),
        ("nothing to merge", lambda: merge_chunks([], (FIRST,)), ValueError, "at least one microbatch"),
        ("another merge spec", lambda: merge_chunks([(X,), (X,)], (3,)), AssertionError, "TensorChunkSpec.* 3$"),
        ("other structures", lambda: merge_chunks([(X,), (X, X)], (FIRST,)), ValueError, "did not match chunk spec"),
        ("other values", lambda: merge_chunks([(1,), (2,)], (None,)), AssertionError, r"equal, but got \(1, 2\)"),
        ("no schedule", lambda: get_schedule_class("nope"), ValueError, "^Unknown schedule .*nope"),
        ("no stage", lambda: halves().get_stage_module(5), ValueError, "^Invalid stage index 5"),
        (
            "no submodule",
            lambda: pipeline(nn.Sequential(nn.Linear(4, 4)), (X,), split_spec={"nope": SplitPoint.BEGINNING}),
            AttributeError,
            "'nope'",
        ),
        (
            "no split point",
            lambda: pipeline(nn.Sequential(nn.Linear(4, 4)), (X,), split_spec={"0": 3}),
            ValueError,
            "^Unknown split point type",
        ),
    ),
)
def test_models_and_batches(call, kinds, text):
    refuses(call, kinds, text)


def stage(index=0, count=1):
    return PipelineStage(nn.Linear(4, 4), index, count, torch.device("cpu"))


@pytest.mark.parametrize(
    ("call", "kinds", "text"),
    rows(
        ("index", lambda: stage(2, 2), ValueError, "^Stage index 2 is out of range of 2"),
        (
            "losses",
            lambda: ScheduleGPipe(stage(), 2, loss_fn=nn.MSELoss()).step(X, target=X, losses=3),
            TypeError,
            "list",
        ),
        ("batch", lambda: ScheduleGPipe(stage(), 2).step(torch.ones(1, 4)), ValueError, "2"),
        ("V of one", lambda: ScheduleZBVZeroBubble([stage()], 4), ValueError, "2 stages"),
        (
            "rounds",
            lambda: ScheduleInterleaved1F1B([stage(0, 2), stage(1, 2)], 0),
            ValueError,
            "microbatches",
        ),
    ),
)
def test_stages_and_schedules(call, kinds, text, alone):
    refuses(call, kinds, text)


@pytest.fixture(scope="module")
def alone():
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield
    dist.destroy_process_group()
