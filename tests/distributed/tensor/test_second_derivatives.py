"""Derivatives of derivatives on distributed tensors: those of one device."""

from __future__ import annotations

import numpy as np
import pytest

import weft as torch
from tests.distributed.tensor.threads import on_mesh
from weft import nn
from weft.distributed.tensor import Replicate, Shard, distribute_tensor

R, S = Replicate(), Shard
PLACEMENTS = [
    ((2,), [S(0)], [R]),
    ((2,), [S(1)], [S(0)]),
    ((2,), [R], [S(1)]),
    ((2, 2), [S(0), S(1)], [R, S(0)]),
    ((2, 2), [S(0), R], [R, S(1)]),
]
FUNCTIONS = {
    "sum": lambda x, w: (x * x).sum().log() * w.pow(2).sum(),
    "mean": lambda x, w: ((x * x).mean() + 1).log() * w.exp().mean(),
    "dims": lambda x, w: (x.exp().sum(0) * x.sum(1, keepdim=True)).sin().sum() + w.std(0).prod(),
    "products": lambda x, w: (torch.tanh(x @ w) @ w).pow(2).sum().sqrt(),
    "softmax": lambda x, w: torch.log_softmax(x @ w, -1).pow(2).sum(),
    "norm": lambda x, w: nn.functional.layer_norm(x, (4,)).pow(3).sum() * x.norm() + w.norm(),
}


def products(function, tensors, vectors):
    """The product of the function's matrix of second derivatives with the vectors."""
    leaves = [x.detach().requires_grad_() for x in tensors]
    first = torch.autograd.grad(function(*leaves), leaves, create_graph=True)
    return torch.autograd.grad(sum((g * v).sum() for g, v in zip(first, vectors, strict=True)), leaves)


@pytest.mark.parametrize(("shape", "of_x", "of_w"), PLACEMENTS)
def test_are_those_of_one_device(shape, of_x, of_w):
    torch.manual_seed(0)
    draws = [torch.randn(size, dtype=torch.float64) for size in ((6, 4), (4, 4), (6, 4), (4, 4))]
    expected = {name: products(function, draws[:2], draws[2:]) for name, function in FUNCTIONS.items()}

    def program(mesh):
        x, w, v, u = (distribute_tensor(d, mesh, p) for d, p in zip(draws, (of_x, of_w, of_x, of_w), strict=True))
        for name, function in FUNCTIONS.items():
            for result, whole in zip(products(function, (x, w), (v, u)), expected[name], strict=True):
                np.testing.assert_allclose(result.full_tensor(), whole, atol=1e-9, err_msg=name)

    on_mesh(shape, program)
