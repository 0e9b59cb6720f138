"""Replicas against PyTorch's over Gloo: one program, run with either framework in two processes."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

pytestmark = pytest.mark.oracle

PROGRAM = """
import importlib, sys
import numpy as np

name, hook, rank, folder = sys.argv[1:]
torch = importlib.import_module(name)
dist = importlib.import_module(f"{name}.distributed")
hooks = importlib.import_module(f"{name}.distributed.algorithms.ddp_comm_hooks")
power = importlib.import_module(f"{name}.distributed.algorithms.ddp_comm_hooks.powerSGD_hook")
default = importlib.import_module(f"{name}.distributed.algorithms.ddp_comm_hooks.default_hooks")
overlap = importlib.import_module(f"{name}.distributed.algorithms.ddp_comm_hooks.optimizer_overlap_hooks")
optim = importlib.import_module(f"{name}.distributed.optim")
Join = importlib.import_module(f"{name}.distributed.algorithms.join").Join
nn, rank = torch.nn, int(rank)
dist.init_process_group("gloo", init_method=f"file://{folder}/{name}", rank=rank, world_size=2)

rng = np.random.default_rng(0)
module = nn.Sequential(nn.Linear(16, 16), nn.Tanh(), nn.Linear(16, 16), nn.Tanh(), nn.Linear(16, 1)).double()
for p in module.parameters():
    p.data.copy_(torch.tensor(rng.standard_normal(tuple(p.shape)) / 4))
uneven = hook.endswith("join")
zero = hook == "zero" or (hook == "zero join" and name == "weft")  # PyTorch's leaves gradients of its join to the user
model = nn.parallel.DistributedDataParallel(module, gradient_as_bucket_view=zero and not uneven)
state = None
if hook == "powerSGD_hook":
    state = power.PowerSGDState(None, 3, start_powerSGD_iter=2, min_compression_rate=1)
    model.register_comm_hook(state, power.powerSGD_hook)
elif hook == "optimizer":
    functional = optim.as_functional_optim(torch.optim.Adam, 0.01, betas=(0.8, 0.99))
    last = overlap._OptimizerHookState(functional, list(module.parameters())[2:])
    model.register_comm_hook(None, overlap._hook_then_optimizer(default.allreduce_hook, last))
elif hook.endswith("hook"):
    model.register_comm_hook(None, getattr(default, hook))


def same_start():
    "The random Q of the first step, which the frameworks draw differently."
    state.q_memory_dict[0] = torch.tensor(np.random.default_rng(1).standard_normal(2 * 16 * 3))
    if name == "torch":
        state.p_memory_dict[0] = torch.empty_like(state.q_memory_dict[0])


if hook == "optimizer":
    optimizer = torch.optim.SGD(list(module.parameters())[:2], lr=0.05, momentum=0.9)
elif hook == "zero join" and not zero:
    optimizer = torch.optim.AdamW(module.parameters(), lr=0.05, betas=(0.8, 0.99))
elif zero:
    optimizer = optim.ZeroRedundancyOptimizer(module.parameters(), torch.optim.AdamW, lr=0.05, betas=(0.8, 0.99))
else:
    optimizer = torch.optim.SGD(module.parameters(), lr=0.05, momentum=0.9)
schedule = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.9)
inputs = np.random.default_rng((2, rank)).standard_normal((8, 4, 16))
steps = 5 + 3 * rank if uneven else 8
with Join([model, optimizer] if zero else [model], enable=uneven, divide_by_initial_world_size=hook == "zero join"):
    for step in range(steps):
        if step == 2 and state is not None:
            same_start()
        optimizer.zero_grad()
        model(torch.tensor(inputs[step])).square().mean().backward()
        optimizer.step()
        uneven or schedule.step()
found = [p.detach().numpy() for p in module.parameters()]
if hook == "zero":
    optimizer.consolidate_state_dict(to=1)
    if rank == 1:
        saved = optimizer.state_dict()
        found += [np.asarray(saved["param_groups"][0]["lr"]), np.asarray(list(saved["state"]))]
        found += [np.asarray(value) for state in saved["state"].values() for _, value in sorted(state.items())]
np.savez(f"{folder}/{name}{rank}.npz", *found)
dist.destroy_process_group()
"""


def states(hook, folder):
    """The parameters that each framework ends with, by framework and rank."""
    found = {}
    for name in ("torch", "weft"):
        ranks = [
            subprocess.Popen(
                [sys.executable, "-c", PROGRAM, name, hook, str(rank), str(folder)], stderr=subprocess.PIPE, text=True
            )
            for rank in range(2)
        ]
        errors = [process.communicate(timeout=240)[1] for process in ranks]
        assert [process.returncode for process in ranks] == [0, 0], errors
        found[name] = [list(np.load(f"{folder}/{name}{rank}.npz").values()) for rank in range(2)]
    return found


@pytest.mark.parametrize(
    ("hook", "exact"),
    [
        ("allreduce_hook", 1e-12),
        ("fp16_compress_hook", 1e-4),  # where bits are lost, rounding may fall on either side
        ("powerSGD_hook", 1e-9),  # PyTorch 2.13's batched form fails in an assertion
        ("join", 1e-12),
        ("optimizer", 1e-12),
        ("zero", 1e-12),
        ("zero join", 1e-12),
    ],
)
def test_training_ends_where_it_does_with_pytorch(hook, exact, tmp_path):
    found = states(hook, tmp_path)
    for rank in range(2):
        for mine, expected in zip(found["weft"][rank], found["torch"][rank], strict=True):
            np.testing.assert_allclose(mine, expected, rtol=0, atol=exact)
