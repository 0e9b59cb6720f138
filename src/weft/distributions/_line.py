"""Distributions on the whole line, and on the circle."""

from __future__ import annotations

import math
from typing import Any, ClassVar

from weft._base.dtype import float64
from weft._base.limits import finfo
from weft._base.state import using
from weft._tensor.codegen import op
from weft._tensor.tensor import Tensor
from weft.distributions import constraints
from weft.distributions.distribution import Distribution, Shape
from weft.distributions.exp_family import ExponentialFamily
from weft.distributions.utils import attribute, broadcast_all, lazy_property, standard_normal, uniform_numbers


class _LocationScale(Distribution):
    """A distribution of the line with its mode at `loc`, made wider by `scale`."""

    arg_constraints: ClassVar[Any] = {"loc": constraints.real, "scale": constraints.positive}
    support = constraints.real
    has_rsample = True
    loc: Tensor
    scale: Tensor

    def __init__(self, loc: Tensor | float, scale: Tensor | float, validate_args: bool | None = None) -> None:
        self.loc, self.scale = broadcast_all(loc, scale)
        super().__init__(self.loc.shape, validate_args=validate_args)

    mode: Tensor = attribute("loc")


class Normal(_LocationScale, ExponentialFamily):
    """Normal numbers with mean `loc` and standard deviation `scale`."""

    _mean_carrier_measure = 0

    mean: Tensor = attribute("loc")

    @property
    def stddev(self) -> Tensor:
        return self.scale

    @property
    def variance(self) -> Tensor:
        return self.scale**2

    def rsample(self, sample_shape: Shape = ()) -> Tensor:
        return self.loc + standard_normal(self._extended_shape(sample_shape), self.loc) * self.scale

    def _log_prob(self, value: Tensor) -> Tensor:
        return -((value - self.loc) ** 2) / (2 * self.variance) - self.scale.log() - math.log(2 * math.pi) / 2

    def _cdf(self, value: Tensor) -> Tensor:
        return (1 + ((value - self.loc) / self.scale / math.sqrt(2)).erf()) / 2

    def icdf(self, value: Tensor) -> Tensor:
        return self.loc + self.scale * (2 * value - 1).erfinv() * math.sqrt(2)

    def entropy(self) -> Tensor:
        return (1 + math.log(2 * math.pi)) / 2 + self.scale.log()

    @property
    def _natural_params(self) -> tuple[Tensor, ...]:
        return self.loc / self.variance, -1 / (2 * self.variance)

    def _log_normalizer(self, x: Tensor, y: Tensor) -> Tensor:
        return -(x**2) / y / 4 + (-math.pi / y).log() / 2


class Cauchy(_LocationScale):
    """Ratios of two independent normal numbers, scaled and moved; without mean and variance."""

    @property
    def mean(self) -> Tensor:
        return self.loc.new_full(self._extended_shape(), math.nan)

    @property
    def variance(self) -> Tensor:
        return self.loc.new_full(self._extended_shape(), math.inf)

    def rsample(self, sample_shape: Shape = ()) -> Tensor:
        return self.loc + self.loc.new_empty(self._extended_shape(sample_shape)).cauchy_() * self.scale

    def _log_prob(self, value: Tensor) -> Tensor:
        return -math.log(math.pi) - self.scale.log() - (((value - self.loc) / self.scale) ** 2).log1p()

    def _cdf(self, value: Tensor) -> Tensor:
        return ((value - self.loc) / self.scale).atan() / math.pi + 0.5

    def icdf(self, value: Tensor) -> Tensor:
        return (math.pi * (value - 0.5)).tan() * self.scale + self.loc

    def entropy(self) -> Tensor:
        return math.log(4 * math.pi) + self.scale.log()


