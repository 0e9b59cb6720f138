"""Draws: by the Kolmogorov-Smirnov and chi-square tests, with a fixed seed, and their gradients."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

import weft
from weft import distributions as dist

N = 500


def one(*values):
    """Parameters in float64, one of each."""
    return [weft.tensor(value, dtype=weft.float64, requires_grad=True) for value in values]


CONTINUOUS = {
    "Normal": (dist.Normal, (0.7, 1.3), stats.norm(0.7, 1.3)),
    "Cauchy": (dist.Cauchy, (0.7, 1.3), stats.cauchy(0.7, 1.3)),
    "Laplace": (dist.Laplace, (0.7, 1.3), stats.laplace(0.7, 1.3)),
    "Gumbel": (dist.Gumbel, (0.7, 1.3), stats.gumbel_r(0.7, 1.3)),
    "StudentT": (dist.StudentT, (3.0, 0.7, 1.3), stats.t(3.0, 0.7, 1.3)),
    "Exponential": (dist.Exponential, (0.7,), stats.expon(scale=1 / 0.7)),
    "Gamma": (dist.Gamma, (0.7, 1.3), stats.gamma(0.7, scale=1 / 1.3)),
    "Chi2": (dist.Chi2, (3.0,), stats.chi2(3.0)),
    "FisherSnedecor": (dist.FisherSnedecor, (3.0, 5.0), stats.f(3.0, 5.0)),
    "HalfNormal": (dist.HalfNormal, (1.3,), stats.halfnorm(scale=1.3)),
    "HalfCauchy": (dist.HalfCauchy, (1.3,), stats.halfcauchy(scale=1.3)),
    "LogNormal": (dist.LogNormal, (0.7, 0.4), stats.lognorm(0.4, scale=np.exp(0.7))),
    "InverseGamma": (dist.InverseGamma, (3.0, 1.3), stats.invgamma(3.0, scale=1.3)),
    "Pareto": (dist.Pareto, (1.3, 3.0), stats.pareto(3.0, scale=1.3)),
    "Weibull": (dist.Weibull, (1.3, 0.7), stats.weibull_min(0.7, scale=1.3)),
    "GeneralizedPareto": (dist.GeneralizedPareto, (0.7, 1.3, -0.2), stats.genpareto(-0.2, 0.7, 1.3)),
    "Uniform": (dist.Uniform, (0.7, 2.0), stats.uniform(0.7, 1.3)),
    "Beta": (dist.Beta, (0.7, 1.3), stats.beta(0.7, 1.3)),
    "Kumaraswamy": (dist.Kumaraswamy, (0.7, 1.3), None),
    "ContinuousBernoulli": (dist.ContinuousBernoulli, (0.2,), None),
}
"""Constructor, parameters, and SciPy's distribution; without one, ours has a distribution function."""


@pytest.mark.parametrize("name", CONTINUOUS)
def test_numbers(name):
    make, parameters, theirs = CONTINUOUS[name]
    ours = make(*one(*parameters))
    draws = ours.rsample((N,))
    assert draws.requires_grad
    assert not ours.sample().requires_grad
    assert draws.dtype == weft.float64
    assert draws.shape == (N,)
    cdf = theirs.cdf if theirs else lambda x: ours.cdf(weft.tensor(x)).detach().numpy()
    assert stats.kstest(draws.detach().numpy(), cdf).pvalue > 0.01


@pytest.mark.parametrize("name", ["Normal", "Gumbel", "Exponential", "Weibull", "Pareto", "Kumaraswamy", "Uniform"])
def test_gradients_are_those_of_quantiles(name):
    """With x = Q(p; a), the derivative of a draw is that of Q at the probability p = F(x; a), which stays."""
    make, parameters, _ = CONTINUOUS[name]
    leaves = one(*parameters)
    ours = make(*leaves)
    draws = ours.rsample((4,))
    p = ours.cdf(draws).detach()
    grads = weft.autograd.grad(draws.sum(), leaves)
    for i, grad in enumerate(grads):
        ends = []
        for sign in (1, -1):
            moved = [x.detach() + (sign * 1e-6 if j == i else 0) for j, x in enumerate(leaves)]
            ends.append(make(*moved).icdf(p).sum().item())
        assert grad.item() == pytest.approx((ends[0] - ends[1]) / 2e-6, rel=1e-4)


