"""A small model, sharded and whole, and how the two are compared."""

from __future__ import annotations

import copy

import numpy as np

import weft as torch
from weft import nn
from weft.distributed.fsdp import fully_shard
from weft.distributed.tensor import DTensor


class Chain(nn.Module):
    """Layers of sizes that no number of ranks divides; the last has fewer rows than there are ranks."""

    def __init__(self, width=7, layers=2):
        super().__init__()
        self.first = nn.Linear(6, width)
        self.blocks = nn.ModuleList(
            nn.Sequential(nn.Linear(width, width), nn.Tanh(), nn.LayerNorm(width)) for _ in range(layers)
        )
        self.last = nn.Linear(width, 1)

    def forward(self, x):
        x = self.first(x)
        for block in self.blocks:
            x = block(x)
        return self.last(x)


def pair(**options):
    """The same model twice, in float64: as it is, and with one group for each block and one for the rest."""
    torch.manual_seed(0)
    plain = Chain().double()
    return plain, sharded(copy.deepcopy(plain), **options)


def sharded(model, **options):
    for block in model.blocks:
        fully_shard(block, **options)
    return fully_shard(model, **options)


def batch():
    torch.manual_seed(1)
    return torch.randn(8, 6, dtype=torch.float64)


def loss_of(model, x):
    return (model(x) ** 2).mean()


def step(model, optimizer, x):
    """One step of training; returns the loss."""
    optimizer.zero_grad()
    loss = loss_of(model, x)
    loss.backward()
    optimizer.step()
    return loss.item()


def whole(x):
    """The elements of a tensor, all of them."""
    return (x.full_tensor() if isinstance(x, DTensor) else x).detach().numpy()


def assert_equal(plain, model, *, gradients=False):
    """The parameters, or their gradients, are the same up to rounding."""
    for (name, x), (other, y) in zip(plain.named_parameters(), model.named_parameters(), strict=True):
        assert name == other
        x, y = (x.grad, y.grad) if gradients else (x, y)
        np.testing.assert_allclose(whole(y), whole(x), rtol=1e-9, atol=1e-12, err_msg=name)
