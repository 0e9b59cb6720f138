"""Divergences of two distributions of one family."""

from __future__ import annotations

import math

from weft._tensor.tensor import Tensor
from weft.distributions._categorical import Categorical, OneHotCategorical
from weft.distributions._counts import Bernoulli, Binomial, Geometric, Poisson
from weft.distributions._dirichlet import Beta, Dirichlet
from weft.distributions._divergence import kl_divergence, register_kl
from weft.distributions._gamma import Exponential, Gamma
from weft.distributions._interval import ContinuousBernoulli, Uniform
from weft.distributions._line import Cauchy, Laplace, Normal
from weft.distributions._nested import Independent, TransformedDistribution
from weft.distributions._transformed import Gumbel, HalfNormal, Pareto
from weft.distributions.exp_family import ExponentialFamily
from weft.distributions.utils import euler_constant, sum_rightmost
from weft.errors import NotDefinedError
from weft.nn.functional import softplus


@register_kl(Normal, Normal)
def _normal(p: Normal, q: Normal) -> Tensor:
    ratio = (p.scale / q.scale) ** 2
    return 0.5 * (ratio + ((p.loc - q.loc) / q.scale) ** 2 - 1 - ratio.log())


@register_kl(HalfNormal, HalfNormal)
def _half_normal(p: HalfNormal, q: HalfNormal) -> Tensor:
    return kl_divergence(p.base_dist, q.base_dist)


@register_kl(Cauchy, Cauchy)
def _cauchy(p: Cauchy, q: Cauchy) -> Tensor:
    """Chyzak and Nielsen, "A closed-form formula for the KL divergence between Cauchy distributions", 2019."""
    return ((p.scale + q.scale) ** 2 + (p.loc - q.loc) ** 2).log() - (4 * p.scale * q.scale).log()


@register_kl(Laplace, Laplace)
def _laplace(p: Laplace, q: Laplace) -> Tensor:
    ratio, distance = p.scale / q.scale, (p.loc - q.loc).abs()
    return -ratio.log() + distance / q.scale + ratio * (-distance / p.scale).exp() - 1


@register_kl(Gumbel, Gumbel)
def _gumbel(p: Gumbel, q: Gumbel) -> Tensor:
    ratio, distance = p.scale / q.scale, (p.loc - q.loc) / q.scale
    tail = ((1 + ratio).lgamma() - distance).exp()
    return -ratio.log() + distance + ratio * euler_constant + tail - (1 + euler_constant)


@register_kl(Uniform, Uniform)
def _uniform(p: Uniform, q: Uniform) -> Tensor:
    divergence = ((q.high - q.low) / (p.high - p.low)).log()
    return divergence.masked_fill((q.low > p.low) | (q.high < p.high), math.inf)


@register_kl(Exponential, Exponential)
def _exponential(p: Exponential, q: Exponential) -> Tensor:
    ratio = q.rate / p.rate
    return ratio - 1 - ratio.log()


@register_kl(Gamma, Gamma)
def _gamma(p: Gamma, q: Gamma) -> Tensor:
    a, b = p.concentration, q.concentration
    logs = b * (p.rate / q.rate).log() + b.lgamma() - a.lgamma()
    return logs + (a - b) * a.digamma() + (q.rate - p.rate) * (a / p.rate)


@register_kl(Pareto, Pareto)
def _pareto(p: Pareto, q: Pareto) -> Tensor:
    ratio = q.alpha / p.alpha
    divergence = q.alpha * (p.scale / q.scale).log() - ratio.log() + ratio - 1
    return divergence.masked_fill(p.scale < q.scale, math.inf)


@register_kl(Beta, Beta)
def _beta(p: Beta, q: Beta) -> Tensor:
    return _dirichlet(p._dirichlet, q._dirichlet)


@register_kl(Dirichlet, Dirichlet)
def _dirichlet(p: Dirichlet, q: Dirichlet) -> Tensor:
    a, b = p.concentration, q.concentration
    sums = a.sum(-1)
    log_betas = sums.lgamma() - b.sum(-1).lgamma() - (a.lgamma() - b.lgamma()).sum(-1)
    return log_betas + ((a - b) * (a.digamma() - sums.digamma().unsqueeze(-1))).sum(-1)


