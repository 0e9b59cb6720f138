"""Averages of models."""

from __future__ import annotations

from datetime import timedelta

import pytest

import weft
import weft.distributed as dist
from weft import nn
from weft.distributed.algorithms.model_averaging import utils
from weft.distributed.algorithms.model_averaging.averagers import PeriodicModelAverager
from weft.distributed.algorithms.model_averaging.hierarchical_model_averager import HierarchicalModelAverager


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


def test_larger_groups_average_more_rarely():
    def body(rank):
        averager = HierarchicalModelAverager({1: 2, 2: 4}, warmup_steps=1)
        w, found = parameter(rank), []
        for _ in range(4):
            averager.average_parameters([w])
            found.append(w.item())
            w.data += 10 * rank
        assert averager.step == 4
        return found

    halves, whole = ([5.5, 27.5], 16.5 + 15), (5.0, 25.0)
    expected = [[rank, halves[0][rank // 2], halves[1], halves[1] + whole[rank // 2]] for rank in range(4)]
    assert run(body, 4) == expected


def test_neighbours_are_those_of_the_group():
    def body(rank):
        group = dist.new_group([1, 2, 3, 4])
        if rank == 0:
            return None
        averager = HierarchicalModelAverager({1: 2, 4: 4}, process_group=group)
        assert averager.period_process_group_dict[4] is group
        return dist.get_process_group_ranks(averager.period_process_group_dict[1])

    assert run(body, 5) == [None, [1, 2], [1, 2], [3, 4], [3, 4]]


@pytest.mark.parametrize(
    ("sizes", "warmup", "text"),
    [
        (None, 0, "^Arg ``period_group_size_dict`` must not be empty"),
        ({0: 2}, 0, "^The minimum period in arg ``period_group_size_dict`` must be a positive value"),
        ({2: 1}, 0, "^The last value in arg ``period_group_size_dict`` 1 must be equal to the size of arg "),
        ({2: 2}, -1, "^Arg ``warmup_steps`` must be a non-negative number"),
    ],
)
def test_a_hierarchy_that_makes_no_sense_is_refused(sizes, warmup, text):
    def body(rank):
        with pytest.raises(ValueError, match=text):
            HierarchicalModelAverager(sizes, warmup)

    run(body)


def test_a_hierarchy_for_each_step_is_of_no_use():
    def body(rank):
        with pytest.warns(
            UserWarning, match="^When the maximum period in arg ``period_group_size_dict`` is 1, no need"
        ):
            HierarchicalModelAverager({1: 1})

    run(body, 1)
