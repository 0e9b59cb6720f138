"""Distributions that are made of gamma numbers."""

from __future__ import annotations

import math
from typing import Any, ClassVar, Self

from weft._base.limits import finfo
from weft._tensor.codegen import op
from weft._tensor.convert import as_tensor
from weft._tensor.tensor import Tensor
from weft.distributions import constraints
from weft.distributions.distribution import Distribution, Shape
from weft.distributions.exp_family import ExponentialFamily
from weft.distributions.utils import attribute, broadcast_all, standard_normal


class Exponential(ExponentialFamily):
    """Waiting times for events that come at a `rate`."""

    arg_constraints: ClassVar[Any] = {"rate": constraints.positive}
    support = constraints.nonnegative
    has_rsample = True
    _mean_carrier_measure = 0
    rate: Tensor

    def __init__(self, rate: Tensor | float, validate_args: bool | None = None) -> None:
        (self.rate,) = broadcast_all(rate)
        super().__init__(self.rate.shape, validate_args=validate_args)

    @property
    def mean(self) -> Tensor:
        return 1 / self.rate

    @property
    def mode(self) -> Tensor:
        return self.rate.new_zeros(self.rate.shape)

    @property
    def stddev(self) -> Tensor:
        return 1 / self.rate

    @property
    def variance(self) -> Tensor:
        return self.rate**-2

    def rsample(self, sample_shape: Shape = ()) -> Tensor:
        return self.rate.new_empty(self._extended_shape(sample_shape)).exponential_() / self.rate

    def _log_prob(self, value: Tensor) -> Tensor:
        return self.rate.log() - self.rate * value

    def _cdf(self, value: Tensor) -> Tensor:
        return 1 - (-self.rate * value).exp()

    def icdf(self, value: Tensor) -> Tensor:
        return -(-value).log1p() / self.rate

    def entropy(self) -> Tensor:
        return 1 - self.rate.log()

    @property
    def _natural_params(self) -> tuple[Tensor, ...]:
        return (-self.rate,)

    def _log_normalizer(self, x: Tensor) -> Tensor:
        return -(-x).log()


class Gamma(ExponentialFamily):
    """Gamma numbers with shape parameter `concentration`, divided by `rate`."""

    arg_constraints: ClassVar[Any] = {"concentration": constraints.positive, "rate": constraints.positive}
    support = constraints.nonnegative
    has_rsample = True
    _mean_carrier_measure = 0
    concentration: Tensor
    rate: Tensor

    def __init__(self, concentration: Tensor | float, rate: Tensor | float, validate_args: bool | None = None) -> None:
        self.concentration, self.rate = broadcast_all(concentration, rate)
        super().__init__(self.concentration.shape, validate_args=validate_args)

    @property
    def mean(self) -> Tensor:
        return self.concentration / self.rate

    @property
    def mode(self) -> Tensor:
        return ((self.concentration - 1) / self.rate).clamp(min=0)

    @property
    def variance(self) -> Tensor:
        return self.concentration / self.rate**2

    def rsample(self, sample_shape: Shape = ()) -> Tensor:
        standard = op._standard_gamma(self.concentration.expand(self._extended_shape(sample_shape)))
        return (standard / self.rate).clamp(min=finfo(standard.dtype).tiny)

    def log_prob(self, value: Tensor) -> Tensor:
        return super().log_prob(as_tensor(value, dtype=self.rate.dtype, device=self.rate.device))

    def _log_prob(self, value: Tensor) -> Tensor:
        a = self.concentration
        return op.xlogy(a, self.rate) + op.xlogy(a - 1, value) - self.rate * value - a.lgamma()

    def _cdf(self, value: Tensor) -> Tensor:
        return op.igamma(self.concentration, self.rate * value)

    def entropy(self) -> Tensor:
        a = self.concentration
        return a - self.rate.log() + a.lgamma() + (1 - a) * a.digamma()

    @property
    def _natural_params(self) -> tuple[Tensor, ...]:
        return self.concentration - 1, -self.rate

    def _log_normalizer(self, x: Tensor, y: Tensor) -> Tensor:
        return (x + 1).lgamma() - (x + 1) * (-y).log()


