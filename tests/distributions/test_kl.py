"""Divergences: by quadrature over the quantiles of p, by sums, and over draws where there are many dims."""

from __future__ import annotations

import abc
from types import SimpleNamespace

import numpy as np
import pytest
from scipy import stats

import weft
from weft import distributions as dist


def t(x):
    return weft.tensor(x, dtype=weft.float64)


def continuous_bernoulli(p):
    ours = dist.ContinuousBernoulli(t(p))
    return SimpleNamespace(ppf=lambda u: ours.icdf(t(u)).numpy(), isf=lambda u: ours.icdf(t(1 - u)).numpy())


NUMBERS = {
    "Normal": (dist.Normal(t(0.4), t(0.6)), stats.norm(0.4, 0.6), dist.Normal(t(-0.3), t(1.1))),
    "Cauchy": (dist.Cauchy(t(0.4), t(0.6)), stats.cauchy(0.4, 0.6), dist.Cauchy(t(-0.3), t(1.1))),
    "Laplace": (dist.Laplace(t(0.2), t(0.8)), stats.laplace(0.2, 0.8), dist.Laplace(t(-0.1), t(1.3))),
    "Gumbel": (dist.Gumbel(t(0.3), t(0.9)), stats.gumbel_r(0.3, 0.9), dist.Gumbel(t(-0.2), t(1.2))),
    "Exponential": (dist.Exponential(t(1.2)), stats.expon(scale=1 / 1.2), dist.Exponential(t(0.7))),
    "Gamma": (dist.Gamma(t(2.5), t(1.5)), stats.gamma(2.5, scale=1 / 1.5), dist.Gamma(t(1.5), t(0.8))),
    "Chi2": (dist.Chi2(t(3.0)), stats.chi2(3.0), dist.Chi2(t(2.0))),
    "HalfNormal": (dist.HalfNormal(t(0.8)), stats.halfnorm(scale=0.8), dist.HalfNormal(t(1.4))),
    "LogNormal": (
        dist.LogNormal(t(0.1), t(0.4)),
        stats.lognorm(0.4, scale=np.exp(0.1)),
        dist.LogNormal(t(0.1), t(0.7)),
    ),
    "Pareto": (dist.Pareto(t(0.5), t(5.5)), stats.pareto(5.5, scale=0.5), dist.Pareto(t(0.05), t(1.5))),
    "Beta": (dist.Beta(t(1.7), t(2.4)), stats.beta(1.7, 2.4), dist.Beta(t(0.8), t(1.3))),
    "ContinuousBernoulli": (
        dist.ContinuousBernoulli(t(0.3)),
        continuous_bernoulli(0.3),
        dist.ContinuousBernoulli(t(0.6)),
    ),
    "Uniform": (dist.Uniform(t(0.1), t(0.8)), stats.uniform(0.1, 0.7), dist.Uniform(t(-0.2), t(1.0))),
}
"""A distribution p, SciPy's, and another one for q."""

_S = np.linspace(-3.3, 3.3, 301)
_HALF = 1 / (1 + np.exp(np.pi * np.sinh(np.abs(_S))))  # the smaller of u and 1 - u
_WEIGHTS = np.pi * np.cosh(_S) * _HALF * (1 - _HALF) * (_S[1] - _S[0])  # double exponential formula on (0, 1)


def by_quadrature(name_p, name_q):
    p, theirs, _ = NUMBERS[name_p]
    q = NUMBERS[name_q][2]
    x = t(np.where(_S < 0, theirs.ppf(_HALF), theirs.isf(_HALF)))
    return (_WEIGHTS * (p.log_prob(x) - q.log_prob(x)).numpy()).sum()


def divergence(name_p, name_q):
    """Of two families; None if it is not defined."""
    try:
        return dist.kl_divergence(NUMBERS[name_p][0], NUMBERS[name_q][2])
    except NotImplementedError:
        return None


PAIRS = {(p, q): divergence(p, q) for p in NUMBERS for q in NUMBERS}
FINITE = [pair for pair, value in PAIRS.items() if value is not None and value.isfinite()]
INFINITE = [pair for pair, value in PAIRS.items() if value is not None and not value.isfinite()]


@pytest.mark.parametrize(("p", "q"), FINITE)
def test_numbers(p, q):
    precision = 2e-3 if "Laplace" in (p, q) else 1e-5  # Laplace's density has a kink
    assert PAIRS[p, q].item() == pytest.approx(by_quadrature(p, q), rel=precision, abs=1e-7)


def test_pairs():
    """What is not finite has values where the density of q is 0."""
    assert len(FINITE) == 50
    assert len(INFINITE) == 38
    assert all(PAIRS[pair] == np.inf for pair in INFINITE)


