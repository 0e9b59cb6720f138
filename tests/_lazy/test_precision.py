"""Precision: a value does not depend on what it is computed together with, nor on when something is read."""

from __future__ import annotations

import random

import numpy as np
import pytest

import weft
from weft._base.state import using
from weft.nn import functional

HALVES = (weft.float16, weft.bfloat16)
ONE = [
    lambda x: x * 1.7,
    lambda x: x + 0.3,
    lambda x: 0.3 - x,
    lambda x: x / 3,
    lambda x: 1.7 / (x.abs() + 1),
    lambda x: x**2,
    lambda x: (x.abs() + 0.1) ** 0.37,
    weft.tanh,
    weft.sigmoid,
    lambda x: (x / 8).exp(),
    lambda x: (x.abs() + 1).log(),
    lambda x: x.abs().sqrt(),
    functional.gelu,
    functional.silu,
    lambda x: functional.leaky_relu(x, 0.37),
    lambda x: x.softmax(1),
    lambda x: functional.layer_norm(x, (8,)),
    lambda x: x - x.mean(1, keepdim=True),
    lambda x: x * x.sum(0),
    lambda x: x.t().reshape(4, 8),
    lambda x: x.cumsum(1),
    lambda x: x.float().to(x.dtype),
    lambda x: x.clamp(-1.3, 1.3),
    lambda x: x @ (x.t() @ x).tanh(),
]
TWO = [
    lambda x, y: x + y,
    lambda x, y: x - y,
    lambda x, y: x * y,
    lambda x, y: x / (y.abs() + 1),
    lambda x, y: weft.addcmul(x, y, x, value=0.37),
    lambda x, y: weft.lerp(x, y, 0.37),
    lambda x, y: weft.maximum(x, y),
    lambda x, y: weft.add(x, y, alpha=0.37),
]


def program(seed):
    """A random function of two tensors: the list of all its steps."""
    choice = random.Random(seed)
    plan = [(choice.choice(ONE + TWO), choice.random(), choice.random()) for _ in range(10)]

    def run(x, y, after=lambda step: None):
        steps = [x, y]
        for function, first, second in plan:
            a, b = steps[int(first * len(steps))], steps[int(second * len(steps))]
            steps.append(function(a, b) if function in TWO else function(a))
            after(steps[-1])
        return steps

    return run


def operands(seed, dtype):
    numbers = np.random.default_rng(seed).standard_normal((2, 4, 8)) * 3
    return [weft.tensor(part.tolist(), dtype=dtype) for part in numbers]


def bits(tensors):
    return [t.double().tolist() if t is not None else None for t in tensors]


def same(first, second):
    return all(np.array_equal(a, b, equal_nan=True) for a, b in zip(first, second, strict=True))


@pytest.mark.parametrize("dtype", HALVES, ids=str)
@pytest.mark.parametrize("seed", range(4))
def test_16_bit_programs_have_the_same_bits_in_every_mode(seed, dtype):
    run = program(seed)
    together = bits(run(*operands(seed, dtype)))
    assert same(together, bits(run(*operands(seed, dtype), after=lambda step: step.tolist())))
    with using(eager=True):
        assert same(together, bits(run(*operands(seed, dtype))))
    assert same(together, bits(weft.compile(run)(*operands(seed, dtype))))


@pytest.mark.parametrize("dtype", HALVES, ids=str)
@pytest.mark.parametrize("seed", range(4))
def test_gradients_of_16_bit_programs_do_not_depend_on_reads(seed, dtype):
    def gradients(after):
        leaves = [x.requires_grad_() for x in operands(seed, dtype)]
        steps = program(seed)(*leaves, after=after)
        sum(step.float().mean() for step in steps[2:]).backward()
        return bits([x.grad for x in leaves])

    assert same(gradients(lambda step: None), gradients(lambda step: step.tolist()))


@pytest.mark.parametrize("dtype", HALVES, ids=str)
def test_a_sum_is_the_same_before_and_after_a_read(dtype):
    x = weft.linspace(-2, 2, 1000).to(dtype)
    y = x * 1.7 + 0.3
    before = y.float().sum().item()
    y.tolist()
    assert y.float().sum().item() == before


