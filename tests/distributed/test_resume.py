"""Training that loses a process goes on where its checkpoint was written, exactly, with any number of processes."""

from __future__ import annotations

import json
import shutil
import sys

import pytest

import weft
from tests.distributed import training
from tests.distributed.elastic.nodes import SECONDS
from tests.forked import ran

STEPS = training.EPOCHS * (training.COUNT // training.BATCH)
KILLED = 5  # in the second epoch; the checkpoint is of step 4


def launch(folder, processes, *victim, restarts=0, code=0):
    """Train in some processes to the end, or to the death of one of them."""
    folder.mkdir(exist_ok=True)
    flags = ["--standalone", "--nproc-per-node", str(processes), "--max-restarts", str(restarts)]
    program = [training.__file__, str(folder), *map(str, victim)]
    done = ran([sys.executable, "-m", "weft.distributed.run", *flags, *program], timeout=3 * SECONDS)
    assert done.returncode == code, done.stderr


def batches(folder):
    """What was trained on in each step, by all processes together; where a step was made twice, the second time."""
    found = {}
    for line in (folder / "samples").read_text().splitlines():
        attempt, step, numbers = json.loads(line)
        found.setdefault((attempt, step), []).extend(numbers)
    return {step: sorted(found[attempt, step]) for attempt, step in sorted(found)}


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    folder = tmp_path_factory.mktemp("undisturbed")
    launch(folder, 2)
    return folder


@pytest.fixture(scope="module")
def killed(tmp_path_factory):
    """The same, but rank 1 is killed, and the launcher starts both anew."""
    folder = tmp_path_factory.mktemp("killed")
    launch(folder, 2, 1, KILLED, restarts=1)
    return folder


@pytest.mark.slow
def test_a_killed_run_ends_with_the_bits_of_an_undisturbed_one(undisturbed, killed):
    samples = batches(undisturbed)
    assert [len(batch) for batch in samples.values()] == [training.BATCH] * STEPS
    assert batches(killed) == samples
    lines = [json.loads(line) for line in (killed / "samples").read_text().splitlines()]
    assert min(step for attempt, step, _ in lines if attempt == "1") == KILLED, "it went on behind the checkpoint"
    whole, parts = (weft.load(folder / "final.weft") for folder in (undisturbed, killed))
    assert (whole["step"], whole["lr"]) == (parts["step"], parts["lr"]) == (STEPS, whole["lr"])
    for name, tensor in whole["model"].items():
        assert tensor.numpy().tobytes() == parts["model"][name].numpy().tobytes(), name


@pytest.mark.slow
def test_other_processes_go_on_with_the_same_batches(undisturbed, killed, tmp_path):
    shutil.copy(killed / "left.weft", tmp_path / "checkpoint.weft")
    launch(tmp_path, 3)
    samples = batches(undisturbed)
    assert batches(tmp_path) == {step: samples[step] for step in range(KILLED, STEPS + 1)}
    whole, parts = (weft.load(folder / "final.weft") for folder in (undisturbed, tmp_path))
    assert (whole["step"], whole["lr"]) == (parts["step"], parts["lr"])
