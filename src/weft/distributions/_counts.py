"""Distributions of events and of their numbers."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, ClassVar

from weft._base.limits import finfo
from weft._base.state import using
from weft._tensor.codegen import op
from weft._tensor.composite.create import arange
from weft._tensor.tensor import Tensor
from weft.distributions import constraints
from weft.distributions._gamma import Gamma
from weft.distributions._probability import OddsDistribution
from weft.distributions.distribution import Distribution, Shape, all_true
from weft.distributions.exp_family import ExponentialFamily
from weft.distributions.utils import attribute, broadcast_all
from weft.errors import NotDefinedError, ValueRangeError
from weft.nn.functional import binary_cross_entropy_with_logits, logsigmoid, softplus

if TYPE_CHECKING:
    from weft.distributions._constraint import Constraint


def _cross_entropy(logits: Tensor, target: Tensor) -> Tensor:
    logits, target = broadcast_all(logits, target)
    return binary_cross_entropy_with_logits(logits, target, reduction="none")


def _integers(distribution: Distribution, size: int, like: Tensor, expand: bool) -> Tensor:
    """The integers below `size` along a new first dim; with `expand`, for each distribution of the batch."""
    batch = distribution.batch_shape
    values = arange(size, dtype=like.dtype, device=like.device).reshape((-1, *(1,) * len(batch)))
    return values.expand((-1, *batch)) if expand else values


class _OfEvent(OddsDistribution):
    """A distribution with the probability of an event as its only parameter."""

    arg_constraints: ClassVar[Any] = {"probs": constraints.unit_interval, "logits": constraints.real}

    def __init__(
        self,
        probs: Tensor | float | None = None,
        logits: Tensor | float | None = None,
        validate_args: bool | None = None,
    ) -> None:
        self._take(probs, logits)
        super().__init__(self.param_shape, validate_args=validate_args)


class Bernoulli(_OfEvent, ExponentialFamily):
    """1 with probability `probs`, else 0."""

    support = constraints.boolean
    has_enumerate_support = True
    _mean_carrier_measure = 0

    mean: Tensor = attribute("probs")

    @property
    def mode(self) -> Tensor:
        return (self.probs >= 0.5).to(self.probs.dtype).masked_fill(self.probs == 0.5, math.nan)

    @property
    def variance(self) -> Tensor:
        return self.probs * (1 - self.probs)

    def sample(self, sample_shape: Shape = ()) -> Tensor:
        with using(grad=False):
            return op.bernoulli(self.probs.expand(self._extended_shape(sample_shape)))

    def _log_prob(self, value: Tensor) -> Tensor:
        return -_cross_entropy(self.logits, value)

    def entropy(self) -> Tensor:
        return _cross_entropy(self.logits, self.probs)

    def enumerate_support(self, expand: bool = True) -> Tensor:
        return _integers(self, 2, self._param, expand)

    @property
    def _natural_params(self) -> tuple[Tensor, ...]:
        return (self.probs.logit(),)

    def _log_normalizer(self, x: Tensor) -> Tensor:
        return softplus(x)


class Binomial(OddsDistribution):
    """The number of events in `total_count` independent trials, each with probability `probs`."""

    arg_constraints: ClassVar[Any] = {
        "total_count": constraints.nonnegative_integer,
        "probs": constraints.unit_interval,
        "logits": constraints.real,
    }
    has_enumerate_support = True
    total_count: Tensor

    def __init__(
        self,
        total_count: Tensor | int = 1,
        probs: Tensor | float | None = None,
        logits: Tensor | float | None = None,
        validate_args: bool | None = None,
    ) -> None:
        (self.total_count,) = self._take(probs, logits, total_count)
        super().__init__(self.param_shape, validate_args=validate_args)

    @constraints.dependent_property(is_discrete=True, event_dim=0)
    def support(self) -> Constraint:
        return constraints.integer_interval(0, self.total_count)

    @property
    def mean(self) -> Tensor:
        return self.total_count * self.probs

    @property
    def mode(self) -> Tensor:
        return ((self.total_count + 1) * self.probs).floor().minimum(self.total_count)

    @property
    def variance(self) -> Tensor:
        return self.total_count * self.probs * (1 - self.probs)

    def sample(self, sample_shape: Shape = ()) -> Tensor:
        shape = self._extended_shape(sample_shape)
        with using(grad=False):
            return op.binomial(self.total_count.expand(shape), self.probs.expand(shape))

    def _log_prob(self, value: Tensor) -> Tensor:
        n = self.total_count
        log_choices = (n + 1).lgamma() - (value + 1).lgamma() - (n - value + 1).lgamma()
        return log_choices + value * self.logits - n * softplus(self.logits)

    def entropy(self) -> Tensor:
        self._require_one_count("entropy")
        log_prob = self._log_prob(self.enumerate_support(False))
        return -(log_prob.exp() * log_prob).sum(0)

    def enumerate_support(self, expand: bool = True) -> Tensor:
        return _integers(self, 1 + self._require_one_count("enumerate_support"), self._param, expand)

    def _require_one_count(self, name: str) -> int:
        most = int(self.total_count.max())
        if int(self.total_count.min()) != most:
            raise NotDefinedError(f"Inhomogeneous total count not supported by `{name}`.")
        return most


class NegativeBinomial(OddsDistribution):
    """The number of events, each with probability `probs`, before `total_count` trials are without one."""

    arg_constraints: ClassVar[Any] = {
        "total_count": constraints.greater_than_eq(0),
        "probs": constraints.half_open_interval(0.0, 1.0),
        "logits": constraints.real,
    }
    support = constraints.nonnegative_integer
    total_count: Tensor

    def __init__(
        self,
        total_count: Tensor | float,
        probs: Tensor | float | None = None,
        logits: Tensor | float | None = None,
        validate_args: bool | None = None,
    ) -> None:
        (self.total_count,) = self._take(probs, logits, total_count)
        super().__init__(self.param_shape, validate_args=validate_args)

    @property
    def mean(self) -> Tensor:
        return self.total_count * self.logits.exp()

    @property
    def mode(self) -> Tensor:
        return ((self.total_count - 1) * self.logits.exp()).floor().clamp(min=0)

    @property
    def variance(self) -> Tensor:
        return self.mean / (-self.logits).sigmoid()

    def sample(self, sample_shape: Shape = ()) -> Tensor:
        rates = Gamma(self.total_count, (-self.logits).exp(), validate_args=False)
        with using(grad=False):
            return op.poisson(rates.sample(sample_shape))

    def _log_prob(self, value: Tensor) -> Tensor:
        n = self.total_count
        log_choices = (n + value).lgamma() - (1 + value).lgamma() - n.lgamma()
        log_choices = log_choices.masked_fill(n + value == 0, 0)
        return n * logsigmoid(-self.logits) + value * logsigmoid(self.logits) + log_choices


class Geometric(_OfEvent):
    """The number of trials without an event, before the first one with it."""

    support = constraints.nonnegative_integer

    def _validate_parameters(self) -> None:
        super()._validate_parameters()
        if "probs" in self.__dict__ and not all_true(self.probs > 0):
            value = self.probs
            raise ValueRangeError(
                f"Expected parameter probs ({type(value).__name__} of shape {tuple(value.shape)}) of distribution "
                f"{self!r} to be positive but found invalid values:\n{value[value <= 0]}"
            )

    @property
    def mean(self) -> Tensor:
        return 1 / self.probs - 1

    @property
    def mode(self) -> Tensor:
        return self.probs.new_zeros(self.probs.shape)

    @property
    def variance(self) -> Tensor:
        return (1 / self.probs - 1) / self.probs

    def sample(self, sample_shape: Shape = ()) -> Tensor:
        with using(grad=False):
            empty = self.probs.new_empty(self._extended_shape(sample_shape))
            u = empty.uniform_(finfo(self.probs.dtype).tiny, 1)
            return (u.log() / (-self.probs).log1p()).floor()

    def _log_prob(self, value: Tensor) -> Tensor:
        value, probs = broadcast_all(value, self.probs)
        probs = probs.masked_fill((probs == 1) & (value == 0), 0)  # where 0 * log(0) is 0
        return value * (-probs).log1p() + self.probs.log()

    def entropy(self) -> Tensor:
        return _cross_entropy(self.logits, self.probs) / self.probs


class Poisson(ExponentialFamily):
    """The number of events in a unit of time, when they come independently at a `rate`."""

    arg_constraints: ClassVar[Any] = {"rate": constraints.nonnegative}
    support = constraints.nonnegative_integer
    rate: Tensor

    def __init__(self, rate: Tensor | float, validate_args: bool | None = None) -> None:
        (self.rate,) = broadcast_all(rate)
        super().__init__(self.rate.shape, validate_args=validate_args)

    mean: Tensor = attribute("rate")

    @property
    def mode(self) -> Tensor:
        return self.rate.floor()

    variance: Tensor = attribute("rate")

    def sample(self, sample_shape: Shape = ()) -> Tensor:
        with using(grad=False):
            return op.poisson(self.rate.expand(self._extended_shape(sample_shape)))

    def _log_prob(self, value: Tensor) -> Tensor:
        rate, value = broadcast_all(self.rate, value)
        return op.xlogy(value, rate) - rate - (value + 1).lgamma()

    @property
    def _natural_params(self) -> tuple[Tensor, ...]:
        return (self.rate.log(),)

    def _log_normalizer(self, x: Tensor) -> Tensor:
        return x.exp()
