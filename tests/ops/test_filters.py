"""Recursive filters, compared with a loop over samples."""

import numpy as np
import pytest

import weft
from weft._tensor.codegen import op


@pytest.mark.parametrize("time", [1, 5, 300])
@pytest.mark.parametrize("taps", [1, 3])
def test_outputs_follow_from_those_before(time, taps):
    draw = np.random.default_rng(0).normal
    x, coefficients, before = draw(size=(2, 3, time)), draw(size=(3, taps)) * 0.2, draw(size=(2, 3, taps))
    wanted = np.concatenate([before, x], -1)
    for at in range(taps, taps + time):
        wanted[..., at] -= (wanted[..., at - taps : at] * coefficients).sum(-1)
    found = op.recursive_filter(*map(weft.tensor, (x, coefficients, before)))
    np.testing.assert_allclose(found.numpy(), wanted[..., taps:], atol=1e-10)


def test_its_derivative():
    inputs = [weft.randn(*size, dtype=weft.float64, requires_grad=True) for size in ((1, 2, 4), (2, 2), (1, 2, 2))]
    assert weft.autograd.gradcheck(op.recursive_filter, inputs, nondet_tol=1e-10)


def test_what_does_not_fit():
    with pytest.raises(RuntimeError, match=r"coefficients of shape \[2, 2\] and \[1, 3, 2\] samples"):
        op.recursive_filter(weft.ones(1, 3, 4), weft.ones(2, 2), weft.ones(1, 3, 2))
    with pytest.raises(RuntimeError, match="must have one element type"):
        op.recursive_filter(weft.ones(1, 3, 4), weft.ones(3, 2).double(), weft.ones(1, 3, 2))
