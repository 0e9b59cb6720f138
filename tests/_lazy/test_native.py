"""Native bodies compute calls and first derivatives; the row's own body stands in for them in all else."""

from __future__ import annotations

import os
import subprocess
import sys

import jax.numpy as jnp
import pytest

import weft as torch
from weft._base import config
from weft._lazy import infer
from weft.nn import functional
from weft.ops._jax import vjp
from weft.ops._native import Native
from weft.ops._table import TABLE


class Kernel:
    """A body of `attention` for float64 that notes its calls."""

    def __init__(self):
        self.calls = []

    def serves(self, query, *args):
        return query.dtype == jnp.float64 and not any(args[3:4])  # not causal

    def forward(self, query, key, value, attn_mask=None, is_causal=False, scale=None, enable_gqa=False):
        self.calls.append("forward")
        scores = jnp.einsum("...te,...se->...ts", query, key) * (scale or query.shape[-1] ** -0.5)
        weights = jnp.exp(scores)
        total = weights.sum(-1, keepdims=True)
        return weights / total @ value, jnp.log(total)

    def backward(self, g, out, query, key, value, *rest):
        self.calls.append("backward")
        return (*vjp(lambda *x: self.forward(*x, *rest)[0], query, key, value)[1](g), None)


@pytest.fixture
def kernel(monkeypatch):
    """The kernel, as a part of the row, in compiled programs; no signature from before or after refers to it."""
    monkeypatch.setattr("weft._base.config.TIER", "compiled")
    kernel, row = Kernel(), TABLE["attention"]
    object.__setattr__(row, "native", (Native("cpu", kernel.serves, kernel.forward, kernel.backward),))
    infer._forget_signatures()
    yield kernel
    object.__setattr__(row, "native", row.native[:0])
    infer._forget_signatures()


def inputs():
    torch.manual_seed(0)
    return [torch.randn(2, 2, 5, 4, dtype=torch.float64, requires_grad=True) for _ in range(3)]


def attend(*x):
    return functional.scaled_dot_product_attention(*x)


def first(q, k, v):
    y = attend(q, k, v)
    return [y, *torch.autograd.grad(y.pow(2).sum(), [q, k, v])]


def second(q, k, v):
    grads = torch.autograd.grad(attend(q, k, v).pow(2).sum(), [q, k, v], create_graph=True)
    return torch.autograd.grad(sum(g.pow(2).sum() for g in grads), [q, k, v])


def captured(q, k, v):
    step = torch.compile(first)
    return [step(q, k, v) for _ in range(3)][-1]


def batches(q, k, v):
    return [
        torch.vmap(lambda x: attend(x, k[0], v[0]))(q),
        torch.vmap(torch.func.grad(lambda x: attend(x, k[0], v[0]).pow(2).sum()))(q),
        torch.func.hessian(lambda x: attend(x, k[:1, :1], v[:1, :1]).pow(2).sum())(q[:1, :1]),
    ]


def forward_mode(q, k, v):
    return [torch.func.jvp(lambda x: attend(x, k, v), (q,), (torch.ones_like(q),))[1]]


@pytest.mark.parametrize(
    ("program", "calls"),
    [
        (first, {"forward", "backward"}),
        (second, {"forward", "backward"}),
        (captured, {"forward", "backward"}),
        (batches, {"forward"}),
        (forward_mode, {"forward"}),
    ],
)
def test_results_are_those_of_the_row(program, calls, kernel, monkeypatch):
    results = [x.detach().clone() for x in program(*inputs())]
    assert all(x.isfinite().all().item() for x in results)
    assert set(kernel.calls) == calls
    monkeypatch.setattr("weft._base.config.NATIVE", False)
    infer._forget_signatures()
    kernel.calls.clear()
    expected = program(*inputs())
    assert not kernel.calls
    for ours, other in zip(results, expected, strict=True):
        torch.testing.assert_close(ours, other, rtol=1e-12, atol=1e-12)


@pytest.mark.skipif(not config.NATIVE, reason="kernels are turned off")
def test_a_kernel_is_taken_where_it_serves(kernel):
    q, k, v = inputs()
    functional.scaled_dot_product_attention(q, k, v, is_causal=True).sum().item()
    attend(q.float(), k.float(), v.float()).sum().item()
    assert not kernel.calls
    y = attend(q, k, v).sum()
    y.item()
    assert {*kernel.calls} == {"forward"}
    y.backward()
    q.grad.sum().item()
    assert {*kernel.calls} == {"forward", "backward"}


def test_the_interpreted_tier_has_none(kernel, monkeypatch):
    monkeypatch.setattr("weft._base.config.TIER", "interpreted")
    attend(*inputs()).sum().item()
    assert not kernel.calls


def test_a_variable_turns_them_off():
    code = "from weft._base import config; assert not config.NATIVE"
    subprocess.run([sys.executable, "-c", code], env={**os.environ, "WEFT_NATIVE": "0"}, check=True)