@pytest.mark.parametrize(
    ("make", "parameters", "cdf"),
    [
        (dist.Gamma, (1.7, 1.3), lambda x, a, b: stats.gamma.cdf(x, a, scale=1 / b)),
        (dist.Chi2, (3.0,), lambda x, df: stats.chi2.cdf(x, df)),
        (dist.Beta, (0.7, 1.3), lambda x, a, b: stats.beta.cdf(x, a, b)),
        (dist.InverseGamma, (3.0, 1.3), lambda x, a, b: stats.invgamma.cdf(x, a, scale=b)),
    ],
)
def test_implicit_gradients(make, parameters, cdf):
    """dx/da = -(dF/da) / (dF/dx)."""
    leaves = one(*parameters)
    x = make(*leaves).rsample((4,))
    value = x.detach().numpy()
    density = (cdf(value + 1e-6, *parameters) - cdf(value - 1e-6, *parameters)) / 2e-6
    for i, grad in enumerate(weft.autograd.grad(x.sum(), leaves)):
        ends = [cdf(value, *(p + (sign * 1e-6 if j == i else 0) for j, p in enumerate(parameters))) for sign in (1, -1)]
        expected = -(ends[0] - ends[1]) / 2e-6 / density
        assert grad.item() == pytest.approx(expected.sum(), rel=1e-3)


def test_gradients_of_means():
    """In the mean, gradients of functions of draws are those of the functions' means."""
    df, loc, scale = leaves = one(5.0, 0.3, 1.2)
    got = weft.autograd.grad((dist.StudentT(*leaves).rsample((20_000,)) ** 2).mean(), leaves)
    expected = weft.autograd.grad(loc**2 + scale**2 * df / (df - 2), leaves)
    np.testing.assert_allclose(weft.stack(got).numpy(), weft.stack(expected).numpy(), rtol=0.15)
    df1, df2 = leaves = one(4.0, 9.0)
    got = weft.autograd.grad(dist.FisherSnedecor(df1, df2).rsample((20_000,)).log().mean(), leaves)
    mean = (df1 / 2).digamma() - df1.log() - (df2 / 2).digamma() + df2.log()
    expected = weft.autograd.grad(mean, leaves)
    np.testing.assert_allclose(weft.stack(got).numpy(), weft.stack(expected).numpy(), rtol=0.1)


def test_dirichlet_gradients():
    """Of the mean of the first element, by the mean over draws."""
    a = weft.tensor([0.8, 2.0, 3.0], dtype=weft.float64, requires_grad=True)
    draws = dist.Dirichlet(a).rsample((5000,))
    assert weft.allclose(draws.sum(-1), weft.ones(5000, dtype=weft.float64))
    (got,) = weft.autograd.grad(draws[:, 0].mean(), a)
    (expected,) = weft.autograd.grad(dist.Dirichlet(a).mean[0], a)
    np.testing.assert_allclose(got.numpy(), expected.numpy(), atol=5e-3)


P = [0.2, 0.5, 0.3]
DISCRETE = {
    "Bernoulli": (dist.Bernoulli(weft.tensor(0.3)), [0.7, 0.3]),
    "Binomial": (dist.Binomial(4, weft.tensor(0.3)), stats.binom(4, 0.3).pmf(range(5))),
    "NegativeBinomial": (dist.NegativeBinomial(3.0, weft.tensor(0.3)), stats.nbinom(3, 0.7).pmf(range(6))),
    "Geometric": (dist.Geometric(weft.tensor(0.4)), stats.geom(0.4, loc=-1).pmf(range(6))),
    "Poisson": (dist.Poisson(weft.tensor(1.5)), stats.poisson(1.5).pmf(range(6))),
    "Categorical": (dist.Categorical(weft.tensor(P)), P),
}


@pytest.mark.parametrize("name", DISCRETE)
def test_counts(name):
    ours, pmf = DISCRETE[name]
    pmf = np.append(pmf, max(1 - np.sum(pmf), 0))
    draws = ours.sample((N,)).numpy().astype(int)
    observed = np.bincount(np.minimum(draws, len(pmf) - 1), minlength=len(pmf))
    likely = pmf > 1e-6
    assert observed[~likely].sum() == 0
    assert stats.chisquare(observed[likely], pmf[likely] / pmf[likely].sum() * N).pvalue > 0.01


