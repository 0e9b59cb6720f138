"""Mixed precision beside PyTorch's, on the CPU: gradient scaling number for number, and the types of results."""

from __future__ import annotations

import numpy as np
import pytest

import weft
from tests.amp.test_classes import CASES

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.oracle

OPTIMIZERS = [
    ("SGD", {"lr": 0.1}),
    ("SGD", {"lr": 0.1, "momentum": 0.9, "dampening": 0.3, "weight_decay": 0.1}),
    ("SGD", {"lr": 0.1, "momentum": 0.9, "nesterov": True}),
    ("Adam", {"lr": 0.1, "amsgrad": True}),
    ("AdamW", {"lr": 0.1}),
    ("RMSprop", {"lr": 0.1, "momentum": 0.5, "centered": True}),
    ("Adagrad", {"lr": 0.1}),
    ("Adadelta", {"lr": 0.5}),
    ("Adamax", {"lr": 0.1}),
    ("NAdam", {"lr": 0.1}),
    ("RAdam", {"lr": 0.1}),
    ("ASGD", {"lr": 0.1}),
    ("Rprop", {"lr": 0.1}),
    ("Adafactor", {"lr": 0.1}),
    ("Muon", {"lr": 0.1}),
]
SETTINGS = [
    {"init_scale": 1024.0, "growth_interval": 2},
    {"init_scale": 3.0, "growth_factor": 1.7, "backoff_factor": 0.3, "growth_interval": 1},
    {"init_scale": 2.0**127, "growth_factor": 8.0, "growth_interval": 1},
]
PATTERNS = ["..!...!!.....!..", "!!......", "n.....n.n", "................"]
"""What is put into gradients: nothing, an infinity, or NaN."""


def trajectory(framework, name, options, settings, pattern, dtype):
    rng = np.random.default_rng(0)
    params = [
        framework.nn.Parameter(framework.tensor(rng.normal(size=shape).astype(dtype))) for shape in ((2, 3), (3, 2))
    ]
    optimizer = getattr(framework.optim, name)(params, **options)
    scaler = framework.amp.GradScaler("cpu", **settings)
    path = []
    for at, mark in enumerate(pattern):
        optimizer.zero_grad()
        factors = [rng.normal(size=tuple(p.shape)).astype(dtype) for p in params]
        loss = sum((p * framework.tensor(f)).sum() for p, f in zip(params, factors, strict=True))
        scaler.scale(loss).backward()
        if mark != ".":
            params[at % 2].grad[0, 0] = float("inf" if mark == "!" else "nan")
        if at % 3 == 1:
            scaler.unscale_(optimizer)
            framework.nn.utils.clip_grad_norm_(params, 1.0)
        scaler.step(optimizer)
        scaler.update()
        state = scaler.state_dict()
        grads = [p.grad.detach().numpy().copy() for p in params]
        path.append((state, [p.detach().numpy().copy() for p in params], grads))
    return path


@pytest.mark.parametrize("pattern", PATTERNS)
@pytest.mark.parametrize("settings", SETTINGS, ids=["usual", "odd", "largest"])
@pytest.mark.parametrize(("name", "options"), OPTIMIZERS, ids=[f"{n}-{len(o)}" for n, o in OPTIMIZERS])
def test_scaled_training_goes_where_pytorch_goes(name, options, settings, pattern):
    dtype = "float32" if name == "Muon" else "float64"
    ours = trajectory(weft, name, options, settings, pattern, dtype)
    theirs = trajectory(torch, name, options, settings, pattern, dtype)
    bound = 2e-2 if name == "Muon" else 1e-5 if settings["init_scale"] > 1e30 else 1e-9
    for (state, params, grads), (their_state, their_params, their_grads) in zip(ours, theirs, strict=True):
        assert state == their_state
        for mine, other in zip((*params, *grads), (*their_params, *their_grads), strict=True):
            np.testing.assert_allclose(mine, other, rtol=bound, atol=bound)


@pytest.mark.parametrize("op", ["mm", "bmm", "addmm", "baddbmm", "matmul", "mv", "dot", "exp", "sum", "prod", "cdist"])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float64"])
def test_results_have_pytorchs_types(op, dtype):
    _, inputs = CASES[op]
    types = []
    for framework in (weft, torch):
        tensors = [framework.tensor(x.numpy()).to(getattr(framework, dtype)) for x in inputs]
        call = getattr(framework, op)
        with framework.autocast("cpu"):
            types.append(str(call(*tensors).dtype))
    assert types[0] == types[1]
