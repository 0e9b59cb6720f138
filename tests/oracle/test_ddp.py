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
nn, rank = torch.nn, int(rank)
dist.init_process_group("gloo", init_method=f"file://{folder}/{name}", rank=rank, world_size=2)

rng = np.random.default_rng(0)
module = nn.Sequential(nn.Linear(16, 16), nn.Tanh(), nn.Linear(16, 16), nn.Tanh(), nn.Linear(16, 1)).double()
for p in module.parameters():
    p.data.copy_(torch.tensor(rng.standard_normal(tuple(p.shape)) / 4))
model = nn.parallel.DistributedDataParallel(module)
state = None
if hook == "powerSGD_hook":
    state = power.PowerSGDState(None, 3, start_powerSGD_iter=2, min_compression_rate=1)
    model.register_comm_hook(state, power.powerSGD_hook)
elif hook != "join":
    model.register_comm_hook(None, getattr(default, hook))


def same_start():
    "The random Q of the first step, which the frameworks draw differently."
    state.q_memory_dict[0] = torch.tensor(np.random.default_rng(1).standard_normal(2 * 16 * 3))
    if name == "torch":
        state.p_memory_dict[0] = torch.empty_like(state.q_memory_dict[0])


optimizer = torch.optim.SGD(module.parameters(), lr=0.05, momentum=0.9)
inputs = np.random.default_rng((2, rank)).standard_normal((8, 4, 16))
steps = 5 + 3 * rank if hook == "join" else 8
with model.join(enable=hook == "join", divide_by_initial_world_size=False):
    for step in range(steps):
        if step == 2 and state is not None:
            same_start()
        optimizer.zero_grad()
        model(torch.tensor(inputs[step])).square().mean().backward()
        optimizer.step()
np.savez(f"{folder}/{name}{rank}.npz", *[p.detach().numpy() for p in module.parameters()])
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
    ],
)
def test_training_ends_where_it_does_with_pytorch(hook, exact, tmp_path):
    found = states(hook, tmp_path)
    for rank in range(2):
        for mine, expected in zip(found["weft"][rank], found["torch"][rank], strict=True):
            np.testing.assert_allclose(mine, expected, rtol=0, atol=exact)
