"""Interrupts of ranks that train together."""

import signal
import sys

import pytest

import weft
import weft.distributed as dist
from tests.distributed.processes import ended, start
from tests.interrupting import Interrupts
from weft import nn
from weft.nn.parallel import DistributedDataParallel

STEPS = 100


def step_of(model, reads=True):
    optimizer = weft.optim.AdamW(model.parameters(), lr=1e-3)
    inputs = weft.linspace(-1, 1, 8 * 16).reshape(8, 16)

    def step():
        optimizer.zero_grad()
        loss = model(inputs).square().mean()
        loss.backward()
        optimizer.step()
        return loss.item() if reads else loss

    return optimizer, step


def new_model():
    weft.manual_seed(0)
    return nn.Sequential(nn.Linear(16, 16), nn.GELU(), nn.Linear(16, 4))


def captured_step_of(model):
    """The same step as a function that is captured whole: it averages gradients by collectives of its own."""
    optimizer = weft.optim.AdamW(model.parameters(), lr=1e-3)
    inputs = weft.linspace(-1, 1, 8 * 16).reshape(8, 16)

    @weft.compile(fullgraph=True)
    def step():
        optimizer.zero_grad()
        loss = model(inputs).square().mean()
        loss.backward()
        for parameter in model.parameters():
            dist.all_reduce(parameter.grad, dist.ReduceOp.AVG)
        optimizer.step()

    return optimizer, step


def train(rank, size, folder, trainings, kind):
    """Take part in trainings, whatever comes between; print a line for each."""
    dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=size)
    for training in range(trainings):
        train_once(size * training + rank, kind)
    dist.destroy_process_group()


def train_once(seed, kind):
    """Make the steps of a training; print how many interrupts came, and what each parameter adds up to."""
    if kind == "captured":
        model = new_model()
        optimizer, step = captured_step_of(model)
    else:
        model = DistributedDataParallel(new_model())
        optimizer, step = step_of(model, reads=kind == "averaged by DDP")
        if kind == "averaged by DDP, captured":
            step = weft.compile(step, fullgraph=True)
    for _ in range(3):  # until it is replayed, as whoever captures a function runs it
        step()
    caught = 0
    with Interrupts(seed, 0.005, signal.ITIMER_REAL) as interrupts:
        while next(iter(optimizer.state.values()))["step"].item() < STEPS:
            caught += interrupts.interrupts(step)
    print(caught, *[parameter.sum().item() for parameter in model.parameters()])


@pytest.mark.parametrize(
    ("trainings", "tier"),
    [
        (1, "interpreted"),
        pytest.param(100, "interpreted", marks=pytest.mark.soak),
        pytest.param(100, "auto", marks=pytest.mark.soak),
    ],
)
@pytest.mark.parametrize("kind", ["averaged by DDP", "captured", "averaged by DDP, captured"])
def test_ranks_go_on_together_however_often_each_is_interrupted(tmp_path, trainings, tier, kind):
    arguments = [
        [sys.executable, "-m", __spec__.name, *map(str, (rank, 2, tmp_path, trainings)), kind] for rank in (0, 1)
    ]
    results = ended([start(command, WEFT_TIER=tier) for command in arguments])
    assert [code for code, _, _ in results] == [0, 0], results
    model = new_model()
    _, step = step_of(model)
    for _ in range(STEPS):
        step()
    undisturbed = [parameter.sum().item() for parameter in model.parameters()]
    lines = [[[float(x) for x in line.split()] for line in text.splitlines()] for _, text, _ in results]
    for ours in lines:
        assert sum(caught for caught, *_ in ours) >= 3 * trainings
    for _, *parameters in [*lines[0], *lines[1]]:
        weft.testing.assert_close(parameters, undisturbed, rtol=1e-4, atol=1e-4)
    if tier == "interpreted":  # a program rounds as it is fused, and interrupts cut those of each rank elsewhere
        assert [parameters for _, *parameters in lines[0]] == [parameters for _, *parameters in lines[1]]
    assert len(lines[0]) == trainings


if __name__ == "__main__":
    train(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3], int(sys.argv[4]), sys.argv[5])
