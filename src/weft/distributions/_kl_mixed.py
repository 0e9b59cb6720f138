"""Divergences of distributions of different families: the cross entropy less the entropy of p.

The cross entropy, the mean of `-log q(x)` over p, needs only a few means over p: of x, its square, its logarithm, and
an exponential.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import singledispatch
from typing import Any

from weft._base.types import Arg
from weft._tensor.codegen import op
from weft._tensor.tensor import Tensor
from weft.distributions._counts import Bernoulli, Binomial, Poisson
from weft.distributions._dirichlet import Beta
from weft.distributions._divergence import register_kl
from weft.distributions._gamma import Exponential, Gamma
from weft.distributions._interval import ContinuousBernoulli, Uniform
from weft.distributions._line import Laplace, Normal
from weft.distributions._transformed import Gumbel, Pareto
from weft.distributions.utils import broadcast_all, euler_constant
from weft.ops._dims import broadcast_shapes

# --- means over p -----------------------------------------------------------------------------------------------


@singledispatch
def _mean_log(p: Arg) -> Tensor:
    """The mean of log(x)."""
    raise NotImplementedError


@_mean_log.register
def _(p: Beta) -> Tensor:
    return p.concentration1.digamma() - (p.concentration1 + p.concentration0).digamma()


@_mean_log.register
def _(p: Exponential) -> Tensor:
    return -p.rate.log() - euler_constant


@_mean_log.register
def _(p: Pareto) -> Tensor:
    return p.scale.log() + 1 / p.alpha


@_mean_log.register
def _(p: Uniform) -> Tensor:
    return (op.xlogy(p.high, p.high) - op.xlogy(p.low, p.low)) / (p.high - p.low) - 1


@singledispatch
def _mean_exp(p: Arg, t: Tensor) -> Tensor:
    """The mean of exp(-t x)."""
    raise NotImplementedError


@_mean_exp.register
def _(p: Exponential, t: Tensor) -> Tensor:
    return p.rate / (p.rate + t)


@_mean_exp.register
def _(p: Gamma, t: Tensor) -> Tensor:
    return (1 + t / p.rate) ** -p.concentration


@_mean_exp.register
def _(p: Normal, t: Tensor) -> Tensor:
    return (t * (t * p.variance / 2 - p.loc)).exp()


@_mean_exp.register
def _(p: Uniform, t: Tensor) -> Tensor:
    return ((-t * p.low).exp() - (-t * p.high).exp()) / (t * (p.high - p.low))


# --- cross entropies --------------------------------------------------------------------------------------------


def _to_normal(p: Arg, q: Normal) -> Tensor:
    spread = p.variance + (p.mean - q.loc) ** 2
    return q.scale.log() + math.log(2 * math.pi) / 2 + spread / (2 * q.variance)


def _to_exponential(p: Arg, q: Exponential) -> Tensor:
    return q.rate * p.mean - q.rate.log()


def _to_gamma(p: Arg, q: Gamma) -> Tensor:
    a = q.concentration
    return a.lgamma() - a * q.rate.log() - (a - 1) * _mean_log(p) + q.rate * p.mean


def _to_gumbel(p: Arg, q: Gumbel) -> Tensor:
    t = 1 / q.scale
    return q.scale.log() + t * (p.mean - q.loc) + _mean_exp(p, t) * (t * q.loc).exp()


def _to_uniform(p: Arg, q: Uniform) -> Tensor:
    return (q.high - q.low).log()


def _to_continuous_bernoulli(p: Arg, q: ContinuousBernoulli) -> Tensor:
    return -p.mean * q.logits - (-q.probs).log1p() - q._cont_bern_log_norm()


def _to_beta(p: Uniform, q: Beta) -> Tensor:
    a, b = q.concentration1, q.concentration0
    mirrored = Uniform(1 - p.high, 1 - p.low, validate_args=False)
    log_beta = a.lgamma() + b.lgamma() - (a + b).lgamma()
    return log_beta - (a - 1) * _mean_log(p) - (b - 1) * _mean_log(mirrored)


def _to_pareto(p: Arg, q: Pareto) -> Tensor:
    return (q.alpha + 1) * _mean_log(p) - q.alpha.log() - q.alpha * q.scale.log()


def _to_laplace(p: Normal, q: Laplace) -> Tensor:
    distance = p.loc - q.loc
    ratio = distance / p.scale / math.sqrt(2)
    mean = math.sqrt(2 / math.pi) * p.scale * (-(ratio**2)).exp() + distance * ratio.erf()
    return (2 * q.scale).log() + mean / q.scale


def _to_poisson(p: Bernoulli, q: Poisson) -> Tensor:
    return q.rate - p.probs * q.rate.log()


def _divergence(cross_entropy: Callable[[Any, Any], Tensor]) -> Callable[[Any, Any], Tensor]:
    def divergence(p: Arg, q: Arg) -> Tensor:
        return (cross_entropy(p, q) - p.entropy()).masked_fill(_leaves(p.support, q.support), math.inf)

    return divergence


def _leaves(inner: object, outer: object) -> Tensor:
    """Whether a support has values outside of another one."""
    lows = broadcast_all(*(getattr(support, "lower_bound", -math.inf) for support in (inner, outer)))
    highs = broadcast_all(*(getattr(support, "upper_bound", math.inf) for support in (inner, outer)))
    return (lows[0] < lows[1]) | (highs[0] > highs[1])


def _infinite(p: Arg, q: Arg) -> Tensor:
    return p.mean.new_full(broadcast_shapes(tuple(p.batch_shape), tuple(q.batch_shape)), math.inf)


_FINITE: dict[Callable[[Any, Any], Tensor], tuple[type, tuple[type, ...]]] = {
    _to_normal: (
        Normal, (Beta, ContinuousBernoulli, Exponential, Gamma, Gumbel, Laplace, Pareto, Uniform)
    ),
    _to_exponential: (Exponential, (Beta, ContinuousBernoulli, Gamma, Pareto, Uniform)),
    _to_gamma: (Gamma, (Beta, Exponential, Pareto, Uniform)),
    _to_gumbel: (Gumbel, (Exponential, Gamma, Normal, Uniform)),
    _to_uniform: (Uniform, (Beta, ContinuousBernoulli)),
    _to_continuous_bernoulli: (ContinuousBernoulli, (Beta, Uniform)),
    _to_beta: (Beta, (Uniform,)),
    _to_pareto: (Pareto, (Uniform,)),
    _to_laplace: (Laplace, (Normal,)),
}  # fmt: skip
"""Cross entropies, with the class of q and the classes of p."""

_BOUNDED = (Beta, ContinuousBernoulli, Pareto, Uniform)
_INFINITE: dict[type, tuple[type, ...]] = {
    Beta: (Pareto,),
    ContinuousBernoulli: (Pareto,),
    Exponential: _BOUNDED,
    Gamma: _BOUNDED,
    Gumbel: (*_BOUNDED, Exponential, Gamma),
    Laplace: (*_BOUNDED, Exponential, Gamma),
    Normal: (*_BOUNDED, Exponential, Gamma),
    Pareto: (Beta, ContinuousBernoulli, Uniform),
    Poisson: (Bernoulli, Binomial),
}
"""The classes of p, with the classes of q whose support never holds all values of p."""

for _cross_entropy, (_type_q, _types_p) in _FINITE.items():
    for _type_p in _types_p:
        register_kl(_type_p, _type_q)(_divergence(_cross_entropy))

for _type_p, _types_q in _INFINITE.items():
    for _type_q in _types_q:
        register_kl(_type_p, _type_q)(_infinite)


@register_kl(Bernoulli, Poisson)
def _bernoulli_poisson(p: Bernoulli, q: Poisson) -> Tensor:
    return _to_poisson(p, q) - p.entropy()