@pytest.mark.parametrize(
    ("p", "q"),
    [
        (dist.Bernoulli(t(0.3)), dist.Bernoulli(t(0.6))),
        (dist.Bernoulli(t(0.3)), dist.Poisson(t(0.6))),
        (dist.Binomial(5, t(0.3)), dist.Binomial(5, t(0.6))),
        (dist.Categorical(t([0.2, 0.3, 0.5])), dist.Categorical(t([0.5, 0.4, 0.1]))),
        (dist.OneHotCategorical(t([0.2, 0.3, 0.5])), dist.OneHotCategorical(t([0.5, 0.4, 0.1]))),
    ],
)
def test_discrete(p, q):
    x = p.enumerate_support()
    expected = (p.log_prob(x).exp() * (p.log_prob(x) - q.log_prob(x))).sum(0)
    assert dist.kl_divergence(p, q).item() == pytest.approx(expected.item())


@pytest.mark.parametrize(
    ("p", "q"),
    [(dist.Poisson(t(2.0)), dist.Poisson(t(1.2))), (dist.Geometric(t(0.3)), dist.Geometric(t(0.6)))],
)
def test_counts(p, q):
    x = weft.arange(200, dtype=weft.float64)
    expected = (p.log_prob(x).exp() * (p.log_prob(x) - q.log_prob(x))).sum()
    assert dist.kl_divergence(p, q).item() == pytest.approx(expected.item())


def test_edges_of_probabilities():
    ends = weft.tensor([0.0, 1.0])
    assert dist.kl_divergence(dist.Bernoulli(ends), dist.Bernoulli(ends)).abs().max() == 0
    assert dist.kl_divergence(dist.Bernoulli(weft.tensor(0.5)), dist.Bernoulli(ends)).isinf().all()
    p, q = dist.Categorical(weft.tensor([1.0, 0.0])), dist.Categorical(weft.tensor([0.5, 0.5]))
    assert dist.kl_divergence(p, q).item() == pytest.approx(np.log(2), rel=1e-5)
    assert dist.kl_divergence(q, p) == np.inf
    assert dist.kl_divergence(dist.Binomial(3, t(0.5)), dist.Binomial(2, t(0.5))) == np.inf
    with pytest.raises(NotImplementedError, match=r"^KL between Binomials where q\.total_count > p\.total_count"):
        dist.kl_divergence(dist.Binomial(2, t(0.5)), dist.Binomial(3, t(0.5)))
    assert dist.kl_divergence(dist.Poisson(t(1.0)), dist.Binomial(2, t(0.5))) == np.inf


def _vectors():
    loc, other = t([0.3, -0.2, 0.1]), t([0.0, 0.1, -0.4])
    factor, diagonal = t([[0.5], [0.2], [-0.3]]), t([0.4, 0.6, 0.5])
    low = dist.LowRankMultivariateNormal(loc, factor, diagonal)
    dense = dist.MultivariateNormal(loc, low.covariance_matrix)
    low_q = dist.LowRankMultivariateNormal(other, factor * 0.5, diagonal + 0.3)
    return (low, dense), (low_q, dist.MultivariateNormal(other, low_q.covariance_matrix))


def test_normal_vectors():
    """By the textbook's formula with inverses and determinants."""
    ps, qs = _vectors()
    s, r = ps[0].covariance_matrix, qs[0].covariance_matrix
    inverse, d = weft.linalg.inv(r), qs[0].loc - ps[0].loc
    expected = 0.5 * ((inverse @ s).trace() + d @ inverse @ d - 3 + weft.linalg.det(r).log() - weft.linalg.det(s).log())
    for p in ps:
        for q in qs:
            assert dist.kl_divergence(p, q).item() == pytest.approx(expected.item())
    batch = dist.kl_divergence(ps[1].expand((2,)), qs[1].expand((4, 1)))
    np.testing.assert_allclose(batch.numpy(), np.full((4, 2), expected.item()))
    with pytest.raises(ValueError, match="different event shapes"):
        dist.kl_divergence(ps[1], dist.MultivariateNormal(t([0.0]), t([[1.0]])))


def test_over_draws():
    """Divergences of points of simplices and of matrices are means over draws."""
    scale, other = t([[1.0, 0.3], [0.3, 0.8]]), t([[0.7, 0.0], [0.0, 1.2]])
    for p, q in (
        (dist.Dirichlet(t([1.5, 2.0, 3.0])), dist.Dirichlet(t([2.0, 2.0, 2.0]))),
        (dist.Wishart(t([4.0, 6.0]), scale), dist.Wishart(t([5.0, 5.0]), other)),
    ):
        x = p.sample((2000,))
        mean = (p.log_prob(x) - q.log_prob(x)).mean(0)
        np.testing.assert_allclose(dist.kl_divergence(p, q).numpy(), mean.numpy(), rtol=0.1)


