"""Checkpoints of real processes: killed while they save, and trained on by others."""

from __future__ import annotations

import json
import sys

import pytest

from tests.distributed.processes import ended, start


def seen(every, folder):
    """What `killing.py` has seen."""
    command = [sys.executable, "-m", "tests.distributed.checkpoint.killing", str(folder), str(every)]
    ((code, output, errors),) = ended([start(command)])
    assert code == 0, errors
    return json.loads(output)


@pytest.mark.parametrize("every", [5, pytest.param(1, marks=pytest.mark.soak)])
def test_a_rank_that_is_killed_leaves_one_checkpoint_or_the_other(every, tmp_path):
    found = seen(every, tmp_path)
    assert found["value"] == 1
    assert found["names"] == [".metadata", "__0", "__1", "__2"]
    first, second = found["killed"]["0"], found["killed"]["1"]
    assert first == sorted(first)  # the earlier checkpoint is there up to some operation, and the new one after it
    assert {*first} == {0, 1}
    assert {*second} == {0}
    if every == 1:
        assert len(first) > 12
        assert len(second) >= 3  # the folder is opened, and the file made and renamed


def losses(backend, size, job, folder):
    command = [sys.executable, "-m", "tests.distributed.checkpoint.training", backend]
    ranks = [start([*command, str(rank), str(size), str(job), str(folder)]) for rank in range(size)]
    results = []
    for code, output, errors in ended(ranks):
        assert code == 0, errors
        results.append(json.loads(output.splitlines()[-1]))
    assert all(result == results[0] for result in results)
    return results[0]


def test_training_goes_on_while_it_is_saved_and_in_another_number_of_processes(tmp_path):
    first = losses("xla", 2, tmp_path / "job", tmp_path / "checkpoint")
    second = losses("shm", 1, tmp_path / "next", tmp_path / "checkpoint")
    assert second[0] == pytest.approx(first[1], rel=1e-12)  # saved after one step, whatever was trained meanwhile
    assert second[1] < second[0]