@pytest.mark.parametrize("dtype", HALVES, ids=str)
def test_a_step_rounds_once(dtype):
    """As PyTorch's kernels do: in float32 inside, with numbers as they are in products."""
    x, y = operands(0, dtype)
    wide = [t.float() for t in (x, y)]
    assert (x * 0.1).tolist() == (wide[0] * 0.1).to(dtype).tolist()
    assert (x + 0.1).tolist() == (wide[0] + weft.tensor(0.1).to(dtype).float()).to(dtype).tolist()
    assert functional.silu(x).tolist() == functional.silu(wide[0]).to(dtype).tolist()
    assert weft.addcmul(x, y, x).tolist() == weft.addcmul(wide[0], wide[1], wide[0]).to(dtype).tolist()
    assert x.var(1).tolist() == wide[0].var(1).to(dtype).tolist()
    assert (weft.tensor(65504.0, dtype=weft.float16) * 0.1).item() == 6552


def test_halves_stay_narrow_where_the_hardware_multiplies_them():
    """Products of matrices are given to XLA as 16-bit ones, which has kernels for them on other devices."""
    assert weft.ops._table.TABLE["matmul"].types.arithmetic is weft.ops._table.Arithmetic.OWN


STEPS = [
    ("a logarithm of an exponential", lambda x: weft.exp(x * 100), weft.log),
    ("a quotient of a quotient", lambda x: x / weft.full((), 1e-30), lambda x: x / weft.full((), 1e30)),
    ("a power of an exponential", lambda x: weft.exp(x * 80), lambda x: x**0.5),
    ("a sum of a product", lambda x: x * 1.7, lambda x: x - weft.tensor([1.7, 3.4])),
    ("a sum of numbers", lambda x: x + weft.full((), 1e8), lambda x: x - weft.full((), 1e8)),
]


@pytest.mark.parametrize("steps", [row[1:] for row in STEPS], ids=[row[0] for row in STEPS])
@pytest.mark.parametrize("dtype", [weft.float32, weft.float64, weft.complex64], ids=str)
def test_xla_does_not_merge_steps(steps, dtype):
    first, second = steps

    def run(x, read):
        y = first(x)
        if read:
            y.tolist()
        return np.asarray(second(y)).view(np.float64 if dtype is weft.float64 else np.float32)

    x = weft.tensor([1.0000001, 2.1], dtype=dtype)
    wanted = run(x, read=True)
    assert np.array_equal(wanted, run(x, read=False), equal_nan=True)
    assert np.array_equal(
        wanted, np.asarray(weft.compile(lambda x: second(first(x)))(x)).view(wanted.dtype), equal_nan=True
    )


@pytest.mark.parametrize("dtype", [weft.float32, weft.float64], ids=str)
@pytest.mark.parametrize("shape", [(), (1, 1), (1, 143)], ids=["a number", "one element", "a row"])
def test_a_quotient_is_rounded_once(dtype, shape):
    """XLA would multiply by the reciprocal of what it sees to be broadcast."""
    host = np.linspace(0.1, 7, 1001).reshape(7, 143).astype(np.dtype(str(dtype).removeprefix("torch.")))
    divisor = np.full(shape, 3, host.dtype) if shape != (1, 143) else host[:1]
    x = weft.tensor(host, requires_grad=True)
    y = x / (3 if shape == () else weft.tensor(divisor).expand(7, 143))
    y.backward(weft.tensor(host))
    assert np.array_equal(y.detach().numpy(), host / divisor)
    assert np.array_equal(x.grad.numpy(), host / divisor)
    assert x[0, :7].mean().item() == host[0, :7].sum(dtype=host.dtype) / host.dtype.type(7)


@pytest.mark.parametrize("dtype", [weft.float16, weft.bfloat16])
def test_norms_in_the_type_that_the_input_has(dtype):
    x = weft.linspace(-3, 300, 24).to(dtype).reshape(4, 6)
    expected = x.double().square().sum().sqrt().to(dtype)
    for norm in (weft.linalg.vector_norm, weft.linalg.matrix_norm):
        leaf = x.clone().requires_grad_()
        result = norm(leaf, dtype=dtype)
        assert result.dtype is dtype
        assert result.item() == expected.item()
        result.backward()
        assert leaf.grad is not None
        assert leaf.grad.dtype is dtype
