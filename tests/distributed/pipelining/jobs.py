"""Programs of the ranks of a pipeline, as threads."""

from __future__ import annotations

import weft.distributed as dist
from weft.distributed.pipelining import PipelineStage, ScheduleGPipe


def on_ranks(count, program):
    """The results of `program(rank)` on the ranks of a new job."""

    def body(rank):
        dist.init_process_group("threads")
        return program(rank)

    return dist.run_threads(body, nprocs=count)


def one_stage(module, rank, count, microbatches, loss_fn=None, schedule=ScheduleGPipe, stage_options=None, **options):
    """The schedule of a rank whose only stage is `module`."""
    stage = PipelineStage(module, rank, count, "cpu", **(stage_options or {}))
    return schedule(stage, microbatches, loss_fn, **options)