class Chi2(Gamma):
    """Sums of the squares of `df` independent normal numbers."""

    arg_constraints: ClassVar[Any] = {"df": constraints.positive}

    def __init__(self, df: Tensor | float, validate_args: bool | None = None) -> None:
        super().__init__(0.5 * df, 0.5, validate_args=validate_args)

    def expand(self, batch_shape: Shape, _instance: Distribution | None = None) -> Self:
        new = super().expand(batch_shape, _instance)
        new.concentration, new.rate = (x.expand(batch_shape) for x in (self.concentration, self.rate))
        return new

    @property
    def df(self) -> Tensor:
        return self.concentration * 2


class FisherSnedecor(Distribution):
    """Ratios of two independent chi-square numbers, each divided by its degrees of freedom."""

    arg_constraints: ClassVar[Any] = {"df1": constraints.positive, "df2": constraints.positive}
    support = constraints.positive
    has_rsample = True
    df1: Tensor
    df2: Tensor

    def __init__(self, df1: Tensor | float, df2: Tensor | float, validate_args: bool | None = None) -> None:
        self.df1, self.df2 = broadcast_all(df1, df2)
        super().__init__(self.df1.shape, validate_args=validate_args)

    @property
    def mean(self) -> Tensor:
        return (self.df2 / (self.df2 - 2)).masked_fill(self.df2 <= 2, math.nan)

    @property
    def mode(self) -> Tensor:
        mode = (self.df1 - 2) / self.df1 * self.df2 / (self.df2 + 2)
        return mode.masked_fill(self.df1 <= 2, math.nan)

    @property
    def variance(self) -> Tensor:
        df1, df2 = self.df1, self.df2
        finite = 2 * df2**2 * (df1 + df2 - 2) / (df1 * (df2 - 2) ** 2 * (df2 - 4))
        return finite.masked_fill(df2 <= 4, math.nan)

    def rsample(self, sample_shape: Shape = ()) -> Tensor:
        tiny = finfo(self.df1.dtype).tiny
        above, below = (Gamma(df / 2, df / 2, validate_args=False).rsample(sample_shape) for df in (self.df1, self.df2))
        return (above / below).clamp(min=tiny)

    def _log_prob(self, value: Tensor) -> Tensor:
        a, b, ratio = self.df1 / 2, self.df2 / 2, self.df1 / self.df2
        log_beta = a.lgamma() + b.lgamma() - (a + b).lgamma()
        return a * ratio.log() + (a - 1) * value.log() - (a + b) * (ratio * value).log1p() - log_beta


class StudentT(Distribution):
    """Student's t with `df` degrees of freedom, scaled and moved."""

    arg_constraints: ClassVar[Any] = {
        "df": constraints.positive,
        "loc": constraints.real,
        "scale": constraints.positive,
    }
    support = constraints.real
    has_rsample = True
    df: Tensor
    loc: Tensor
    scale: Tensor

    def __init__(
        self,
        df: Tensor | float,
        loc: Tensor | float = 0.0,
        scale: Tensor | float = 1.0,
        validate_args: bool | None = None,
    ) -> None:
        self.df, self.loc, self.scale = broadcast_all(df, loc, scale)
        super().__init__(self.df.shape, validate_args=validate_args)

    @property
    def mean(self) -> Tensor:
        return self.loc.masked_fill(self.df <= 1, math.nan)

    mode: Tensor = attribute("loc")

    @property
    def variance(self) -> Tensor:
        finite = self.scale**2 * self.df / (self.df - 2)
        return finite.masked_fill(self.df <= 2, math.inf).masked_fill(self.df <= 1, math.nan)

    def rsample(self, sample_shape: Shape = ()) -> Tensor:
        numbers = standard_normal(self._extended_shape(sample_shape), self.df)
        squares = Chi2(self.df, validate_args=False).rsample(sample_shape)
        return self.loc + self.scale * (numbers * (squares / self.df).rsqrt())

    def _log_prob(self, value: Tensor) -> Tensor:
        y = (value - self.loc) / self.scale
        return -(self.df + 1) / 2 * (y**2 / self.df).log1p() - self._log_normalizer()

    def _log_normalizer(self) -> Tensor:
        return self.scale.log() + self.df.log() / 2 + self._log_beta()

    def _log_beta(self) -> Tensor:
        """The logarithm of the beta function of df / 2 and 1 / 2."""
        half = self.df / 2
        return half.lgamma() + math.log(math.pi) / 2 - (half + 0.5).lgamma()

    def entropy(self) -> Tensor:
        half = self.df / 2
        return self._log_normalizer() + (half + 0.5) * ((half + 0.5).digamma() - half.digamma())