@register_kl(ContinuousBernoulli, ContinuousBernoulli)
def _continuous_bernoulli(p: ContinuousBernoulli, q: ContinuousBernoulli) -> Tensor:
    norms = p._cont_bern_log_norm() - q._cont_bern_log_norm()
    return p.mean * (p.logits - q.logits) + norms + (-p.probs).log1p() - (-q.probs).log1p()


@register_kl(Bernoulli, Bernoulli)
def _bernoulli(p: Bernoulli, q: Bernoulli) -> Tensor:
    return _event(p.probs, p.logits, q.probs, q.logits) + _event(1 - p.probs, -p.logits, 1 - q.probs, -q.logits)


def _event(p: Tensor, p_logits: Tensor, q: Tensor, q_logits: Tensor) -> Tensor:
    """`p log(p / q)`; 0 where p is 0, else infinite where q is 0."""
    term = p * (softplus(-q_logits) - softplus(-p_logits))
    return term.masked_fill(q == 0, math.inf).masked_fill(p == 0, 0)


@register_kl(Categorical, Categorical)
def _categorical(p: Categorical, q: Categorical) -> Tensor:
    terms = p.probs * (p.logits - q.logits)
    return terms.masked_fill(q.probs == 0, math.inf).masked_fill(p.probs == 0, 0).sum(-1)


@register_kl(OneHotCategorical, OneHotCategorical)
def _one_hot(p: OneHotCategorical, q: OneHotCategorical) -> Tensor:
    return _categorical(p._categorical, q._categorical)


@register_kl(Binomial, Binomial)
def _binomial(p: Binomial, q: Binomial) -> Tensor:
    if (p.total_count < q.total_count).any():
        raise NotDefinedError("KL between Binomials where q.total_count > p.total_count is not implemented")
    divergence = p.probs * (p.logits - q.logits) + (-p.probs).log1p() - (-q.probs).log1p()
    return (p.total_count * divergence).masked_fill(p.total_count > q.total_count, math.inf)


@register_kl(Geometric, Geometric)
def _geometric(p: Geometric, q: Geometric) -> Tensor:
    return -p.entropy() - (-q.probs).log1p() / p.probs - q.logits


@register_kl(Poisson, Poisson)
def _poisson(p: Poisson, q: Poisson) -> Tensor:
    return p.rate * (p.rate.log() - q.rate.log()) - (p.rate - q.rate)


@register_kl(ExponentialFamily, ExponentialFamily)
def _exponential_family(p: ExponentialFamily, q: ExponentialFamily) -> Tensor:
    """The Bregman divergence of the log normalizers."""
    if type(p) is not type(q):
        raise NotDefinedError(
            "The cross KL-divergence between different exponential families cannot be computed "
            "using Bregman divergences"
        )
    parameters, value, means = p._normalizer()
    result = q._log_normalizer(*q._natural_params) - value
    for own, other, mean in zip(parameters, q._natural_params, means, strict=True):
        result = result - sum_rightmost((other - own) * mean, own.dim() - len(p.batch_shape))
    return result


@register_kl(Independent, Independent)
def _independent(p: Independent, q: Independent) -> Tensor:
    _require_equal("reinterpreted_batch_ndims", p.reinterpreted_batch_ndims, q.reinterpreted_batch_ndims)
    return sum_rightmost(kl_divergence(p.base_dist, q.base_dist), p.reinterpreted_batch_ndims)


@register_kl(TransformedDistribution, TransformedDistribution)
def _transformed(p: TransformedDistribution, q: TransformedDistribution) -> Tensor:
    """A bijection that both share leaves the divergence as it is."""
    _require_equal("transforms", p.transforms, q.transforms)
    _require_equal("event_shape", p.event_shape, q.event_shape)
    return kl_divergence(p.base_dist, q.base_dist)


def _require_equal(name: str, ours: object, theirs: object) -> None:
    if ours != theirs:
        raise NotDefinedError(f"KL(p || q) needs equal {name}, got {ours} and {theirs}")
