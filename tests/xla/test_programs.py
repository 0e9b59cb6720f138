"""Programs for the lazy device, under the paths that they import, and beside the same without replicas."""

from __future__ import annotations

import subprocess
import sys
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest

import weft as torch
from weft.nn import functional as F
from weft.utils.data import DataLoader, DistributedSampler

EXAMPLE = Path(__file__).parents[2] / "examples" / "xla_lazy.py"
EPOCHS, BATCH = 1, 192


@pytest.mark.parametrize(
    "path",
    [
        "amp.syncfree",
        "core.functions",
        "core.xla_env_vars",
        "core.xla_model",
        "runtime",
        "debug.metrics",
        "debug.profiler",
        "distributed.parallel_loader",
        "distributed.spmd",
        "distributed.spmd.xla_sharding",
        "distributed.xla_backend",
        "distributed.xla_multiprocessing",
        "stablehlo",
        "test.test_utils",
        "utils.checkpoint",
        "utils.serialization",
        "utils.utils",
    ],
)
def test_torch_xlas_paths_lead_to_the_same_modules(path):
    assert import_module(f"weft_xla.{path}") is import_module(f"weft.xla.{path}")


def test_importing_them_needs_no_extra_packages():
    script = "import sys, weft_xla; print('tensorboard' in sys.modules)"
    assert (
        subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout == "False\n"
    )


def plain_weights(example):
    """What the example trains, without anything of `weft.xla`."""
    torch.manual_seed(0)
    training, _ = example.digits()
    sampler = DistributedSampler(training, num_replicas=1, rank=0, shuffle=True)
    model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 10))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    for epoch in range(EPOCHS):
        sampler.set_epoch(epoch)
        for images, labels in DataLoader(training, BATCH, sampler=sampler):
            optimizer.zero_grad()
            F.cross_entropy(model(images), labels).backward()
            optimizer.step()
    return model.state_dict()


@pytest.mark.soak
def test_the_example_trains_as_a_plain_program_does(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(EXAMPLE.parent)
    expected = plain_weights(import_module("xla_lazy"))
    file = tmp_path / "weights.pt"
    options = f"--replicas 2 --epochs {EPOCHS} --batch {BATCH} --save {file}".split()
    said = subprocess.run(
        [sys.executable, EXAMPLE, *options], capture_output=True, text=True, timeout=240, check=True
    ).stdout
    assert said.count("step 0: loss ") == 1, "only one replica prints"
    assert "accuracy " in said
    weights = torch.load(file)
    assert {str(value.device) for value in weights.values()} == {"cpu"}
    for name, value in expected.items():
        np.testing.assert_allclose(weights[name], value, rtol=1e-3, atol=1e-5, err_msg=name)