class Laplace(_LocationScale):
    """Exponential numbers with mean `scale` to both sides of `loc`."""

    mean: Tensor = attribute("loc")

    @property
    def variance(self) -> Tensor:
        return 2 * self.scale**2

    @property
    def stddev(self) -> Tensor:
        return math.sqrt(2) * self.scale

    def rsample(self, sample_shape: Shape = ()) -> Tensor:
        empty = self.loc.new_empty(self._extended_shape(sample_shape))
        u = empty.uniform_(finfo(self.loc.dtype).eps - 1, 1)
        return self.loc - self.scale * u.sign() * (-u.abs()).log1p()

    def _log_prob(self, value: Tensor) -> Tensor:
        return -(2 * self.scale).log() - (value - self.loc).abs() / self.scale

    def _cdf(self, value: Tensor) -> Tensor:
        distance = value - self.loc
        return 0.5 - 0.5 * distance.sign() * (-distance.abs() / self.scale).expm1()

    def icdf(self, value: Tensor) -> Tensor:
        term = value - 0.5
        return self.loc - self.scale * term.sign() * (-2 * term.abs()).log1p()

    def entropy(self) -> Tensor:
        return 1 + (2 * self.scale).log()


class VonMises(Distribution):
    """Angles in [-π, π), with density proportional to `exp(concentration * cos(x - loc))`.

    `variance` is the circular one. Draws are those of Best and Fisher, "Efficient simulation of the von Mises
    distribution", 1979; they have no derivatives.
    """

    arg_constraints: ClassVar[Any] = {"loc": constraints.real, "concentration": constraints.positive}
    support = constraints.real
    loc: Tensor
    concentration: Tensor

    def __init__(self, loc: Tensor | float, concentration: Tensor | float, validate_args: bool | None = None) -> None:
        self.loc, self.concentration = broadcast_all(loc, concentration)
        super().__init__(self.loc.shape, validate_args=validate_args)

    def _log_prob(self, value: Tensor) -> Tensor:
        kappa = self.concentration
        log_bessel = op.i0e(kappa).log() + kappa
        return kappa * (value - self.loc).cos() - math.log(2 * math.pi) - log_bessel

    def sample(self, sample_shape: Shape = ()) -> Tensor:
        shape = self._extended_shape(sample_shape)
        with using(grad=False):
            loc, kappa = self.loc.to(float64), self.concentration.to(float64)
            angles = _rejection_sample(kappa.expand(shape), _proposal(kappa).expand(shape))
            return _wrapped(angles + loc).to(self.loc.dtype)

    mean: Tensor = attribute("loc")
    mode: Tensor = attribute("loc")

    @lazy_property
    def variance(self) -> Tensor:
        return 1 - op.i1e(self.concentration) / op.i0e(self.concentration)


def _wrapped(angles: Tensor) -> Tensor:
    return (angles + math.pi) % (2 * math.pi) - math.pi


def _proposal(kappa: Tensor) -> Tensor:
    """The parameter of the wrapped Cauchy distribution that is proposed; for small `kappa`, the start of its series."""
    tau = 1 + (1 + 4 * kappa**2).sqrt()
    rho = (tau - (2 * tau).sqrt()) / (2 * kappa)
    return op.where(kappa < 1e-5, 1 / kappa + kappa, (1 + rho**2) / (2 * rho))


def _rejection_sample(kappa: Tensor, proposal: Tensor) -> Tensor:
    """Angles around 0. Each round proposes one for all elements; the number of rounds depends on what is refused."""
    angles, done = kappa.new_zeros(kappa.shape), kappa.new_zeros(kappa.shape) > 0
    while not done.all():
        first, second, third = uniform_numbers((3, *kappa.shape), kappa)
        z = (math.pi * first).cos()
        f = (1 + proposal * z) / (proposal + z)
        c = kappa * (proposal - f)
        accepted = ((c * (2 - c) - second > 0) | ((c / second).log() + 1 - c >= 0)) & ~done
        angles = op.where(accepted, (third - 0.5).sign() * f.acos(), angles)
        done = done | accepted
    return angles
