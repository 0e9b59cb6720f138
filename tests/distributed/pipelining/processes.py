"""A rank of a job that trains a model in stages: `processes.py BACKEND RANK SIZE FILE`."""

from __future__ import annotations

import sys

import numpy as np
import pytest

import weft.distributed as dist
from tests.distributed.pipelining.models import batches, cross_entropy, stages_of, trained, trained_by, whole_model
from weft.distributed.pipelining import ScheduleInterleavedZeroBubble
from weft.errors import DistBackendError


def main():
    backend, rank, size, file = sys.argv[1:]
    rank, size = int(rank), int(size)
    dist.init_process_group(backend, init_method=f"file://{file}", rank=rank, world_size=size)
    stages = stages_of(whole_model(), [rank, rank + size], 2 * size)
    schedule = ScheduleInterleavedZeroBubble(stages, 4, cross_entropy)
    losses = trained_by(schedule, stages, 3)
    if losses:
        np.testing.assert_allclose(losses, trained(whole_model(), 3), rtol=1e-9)
    fail_in_one(schedule, stages, rank)
    dist.destroy_process_group()
    sys.stdout.write("trained\n")


def fail_in_one(schedule, stages, rank):
    """A forward that raises in rank 1 ends the step of rank 0, too."""
    ((tokens, targets),) = batches(1)
    if rank:
        stages[1].submod.register_forward_pre_hook(lambda module, args: 1 / 0)
    kind, text = (ZeroDivisionError, "division") if rank else (DistBackendError, "rank 1 has aborted .* of stage 3")
    with pytest.raises(kind, match=text):
        schedule.step(tokens, target=targets)


if __name__ == "__main__":
    main()