def test_vectors_of_categories():
    one_hot = dist.OneHotCategorical(weft.tensor(P))
    assert (one_hot.sample((5,)).sum(-1) == 1).all()
    assert one_hot.enumerate_support().tolist() == [[1, 0, 0], [0, 1, 0], [0, 0, 1]]
    logits = weft.zeros(3, requires_grad=True)
    through = dist.OneHotCategoricalStraightThrough(logits=logits).rsample()
    (through * weft.arange(3.0)).sum().backward()
    np.testing.assert_allclose(logits.grad.numpy(), np.array([-1, 0, 1]) / 3, atol=1e-6)
    counts = dist.Multinomial(10, weft.tensor([P, P])).sample((4,))
    assert counts.shape == (4, 2, 3)
    assert (counts.sum(-1) == 10).all()


@pytest.mark.parametrize("kappa", [0.5, 20.0])
def test_angles(kappa):
    draws = dist.VonMises(weft.tensor(1.0), weft.tensor(kappa)).sample((N,)).numpy()
    assert np.abs(draws).max() <= np.pi
    assert stats.kstest((draws - 1 + np.pi) % (2 * np.pi) - np.pi, stats.vonmises(kappa).cdf).pvalue > 0.01


def test_normal_vectors():
    covariance = np.array([[2.0, 0.6], [0.6, 1.0]])
    dense = dist.MultivariateNormal(weft.tensor([1.0, -1.0]), weft.tensor(covariance).float())
    low = dist.LowRankMultivariateNormal(weft.zeros(2), weft.tensor([[1.0], [0.5]]), weft.tensor([0.3, 0.6]))
    for ours in (dense, low):
        draws = ours.rsample((20_000,)).numpy()
        np.testing.assert_allclose(draws.mean(0), ours.mean.numpy(), atol=0.05)
        np.testing.assert_allclose(np.cov(draws.T), ours.covariance_matrix.numpy(), atol=0.08)


def test_matrices():
    wishart = dist.Wishart(weft.tensor(4.0), weft.tensor([[2.0, 0.6], [0.6, 1.0]]))
    draws = wishart.rsample((2000,))
    assert wishart.support.check(draws).all()
    np.testing.assert_allclose(draws.mean(0).numpy(), wishart.mean.numpy(), rtol=0.1)
    lkj = dist.LKJCholesky(3, weft.tensor(1.5))
    factors = lkj.sample((1000,))
    assert lkj.support.check(factors).all()
    correlation = (factors @ factors.mT)[:, 2, 1].numpy()  # its half is shifted to a beta number: (r + 1) / 2
    assert stats.kstest((correlation + 1) / 2, stats.beta(2.0, 2.0).cdf).pvalue > 0.01


def test_relaxed():
    t = weft.tensor(0.5)
    numbers = dist.RelaxedBernoulli(t, probs=weft.tensor(0.3))
    assert (numbers.rsample((N,)) > 0.5).float().mean().item() == pytest.approx(0.3, abs=0.07)
    points = dist.RelaxedOneHotCategorical(t, probs=weft.tensor(P))
    draws = points.rsample((N,))
    assert points.support.check(draws).all()
    shares = np.bincount(draws.argmax(-1).numpy(), minlength=3) / N
    np.testing.assert_allclose(shares, P, atol=0.08)


def test_mixture():
    mixture = dist.MixtureSameFamily(
        dist.Categorical(weft.tensor([0.3, 0.7])), dist.Normal(weft.tensor([-1.0, 2.0]), weft.tensor([1.0, 0.5]))
    )
    assert stats.kstest(mixture.sample((N,)).numpy(), lambda x: mixture.cdf(weft.tensor(x)).numpy()).pvalue > 0.01


def test_draws_repeat_with_a_seed():
    first, second = (weft.manual_seed(3) and dist.Gamma(2.0, 1.0).sample((3,)) for _ in range(2))
    assert first.tolist() == second.tolist()
