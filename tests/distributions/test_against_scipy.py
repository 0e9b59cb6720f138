"""Densities, distribution functions, quantiles, entropies and moments, against SciPy."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

import weft
from weft import distributions as dist

A, B, C = np.array([0.7, 2.5]), np.array([1.3, 4.0]), np.array([5.0, 7.5])
P = np.array([0.2, 0.65])


def t(x):
    return weft.tensor(x, dtype=weft.float64)


CONTINUOUS = {
    "Normal": (dist.Normal(t(A), t(B)), stats.norm(A, B)),
    "Cauchy": (dist.Cauchy(t(A), t(B)), stats.cauchy(A, B)),
    "Laplace": (dist.Laplace(t(A), t(B)), stats.laplace(A, B)),
    "Gumbel": (dist.Gumbel(t(A), t(B)), stats.gumbel_r(A, B)),
    "StudentT": (dist.StudentT(t(C), t(A), t(B)), stats.t(C, A, B)),
    "Exponential": (dist.Exponential(t(A)), stats.expon(scale=1 / A)),
    "Gamma": (dist.Gamma(t(A), t(B)), stats.gamma(A, scale=1 / B)),
    "Chi2": (dist.Chi2(t(A)), stats.chi2(A)),
    "FisherSnedecor": (dist.FisherSnedecor(t(A), t(C)), stats.f(A, C)),
    "HalfNormal": (dist.HalfNormal(t(B)), stats.halfnorm(scale=B)),
    "HalfCauchy": (dist.HalfCauchy(t(B)), stats.halfcauchy(scale=B)),
    "LogNormal": (dist.LogNormal(t(A), t(P)), stats.lognorm(P, scale=np.exp(A))),
    "InverseGamma": (dist.InverseGamma(t(C), t(B)), stats.invgamma(C, scale=B)),
    "Pareto": (dist.Pareto(t(B), t(C)), stats.pareto(C, scale=B)),
    "Weibull": (dist.Weibull(t(B), t(A)), stats.weibull_min(A, scale=B)),
    "GeneralizedPareto": (dist.GeneralizedPareto(t(A), t(B), t(P - 0.4)), stats.genpareto(P - 0.4, A, B)),
    "Uniform": (dist.Uniform(t(A), t(A + B)), stats.uniform(A, B)),
    "Beta": (dist.Beta(t(A), t(B)), stats.beta(A, B)),
    "VonMises": (dist.VonMises(t(P), t(B)), stats.vonmises(B, P)),
}

DISCRETE = {
    "Bernoulli": (dist.Bernoulli(t(P)), stats.bernoulli(P)),
    "Binomial": (dist.Binomial(7, t(P)), stats.binom(7, P)),
    "NegativeBinomial": (dist.NegativeBinomial(t(B), t(P)), stats.nbinom(B, 1 - P)),
    "Geometric": (dist.Geometric(t(P)), stats.geom(P, loc=-1)),
    "Poisson": (dist.Poisson(t(B)), stats.poisson(B)),
}

NO_QUANTILES = {"StudentT", "FisherSnedecor", "Beta", "Gamma", "Chi2", "InverseGamma", "VonMises"}
NO_CDF = {"StudentT", "FisherSnedecor", "Beta", "VonMises"}
NO_MOMENTS = {"Cauchy", "HalfCauchy", "VonMises"}
NO_ENTROPY = {"FisherSnedecor", "VonMises", "NegativeBinomial", "Poisson"}


def close(tensor, array, rtol=1e-9):
    np.testing.assert_allclose(tensor.numpy(), array, rtol=rtol, atol=1e-12)


@pytest.mark.parametrize("name", CONTINUOUS)
def test_continuous(name):
    ours, theirs = CONTINUOUS[name]
    p = np.array([[0.03], [0.4], [0.92]])
    x = theirs.ppf(p)
    close(ours.log_prob(t(x)), theirs.logpdf(x))
    if name not in NO_CDF:
        close(ours.cdf(t(x)), np.broadcast_to(p, x.shape), 1e-7)
    if name not in NO_QUANTILES:
        close(ours.icdf(t(p)), x, 1e-7)


@pytest.mark.parametrize("name", DISCRETE)
def test_discrete(name):
    ours, theirs = DISCRETE[name]
    x = np.array([[0.0], [1.0]])
    close(ours.log_prob(t(x)), theirs.logpmf(x))


@pytest.mark.parametrize("name", [*CONTINUOUS, *DISCRETE])
def test_moments_and_entropy(name):
    ours, theirs = (CONTINUOUS | DISCRETE)[name]
    if name not in NO_MOMENTS:
        close(ours.mean, theirs.mean(), 1e-7)
        close(ours.variance, theirs.var(), 1e-7)
        close(ours.stddev, theirs.std(), 1e-7)
    if name not in NO_ENTROPY:
        close(ours.entropy(), theirs.entropy(), 1e-6)
        close(ours.perplexity(), np.exp(theirs.entropy()), 1e-6)


def test_vectors():
    covariance = np.array([[2.0, 0.3, 0.1], [0.3, 1.0, -0.2], [0.1, -0.2, 0.5]])
    x, loc = np.array([[0.3, -1.0, 2.0], [0.0, 0.5, 0.1]]), np.array([1.0, 0.0, -0.5])
    theirs = stats.multivariate_normal(loc, covariance)
    for given in (
        {"covariance_matrix": t(covariance)},
        {"precision_matrix": t(np.linalg.inv(covariance))},
        {"scale_tril": t(np.linalg.cholesky(covariance))},
    ):
        ours = dist.MultivariateNormal(t(loc), **given)
        close(ours.log_prob(t(x)), theirs.logpdf(x))
        close(ours.entropy(), theirs.entropy())
        close(ours.covariance_matrix, covariance)
        close(ours.precision_matrix, np.linalg.inv(covariance))
        close(ours.scale_tril, np.linalg.cholesky(covariance), 1e-7)
    factor, diagonal = x.T, np.array([0.5, 1.0, 2.0])
    low = dist.LowRankMultivariateNormal(t(loc), t(factor), t(diagonal))
    theirs = stats.multivariate_normal(loc, factor @ factor.T + np.diag(diagonal))
    close(low.log_prob(t(x)), theirs.logpdf(x))
    close(low.entropy(), theirs.entropy())
    close(low.precision_matrix @ low.scale_tril @ low.scale_tril.mT, np.eye(3), 1e-7)


def test_simplex_and_counts():
    concentration, x = np.array([0.7, 2.0, 1.5]), np.array([0.2, 0.3, 0.5])
    ours, theirs = dist.Dirichlet(t(concentration)), stats.dirichlet(concentration)
    close(ours.log_prob(t(x)), theirs.logpdf(x))
    close(ours.entropy(), theirs.entropy())
    close(ours.mean, theirs.mean())
    close(ours.variance, theirs.var())
    counts, theirs = dist.Multinomial(6, t(x)), stats.multinomial(6, x)
    close(counts.log_prob(t([1.0, 2.0, 3.0])), theirs.logpmf([1, 2, 3]))
    close(counts.entropy(), theirs.entropy())


def test_matrices():
    scale, x = np.array([[2.0, 0.3], [0.3, 1.0]]), np.array([[3.0, 0.5], [0.5, 4.0]])
    ours, theirs = dist.Wishart(t(4.5), t(scale)), stats.wishart(4.5, scale)
    close(ours.log_prob(t(x)), theirs.logpdf(x))
    close(ours.entropy(), theirs.entropy())
    close(ours.mean, theirs.mean())
    close(ours.variance, theirs.var())
    close(ours.mode, theirs.mode())


def test_lkj_is_normalized():
    """For two dims, the correlation r has density proportional to (1 - r**2) ** (concentration - 1), here 1 / 2."""
    r = weft.linspace(-0.9, 0.9, 5, dtype=weft.float64)
    rows = [weft.stack([weft.ones_like(r), weft.zeros_like(r)], -1), weft.stack([r, (1 - r**2).sqrt()], -1)]
    log_prob = dist.LKJCholesky(2, t(1.0)).log_prob(weft.stack(rows, -2))
    close(log_prob, np.full(5, np.log(0.5)))


def test_mixtures():
    weights, loc = np.array([0.3, 0.7]), np.array([-1.0, 2.0])
    mixture = dist.MixtureSameFamily(dist.Categorical(t(weights)), dist.Normal(t(loc), t([1.0, 0.5])))
    x = np.array([-0.5, 1.0, 3.0])
    parts = stats.norm(loc, [1.0, 0.5])
    close(mixture.log_prob(t(x)), np.log(parts.pdf(x[:, None]) @ weights))
    close(mixture.cdf(t(x)), parts.cdf(x[:, None]) @ weights)
    close(mixture.mean, weights @ loc)
    close(mixture.variance, weights @ (np.array([1, 0.25]) + (loc - weights @ loc) ** 2))
    vectors = dist.MixtureSameFamily(
        dist.Categorical(t(weights)), dist.Independent(dist.Normal(t(np.stack([loc, loc], 1)), 1.0), 1)
    )
    assert vectors.log_prob(vectors.sample((3,))).shape == (3,)
    assert vectors.mean.shape == vectors.variance.shape == (2,)
