"""Derivatives of draws with respect to their parameters: differences of quantiles at fixed probabilities."""

from __future__ import annotations

import numpy as np
from scipy import stats

import weft


def moved(quantile, cdf, parameter, x):
    """The difference quotient of the quantile that has the probability of `x`."""
    h = 1e-5 * parameter
    upper = cdf(parameter, x) > 0.5
    p = np.where(upper, 1 - cdf(parameter, x), cdf(parameter, x))
    ends = [quantile(parameter + sign * h, p, upper) for sign in (1, -1)]
    return (ends[0] - ends[1]) / (2 * h)


def test_gamma_draws():
    rng = np.random.default_rng(0)
    a = 10 ** rng.uniform(-1, 3, 40)
    x = np.maximum(rng.gamma(a), 1e-10)

    def quantile(a, p, upper):
        return np.where(upper, stats.gamma.isf(p, a), stats.gamma.ppf(p, a))

    expected = moved(quantile, lambda a, x: stats.gamma.cdf(x, a), a, x)
    slope = weft._standard_gamma_grad(weft.tensor(a), weft.tensor(x))
    np.testing.assert_allclose(slope.numpy(), expected, rtol=1e-4)
    narrow = weft._standard_gamma_grad(weft.tensor(a).float(), weft.tensor(x).float())
    np.testing.assert_allclose(narrow.numpy(), expected, rtol=1e-3)


def test_beta_draws():
    rng = np.random.default_rng(1)
    a, b = 10 ** rng.uniform(-0.5, 2, (2, 40))
    x = np.clip(rng.beta(a, b), 1e-6, 1 - 1e-6)

    def quantile(a, p, upper):
        return np.where(upper, stats.beta.isf(p, a, b), stats.beta.ppf(p, a, b))

    expected = moved(quantile, lambda a, x: stats.beta.cdf(x, a, b), a, x) / (1 - x)
    slope = weft._dirichlet_grad(*(weft.tensor(v) for v in (x, a, a + b)))
    np.testing.assert_allclose(slope.numpy(), expected, rtol=1e-4)


def test_known_slopes():
    """Of exponential draws, by the derivative of the incomplete gamma function, computed with 40 digits."""
    x = weft.tensor([0.1, 1.0, 5.0], dtype=weft.float64)
    slope = weft._standard_gamma_grad(weft.ones_like(x), x)
    np.testing.assert_allclose(slope.numpy(), [0.289273116616, 1.17356302722, 2.35707575362], rtol=1e-8)


def test_small_parameters_and_draws_of_zero():
    """By the derivative of the incomplete gamma function, computed with 60 digits; what underflows does not move."""
    a = weft.tensor([1e-4, 1e-3, 1e-2, 1e-3, 1e-3], dtype=weft.float64)
    x = weft.tensor([0.5, 0.05, 0.9, 3.0, 0.0], dtype=weft.float64)
    expected = [4615.090326332, 129.7964263828, 58.40705735553, 787.9148858831, 0]
    np.testing.assert_allclose(weft._standard_gamma_grad(a, x).numpy(), expected, rtol=1e-12)
    np.testing.assert_allclose(weft._standard_gamma_grad(a.float(), x.float()).numpy(), expected, rtol=1e-5)


def test_small_parameters_of_beta_draws():
    """By the derivative of the incomplete beta function, computed with 50 digits."""
    a, b, x = weft.tensor([[1e-4, 1e-3, 1e-2, 1e-3], [0.1, 10.0, 1.0, 1e-3], [0.3, 0.02, 0.9, 0.5]], dtype=weft.float64)
    expected = [33336.77496465, 30.77014620779, 94.82446409204, 250346.8134775]
    np.testing.assert_allclose(weft._dirichlet_grad(x, a, a + b).numpy(), expected, rtol=1e-6)
    narrow = weft._dirichlet_grad(x.float(), a.float(), (a + b).float())
    np.testing.assert_allclose(narrow.numpy(), expected, rtol=1e-4)


def test_slopes_have_derivatives():
    """By difference quotients of the slopes. A draw's second derivative is that along its own move."""
    rng = np.random.default_rng(2)
    a, b = 10 ** rng.uniform(-0.5, 2, (2, 12))
    draws = (rng.gamma(a), rng.beta(a, b))
    for slope, arrays in ((weft._standard_gamma_grad, (a, draws[0])), (weft._dirichlet_grad, (draws[1], a, a + b))):
        tensors = [weft.tensor(x, requires_grad=True) for x in arrays]
        gradients = weft.autograd.grad(slope(*tensors).sum(), tensors)
        for at, (x, gradient) in enumerate(zip(arrays, gradients, strict=True)):
            sides = []
            for sign in (1, -1):
                shifted = [weft.tensor(y if i != at else x * (1 + sign * 1e-5)) for i, y in enumerate(arrays)]
                sides.append(slope(*shifted).numpy())
            expected = (sides[0] - sides[1]) / (2e-5 * x)
            np.testing.assert_allclose(gradient.numpy(), expected, rtol=1e-4, atol=1e-6)
    parameters = weft.tensor([0.5, 2.0], requires_grad=True)
    (first,) = weft.autograd.grad(weft._standard_gamma(parameters).sum(), parameters, create_graph=True)
    assert weft.autograd.grad(first.sum(), parameters)[0].isfinite().all()
