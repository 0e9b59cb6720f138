"""Averages of models."""

from __future__ import annotations

from datetime import timedelta

import pytest

import weft
import weft.distributed as dist
from weft import nn
from weft.distributed.algorithms.model_averaging import utils
from weft.distributed.algorithms.model_averaging.averagers import PeriodicModelAverager


def run(body, nprocs=2):
    def rank_of(rank):
        dist.init_process_group("threads", timeout=timedelta(seconds=60))
        return body(rank)

    return dist.run_threads(rank_of, nprocs=nprocs)


def parameter(value, dtype=weft.float32):
    found = nn.Parameter(weft.tensor([float(value)], dtype=dtype))
    found.grad = weft.zeros(1, dtype=dtype)
    return found


@pytest.mark.parametrize("groups", [False, True])
def test_models_are_averaged_periodically_after_a_while(groups):
    def body(rank):
        used = [parameter(rank), parameter(10 * rank, weft.float64)]
        unused = nn.Parameter(weft.full((1,), float(rank)))
        averager = PeriodicModelAverager(period=2, warmup_steps=1)
        found = []
        for _ in range(5):
            averager.average_parameters([{"params": [*used, unused]}] if groups else [*used, unused])
            found.append([p.item() for p in (*used, unused)])
            for p in used:
                p.data += rank
        assert averager.step == 5
        return found

    first, second = run(body)
    assert first == [[0, 0, 0], [1, 5.5, 0], [1, 5.5, 0], [2, 6.5, 0], [2, 6.5, 0]]
    assert second == [[1, 10, 1], [1, 5.5, 1], [2, 6.5, 1], [2, 6.5, 1], [3, 7.5, 1]]


def test_what_makes_no_sense_is_refused():
    def body(rank):
        with pytest.raises(ValueError, match="Arg ``warmup_steps`` must be a non-negative number"):
            PeriodicModelAverager(2, -1)
        with pytest.raises(ValueError, match="Arg ``period`` must be a positive value"):
            PeriodicModelAverager(0)
        with pytest.warns(UserWarning, match="When period is 1, no need to use model averaging"):
            PeriodicModelAverager(1)
        with pytest.raises(TypeError, match="Parameter input of type <class 'int'> is not supported"):
            utils.get_params_to_average([3])

    run(body, 1)
