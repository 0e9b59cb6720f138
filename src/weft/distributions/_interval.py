"""Distributions on intervals."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, ClassVar

from weft._tensor.codegen import op
from weft._tensor.tensor import Tensor
from weft.distributions import constraints
from weft.distributions._probability import OddsDistribution
from weft.distributions.distribution import Distribution, Shape, all_true
from weft.distributions.exp_family import ExponentialFamily
from weft.distributions.utils import (
    attribute,
    broadcast_all,
    clamp_probs,
    lazy_property,
    logits_to_probs,
    uniform_numbers,
)
from weft.errors import ValueRangeError
from weft.nn.functional import binary_cross_entropy_with_logits

if TYPE_CHECKING:
    from weft.distributions._constraint import Constraint


class Uniform(Distribution):
    """Uniform numbers from [low, high)."""

    has_rsample = True
    low: Tensor
    high: Tensor

    def __init__(self, low: Tensor | float, high: Tensor | float, validate_args: bool | None = None) -> None:
        self.low, self.high = broadcast_all(low, high)
        super().__init__(self.low.shape, validate_args=validate_args)

    @property
    def arg_constraints(self) -> dict[str, Constraint]:  # pyright: ignore[reportIncompatibleVariableOverride]
        return {"low": constraints.less_than(self.high), "high": constraints.greater_than(self.low)}

    @constraints.dependent_property(is_discrete=False, event_dim=0)
    def support(self) -> Constraint:
        return constraints.interval(self.low, self.high)

    @property
    def mean(self) -> Tensor:
        return (self.high + self.low) / 2

    @property
    def mode(self) -> Tensor:
        return math.nan * self.high

    @property
    def stddev(self) -> Tensor:
        return (self.high - self.low) / math.sqrt(12)

    @property
    def variance(self) -> Tensor:
        return (self.high - self.low) ** 2 / 12

    def rsample(self, sample_shape: Shape = ()) -> Tensor:
        return self.icdf(uniform_numbers(self._extended_shape(sample_shape), self.low))

    def _log_prob(self, value: Tensor) -> Tensor:
        inside = (self.low <= value) & (value < self.high)
        return inside.type_as(self.low).log() - (self.high - self.low).log()

    def _cdf(self, value: Tensor) -> Tensor:
        return ((value - self.low) / (self.high - self.low)).clamp(min=0, max=1)

    def icdf(self, value: Tensor) -> Tensor:
        return self.low + value * (self.high - self.low)

    def entropy(self) -> Tensor:
        return (self.high - self.low).log()


class GeneralizedPareto(Distribution):
    """What exceeds a high threshold `loc`, in the limit (Pickands, 1975).

    With a negative `concentration`, values end at `loc - scale / concentration`; with 0, they are exponential.
    """

    arg_constraints: ClassVar[Any] = {
        "loc": constraints.real,
        "scale": constraints.positive,
        "concentration": constraints.real,
    }
    has_rsample = True
    loc: Tensor
    scale: Tensor
    concentration: Tensor

    def __init__(
        self,
        loc: Tensor | float,
        scale: Tensor | float,
        concentration: Tensor | float,
        validate_args: bool | None = None,
    ) -> None:
        self.loc, self.scale, self.concentration = broadcast_all(loc, scale, concentration)
        super().__init__(self.loc.shape, validate_args=validate_args)

    @constraints.dependent_property(is_discrete=False, event_dim=0)
    def support(self) -> Constraint:
        end = self.loc - self.scale / self.concentration
        return constraints.interval(self.loc, end.masked_fill(self.concentration >= 0, math.inf))

    def rsample(self, sample_shape: Shape = ()) -> Tensor:
        return self.icdf(uniform_numbers(self._extended_shape(sample_shape), self.loc))

    def _split(self) -> tuple[Tensor, Tensor]:
        """Where the concentration is 0, and concentrations that are not."""
        is_zero = self.concentration.isclose(self.concentration.new_zeros(()))
        return is_zero, self.concentration.masked_fill(is_zero, 1)

    def _log_prob(self, value: Tensor) -> Tensor:
        z = (value - self.loc) / self.scale
        is_zero, k = self._split()
        power = 1 / k + 1
        general = op.where(power == 0, power, power * (k * z).log1p())  # uniform, where the power is 0
        return -self.scale.log() - op.where(is_zero, z, general)

    def log_survival_function(self, value: Tensor) -> Tensor:
        """The logarithm of the probability of larger values."""
        if self._validate_args:
            self._validate_sample(value)
        z = (value - self.loc) / self.scale
        is_zero, k = self._split()
        return op.where(is_zero, -z, -(k * z).log1p() / k)

    def log_cdf(self, value: Tensor) -> Tensor:
        """The logarithm of `cdf`."""
        return (-self.log_survival_function(value).exp()).log1p()

    def cdf(self, value: Tensor) -> Tensor:
        return self.log_cdf(value).exp()

    def icdf(self, value: Tensor) -> Tensor:
        is_zero, k = self._split()
        log_rest = (-value).log1p()
        return self.loc + self.scale * op.where(is_zero, -log_rest, (-k * log_rest).expm1() / k)

    @property
    def mean(self) -> Tensor:
        finite = self.loc + self.scale / (1 - self.concentration)
        return finite.masked_fill(self.concentration >= 1, math.nan)

    @property
    def variance(self) -> Tensor:
        k = self.concentration
        return (self.scale**2 / ((1 - k) ** 2 * (1 - 2 * k))).masked_fill(k >= 0.5, math.nan)

    mode: Tensor = attribute("loc")

    def entropy(self) -> Tensor:
        return self.scale.log() + self.concentration + 1


class ContinuousBernoulli(OddsDistribution, ExponentialFamily):
    """Numbers from [0, 1] with density proportional to `probs**x * (1 - probs)**(1 - x)`.

    Loaiza-Ganem and Cunningham, "The continuous Bernoulli: fixing a pervasive error in variational autoencoders", 2019.
    Where `probs` lies within `lims`, near 1/2, Taylor series are used.
    """

    arg_constraints: ClassVar[Any] = {"probs": constraints.unit_interval, "logits": constraints.real}
    support = constraints.unit_interval
    has_rsample = True
    _mean_carrier_measure = 0

    def __init__(
        self,
        probs: Tensor | float | None = None,
        logits: Tensor | float | None = None,
        lims: tuple[float, float] = (0.499, 0.501),
        validate_args: bool | None = None,
    ) -> None:
        self._take(probs, logits)
        if probs is not None:
            if validate_args is not None and not all_true(constraints.unit_interval.check(self.probs)):
                raise ValueRangeError("The parameter probs has invalid values")
            self.__dict__["probs"] = clamp_probs(self.probs)
        self._lims = lims
        super().__init__(self.param_shape, validate_args=validate_args)

    @lazy_property
    def probs(self) -> Tensor:
        return clamp_probs(logits_to_probs(self.logits, is_binary=True))

    def _split(self) -> tuple[Tensor, Tensor, Tensor]:
        """Where formulas hold, probabilities for which they do, and the distances from 1/2 for the series."""
        low, high = self._lims
        holds = (self.probs <= low) | (self.probs > high)
        return holds, self.probs.masked_fill(~holds, low), self.probs - 0.5

    def _cont_bern_log_norm(self) -> Tensor:
        """The logarithm of the factor by which the density is larger than that of a Bernoulli distribution."""
        holds, p, x = self._split()
        general = ((-p).log1p() - p.log()).abs().log() - (2 * p - 1).abs().log()
        series = math.log(2) + (4 / 3 + 104 / 45 * x**2) * x**2
        return op.where(holds, general, series)

    @property
    def mean(self) -> Tensor:
        holds, p, x = self._split()
        general = p / (2 * p - 1) + 1 / ((-p).log1p() - p.log())
        return op.where(holds, general, 0.5 + (1 / 3 + 16 / 45 * x**2) * x)

    @property
    def variance(self) -> Tensor:
        holds, p, x = self._split()
        general = p * (p - 1) / (1 - 2 * p) ** 2 + 1 / ((-p).log1p() - p.log()) ** 2
        return op.where(holds, general, 1 / 12 - (1 / 15 - 128 / 945 * x**2) * x**2)

    def rsample(self, sample_shape: Shape = ()) -> Tensor:
        return self.icdf(uniform_numbers(self._extended_shape(sample_shape), self.probs))

    def _log_prob(self, value: Tensor) -> Tensor:
        logits, value = broadcast_all(self.logits, value)
        return self._cont_bern_log_norm() - binary_cross_entropy_with_logits(logits, value, reduction="none")

    def _cdf(self, value: Tensor) -> Tensor:
        holds, p, _ = self._split()
        general = (p**value * (1 - p) ** (1 - value) + p - 1) / (2 * p - 1)
        return op.where(holds, general, value).masked_fill(value <= 0, 0).masked_fill(value >= 1, 1)

    def icdf(self, value: Tensor) -> Tensor:
        holds, p, _ = self._split()
        general = ((-p + value * (2 * p - 1)).log1p() - (-p).log1p()) / (p.log() - (-p).log1p())
        return op.where(holds, general, value)

    def entropy(self) -> Tensor:
        log_rest = (-self.probs).log1p()
        return self.mean * (log_rest - self.probs.log()) - self._cont_bern_log_norm() - log_rest

    @property
    def _natural_params(self) -> tuple[Tensor, ...]:
        return (self.logits,)

    def _log_normalizer(self, x: Tensor) -> Tensor:
        low, high = self._lims
        holds = (x <= low - 0.5) | (x > high - 0.5)
        y = x.masked_fill(~holds, low - 0.5)
        return op.where(holds, y.expm1().abs().log() - y.abs().log(), x / 2 + x**2 / 24 - x**4 / 2880)
