"""Distributions of numbers that are transforms of simpler ones."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, ClassVar

from weft._base.limits import finfo
from weft._tensor.convert import as_tensor
from weft._tensor.tensor import Tensor
from weft.distributions import constraints
from weft.distributions._elementwise_transforms import AbsTransform, AffineTransform, ExpTransform, PowerTransform
from weft.distributions._gamma import Exponential, Gamma
from weft.distributions._interval import Uniform
from weft.distributions._line import Cauchy, Normal
from weft.distributions._nested import TransformedDistribution
from weft.distributions.utils import attribute, broadcast_all, euler_constant

if TYPE_CHECKING:
    from weft.distributions._constraint import Constraint


class _Folded(TransformedDistribution):
    """Absolute values of numbers that are distributed symmetrically around 0."""

    arg_constraints: ClassVar[Any] = {"scale": constraints.positive}
    support = constraints.nonnegative

    scale: Tensor = attribute("base_dist.scale")

    @property
    def mode(self) -> Tensor:
        return self.scale.new_zeros(self.scale.shape)

    def _log_prob(self, value: Tensor) -> Tensor:
        value = as_tensor(value, dtype=self.scale.dtype, device=self.scale.device)
        return (self.base_dist.log_prob(value) + math.log(2)).masked_fill(value < 0, -math.inf)

    def _cdf(self, value: Tensor) -> Tensor:
        return 2 * self.base_dist.cdf(value) - 1

    def icdf(self, value: Tensor) -> Tensor:
        return self.base_dist.icdf((value + 1) / 2)

    def entropy(self) -> Tensor:
        return self.base_dist.entropy() - math.log(2)


class HalfNormal(_Folded):
    """Absolute values of normal numbers with mean 0."""

    def __init__(self, scale: Tensor | float, validate_args: bool | None = None) -> None:
        super().__init__(Normal(0, scale, validate_args=False), AbsTransform(), validate_args=validate_args)

    @property
    def mean(self) -> Tensor:
        return self.scale * math.sqrt(2 / math.pi)

    @property
    def variance(self) -> Tensor:
        return self.scale**2 * (1 - 2 / math.pi)


class HalfCauchy(_Folded):
    """Absolute values of Cauchy numbers around 0."""

    def __init__(self, scale: Tensor | float, validate_args: bool | None = None) -> None:
        super().__init__(Cauchy(0, scale, validate_args=False), AbsTransform(), validate_args=validate_args)

    @property
    def mean(self) -> Tensor:
        return self.scale.new_full(self._extended_shape(), math.inf)

    variance: Tensor = attribute("base_dist.variance")


class LogNormal(TransformedDistribution):
    """Numbers whose logarithms are normal."""

    arg_constraints: ClassVar[Any] = {"loc": constraints.real, "scale": constraints.positive}
    support = constraints.positive

    def __init__(self, loc: Tensor | float, scale: Tensor | float, validate_args: bool | None = None) -> None:
        super().__init__(Normal(loc, scale, validate_args=validate_args), ExpTransform(), validate_args=validate_args)

    loc: Tensor = attribute("base_dist.loc")
    scale: Tensor = attribute("base_dist.scale")

    @property
    def mean(self) -> Tensor:
        return (self.loc + self.scale**2 / 2).exp()

    @property
    def mode(self) -> Tensor:
        return (self.loc - self.scale**2).exp()

    @property
    def variance(self) -> Tensor:
        return (self.scale**2).expm1() * (2 * self.loc + self.scale**2).exp()

    def entropy(self) -> Tensor:
        return self.base_dist.entropy() + self.loc


class Gumbel(TransformedDistribution):
    """The limit of the largest of many exponential numbers, scaled and moved."""

    arg_constraints: ClassVar[Any] = {"loc": constraints.real, "scale": constraints.positive}
    support = constraints.real
    loc: Tensor
    scale: Tensor

    def __init__(self, loc: Tensor | float, scale: Tensor | float, validate_args: bool | None = None) -> None:
        self.loc, self.scale = broadcast_all(loc, scale)
        info = finfo(self.loc.dtype)
        ends = [self.loc.new_full(self.loc.shape, end) for end in (info.tiny, 1 - info.eps)]
        minus_log = [ExpTransform().inv, AffineTransform(0, -self.scale.new_ones(self.scale.shape))]
        transforms = [*minus_log, ExpTransform().inv, AffineTransform(self.loc, -self.scale)]
        super().__init__(Uniform(*ends, validate_args=validate_args), transforms, validate_args=validate_args)

    def _log_prob(self, value: Tensor) -> Tensor:
        y = (self.loc - value) / self.scale
        return y - y.exp() - self.scale.log()

    @property
    def mean(self) -> Tensor:
        return self.loc + self.scale * euler_constant

    mode: Tensor = attribute("loc")

    @property
    def stddev(self) -> Tensor:
        return math.pi / math.sqrt(6) * self.scale

    @property
    def variance(self) -> Tensor:
        return self.stddev**2

    def entropy(self) -> Tensor:
        return self.scale.log() + (1 + euler_constant)


class InverseGamma(TransformedDistribution):
    """Inverses of gamma numbers."""

    arg_constraints: ClassVar[Any] = {"concentration": constraints.positive, "rate": constraints.positive}
    support = constraints.positive

    def __init__(self, concentration: Tensor | float, rate: Tensor | float, validate_args: bool | None = None) -> None:
        base = Gamma(concentration, rate, validate_args=validate_args)
        super().__init__(base, PowerTransform(base.rate.new_full((), -1)), validate_args=validate_args)

    concentration: Tensor = attribute("base_dist.concentration")
    rate: Tensor = attribute("base_dist.rate")

    @property
    def mean(self) -> Tensor:
        return (self.rate / (self.concentration - 1)).masked_fill(self.concentration <= 1, math.inf)

    @property
    def mode(self) -> Tensor:
        return self.rate / (self.concentration + 1)

    @property
    def variance(self) -> Tensor:
        a = self.concentration
        return (self.rate**2 / ((a - 1) ** 2 * (a - 2))).masked_fill(a <= 2, math.inf)

    def entropy(self) -> Tensor:
        a = self.concentration
        return a + self.rate.log() + a.lgamma() - (1 + a) * a.digamma()


class Pareto(TransformedDistribution):
    """Numbers from `scale` on whose distribution falls with the power `alpha`."""

    arg_constraints: ClassVar[Any] = {"alpha": constraints.positive, "scale": constraints.positive}
    scale: Tensor
    alpha: Tensor

    def __init__(self, scale: Tensor | float, alpha: Tensor | float, validate_args: bool | None = None) -> None:
        self.scale, self.alpha = broadcast_all(scale, alpha)
        base = Exponential(self.alpha, validate_args=validate_args)
        super().__init__(base, [ExpTransform(), AffineTransform(0, self.scale)], validate_args=validate_args)

    @property
    def mean(self) -> Tensor:
        a = self.alpha.clamp(min=1)
        return a * self.scale / (a - 1)

    mode: Tensor = attribute("scale")

    @property
    def variance(self) -> Tensor:
        a = self.alpha.clamp(min=2)
        return self.scale**2 * a / ((a - 1) ** 2 * (a - 2))

    @constraints.dependent_property(is_discrete=False, event_dim=0)
    def support(self) -> Constraint:
        return constraints.greater_than_eq(self.scale)

    def entropy(self) -> Tensor:
        return (self.scale / self.alpha).log() + (1 + 1 / self.alpha)


class Weibull(TransformedDistribution):
    """Exponential numbers to the power of `1 / concentration`, scaled."""

    arg_constraints: ClassVar[Any] = {"scale": constraints.positive, "concentration": constraints.positive}
    support = constraints.positive
    scale: Tensor
    concentration: Tensor

    def __init__(self, scale: Tensor | float, concentration: Tensor | float, validate_args: bool | None = None) -> None:
        self.scale, self.concentration = broadcast_all(scale, concentration)
        base = Exponential(self.scale.new_ones(self.scale.shape), validate_args=validate_args)
        transforms = [PowerTransform(self.concentration_reciprocal), AffineTransform(0, self.scale)]
        super().__init__(base, transforms, validate_args=validate_args)

    @property
    def concentration_reciprocal(self) -> Tensor:
        """The exponent of the exponential numbers."""
        return 1 / self.concentration

    @property
    def mean(self) -> Tensor:
        return self.scale * (1 + self.concentration_reciprocal).lgamma().exp()

    @property
    def mode(self) -> Tensor:
        return self.scale * ((self.concentration - 1) / self.concentration) ** self.concentration_reciprocal

    @property
    def variance(self) -> Tensor:
        k = self.concentration_reciprocal
        return self.scale**2 * ((1 + 2 * k).lgamma().exp() - (2 * (1 + k).lgamma()).exp())

    def entropy(self) -> Tensor:
        k = self.concentration_reciprocal
        return euler_constant * (1 - k) + (self.scale * k).log() + 1


class Kumaraswamy(TransformedDistribution):
    """Numbers from (0, 1), much like beta numbers, with a distribution function of elementary functions."""

    arg_constraints: ClassVar[Any] = {"concentration1": constraints.positive, "concentration0": constraints.positive}
    support = constraints.unit_interval
    concentration1: Tensor
    concentration0: Tensor

    def __init__(
        self, concentration1: Tensor | float, concentration0: Tensor | float, validate_args: bool | None = None
    ) -> None:
        self.concentration1, self.concentration0 = broadcast_all(concentration1, concentration0)
        b = self.concentration0
        base = Uniform(b.new_zeros(b.shape), b.new_ones(b.shape), validate_args)
        transforms = [
            PowerTransform(1 / self.concentration0),
            AffineTransform(1.0, -1.0),
            PowerTransform(1 / self.concentration1),
        ]
        super().__init__(base, transforms, validate_args=validate_args)

    def _moment(self, order: int) -> Tensor:
        a, b = 1 + order / self.concentration1, self.concentration0
        return b * (a.lgamma() + b.lgamma() - (a + b).lgamma()).exp()

    @property
    def mean(self) -> Tensor:
        return self._moment(1)

    @property
    def mode(self) -> Tensor:
        a, b = self.concentration1, self.concentration0
        log_mode = (-b).log1p() / b - (-a * b).log1p()
        return log_mode.masked_fill((a < 1) | (b < 1), math.nan).exp()

    @property
    def variance(self) -> Tensor:
        return self._moment(2) - self.mean**2

    def entropy(self) -> Tensor:
        a, b = self.concentration1, self.concentration0
        return 1 - 1 / b + (1 - 1 / a) * ((b + 1).digamma() + euler_constant) - a.log() - b.log()