def test_nested():
    p, q = dist.Normal(t([0.0, 1.0]), t(1.0)), dist.Normal(t([1.0, 1.0]), t(2.0))
    plain = dist.kl_divergence(p, q)
    whole = dist.kl_divergence(dist.Independent(p, 1), dist.Independent(q, 1))
    assert whole.item() == pytest.approx(plain.sum().item())
    exp = dist.ExpTransform()
    transformed = dist.kl_divergence(dist.TransformedDistribution(p, [exp]), dist.TransformedDistribution(q, [exp]))
    assert transformed.tolist() == plain.tolist()
    with pytest.raises(NotImplementedError, match=r"^KL\(p \|\| q\) needs equal transforms"):
        dist.kl_divergence(dist.TransformedDistribution(p, [exp]), dist.TransformedDistribution(q, []))


class _Plain(dist.ExponentialFamily):
    """Exponential numbers that say no more of themselves than their natural parameters."""

    arg_constraints = {"rate": dist.constraints.positive}  # noqa: RUF012
    _mean_carrier_measure = 0

    def __init__(self, rate):
        self.rate = rate
        super().__init__(rate.shape)

    @property
    def _natural_params(self):
        return (-self.rate,)

    def _log_normalizer(self, x):
        return -(-x).log()


def test_exponential_families():
    """Entropy and divergence follow from the log normalizer."""
    p, q = t([0.5, 2.0]), t([1.5, 1.0])
    np.testing.assert_allclose(_Plain(p).entropy().numpy(), dist.Exponential(p).entropy().numpy())
    p.requires_grad_()
    (grad,) = weft.autograd.grad(_Plain(p).entropy().sum(), p)
    np.testing.assert_allclose(grad.numpy(), -1 / p.detach().numpy())
    p = p.detach()
    expected = dist.kl_divergence(dist.Exponential(p), dist.Exponential(q))
    np.testing.assert_allclose(dist.kl_divergence(_Plain(p), _Plain(q)).numpy(), expected.numpy())
    with pytest.raises(NotImplementedError, match=r"^The cross KL-divergence between different exponential families"):
        dist.kl_divergence(_Plain(p), dist.Poisson(q))


def test_registered_pairs():
    class Left(dist.Normal):
        pass

    class Right(dist.Normal):
        pass

    p, q = Left(0.0, 1.0), Right(1.0, 1.0)
    assert dist.kl_divergence(p, q).item() == 0.5
    dist.register_kl(Left, dist.Normal)(lambda p, q: "left")
    assert dist.kl_divergence(p, q) == "left"
    dist.register_kl(dist.Normal, Right)(lambda p, q: "right")
    with pytest.warns(
        RuntimeWarning, match=r"^Ambiguous kl_divergence\(Left, Right\)\. Please register_kl\(Left, Right\)$"
    ):
        assert dist.kl_divergence(p, q) == "left"
    dist.register_kl(Left, Right)(lambda p, q: "both")
    assert dist.kl_divergence(p, q) == "both"
    with pytest.raises(TypeError, match=r"^Expected type_p to be a Distribution subclass but got 3$"):
        dist.register_kl(3, Left)
    text = r"^No KL\(p \|\| q\) is implemented for p type Normal and q type Cauchy$"
    with pytest.raises(NotImplementedError, match=text):
        dist.kl_divergence(dist.Normal(0.0, 1.0), dist.Cauchy(0.0, 1.0))


def test_registered_pairs_of_classes_that_are_not_derived():
    """As pyro's distributions are: a base of their own, mixed into subclasses."""

    class Own:
        pass

    Registered = abc.ABCMeta("Registered", (), {})

    class Mixed(Own, dist.Normal):
        pass

    dist.register_kl(Own, dist.Distribution)(lambda p, q: "own")
    assert dist.kl_divergence(Mixed(0.0, 1.0), dist.Cauchy(0.0, 1.0)) == "own"
    Registered.register(Mixed)
    dist.register_kl(Registered, dist.Cauchy)(lambda p, q: "registered")
    with pytest.warns(RuntimeWarning, match=r"^Ambiguous kl_divergence\(Mixed, Cauchy\)"):
        assert dist.kl_divergence(Mixed(0.0, 1.0), dist.Cauchy(0.0, 1.0)) == "own"
