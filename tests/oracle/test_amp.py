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


LOSSES = [
    "cross_entropy(x, labels)",
    "cross_entropy(x, y.softmax(1), label_smoothing=0.1)",
    "nll_loss(x, labels)",
    "l1_loss(x, y)",
    "mse_loss(x, y)",
    "smooth_l1_loss(x, y)",
    "huber_loss(x, y)",
    "binary_cross_entropy(x, y)",
    "binary_cross_entropy_with_logits(x, y)",
    "poisson_nll_loss(x, y, full=True)",
    "hinge_embedding_loss(x, y)",
    "margin_ranking_loss(x, y, y)",
    "soft_margin_loss(x, y)",
    "triplet_margin_loss(x, y, y + 1)",
    "triplet_margin_with_distance_loss(x, y, y + 1)",
    "multi_margin_loss(x, labels)",
    "multilabel_margin_loss(x, places)",
    "multilabel_soft_margin_loss(x, y)",
    "cosine_embedding_loss(x, y, ones)",
    "kl_div(x, y, reduction='batchmean')",
    "gaussian_nll_loss(x, y, y)",
    "log_softmax(x, 1)",
    "prelu(x, ones[:1])",
    "cosine_similarity(x, y)",
    "pairwise_distance(x, y)",
    "layer_norm(x, (3,))",
]


@pytest.mark.parametrize("lower", ["bfloat16", "float16"])
@pytest.mark.parametrize("given", ["float32", "bfloat16", "float16"])
@pytest.mark.parametrize("expression", LOSSES)
def test_losses_have_pytorchs_types(expression, given, lower):
    types = []
    for framework in (weft, torch):
        x, y = (framework.tensor([[0.1, 0.2, 0.3], [0.4, 0.5, at]]).to(getattr(framework, given)) for at in (0.6, 0.7))
        scope = {"x": x, "y": y, "ones": y[:, 0] * 0 + 1, "labels": framework.tensor([0, 2])}
        scope["places"] = framework.zeros(2, 3, dtype=framework.int64)
        with framework.autocast("cpu", dtype=getattr(framework, lower)):
            result = eval(f"framework.nn.functional.{expression}", {"framework": framework, **scope})
        types.append(str(result.dtype))
    assert types[0] == types[1]
