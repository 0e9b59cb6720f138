"""Continuous distributions near discrete ones, with gradients.

Maddison, Mnih and Teh, "The concrete distribution", and Jang, Gu and Poole, "Categorical reparameterization with
Gumbel-softmax"; both 2017.
"""

from __future__ import annotations

import math
from typing import Any, ClassVar

from weft._tensor.convert import as_tensor
from weft._tensor.tensor import Tensor
from weft.distributions import constraints
from weft.distributions._categorical import Categorical, OverCategories
from weft.distributions._elementwise_transforms import ExpTransform, SigmoidTransform
from weft.distributions._nested import TransformedDistribution
from weft.distributions._probability import OddsDistribution
from weft.distributions.distribution import Shape
from weft.distributions.utils import attribute, broadcast_all, clamp_probs, uniform_numbers
from weft.nn.functional import softplus


class LogitRelaxedBernoulli(OddsDistribution):
    """The log odds of the values of `RelaxedBernoulli`."""

    arg_constraints: ClassVar[Any] = {"probs": constraints.unit_interval, "logits": constraints.real}
    support = constraints.real
    has_rsample = True

    def __init__(
        self,
        temperature: Tensor | float,
        probs: Tensor | float | None = None,
        logits: Tensor | float | None = None,
        validate_args: bool | None = None,
    ) -> None:
        self.temperature = temperature
        self._take(probs, logits)
        super().__init__(self.param_shape, validate_args=validate_args)

    def rsample(self, sample_shape: Shape = ()) -> Tensor:
        shape = self._extended_shape(sample_shape)
        probs, uniforms = clamp_probs(self.probs.expand(shape)), clamp_probs(uniform_numbers(shape, self.probs))
        noise = uniforms.log() - (-uniforms).log1p()
        return (noise + probs.log() - (-probs).log1p()) / self.temperature

    def _log_prob(self, value: Tensor) -> Tensor:
        logits, value = broadcast_all(self.logits, value)
        difference = logits - value * self.temperature
        return as_tensor(self.temperature).log() + difference - 2 * softplus(difference)


class _Relaxed(TransformedDistribution):
    """A transform of a relaxed distribution, with its parameters."""

    @property
    def temperature(self) -> Tensor:
        """The lower it is, the nearer are the values to those of the discrete distribution."""
        return self.base_dist.temperature

    logits: Tensor = attribute("base_dist.logits")
    probs: Tensor = attribute("base_dist.probs")


class RelaxedBernoulli(_Relaxed):
    """Numbers from (0, 1) near 0 and 1; the lower the temperature, the nearer."""

    arg_constraints: ClassVar[Any] = {"probs": constraints.unit_interval, "logits": constraints.real}
    support = constraints.unit_interval

    def __init__(
        self,
        temperature: Tensor | float,
        probs: Tensor | float | None = None,
        logits: Tensor | float | None = None,
        validate_args: bool | None = None,
    ) -> None:
        base = LogitRelaxedBernoulli(temperature, probs, logits)
        super().__init__(base, SigmoidTransform(), validate_args=validate_args)


class ExpRelaxedCategorical(OverCategories):
    """The logarithms of the values of `RelaxedOneHotCategorical`."""

    support = constraints.real_vector
    has_rsample = True

    def __init__(
        self,
        temperature: Tensor | float,
        probs: Tensor | None = None,
        logits: Tensor | None = None,
        validate_args: bool | None = None,
    ) -> None:
        self._categorical = Categorical(probs, logits)
        self.temperature = temperature
        super().__init__(self._categorical.batch_shape, self.param_shape[-1:], validate_args=validate_args)

    def rsample(self, sample_shape: Shape = ()) -> Tensor:
        uniforms = clamp_probs(uniform_numbers(self._extended_shape(sample_shape), self.logits))
        scores = (self.logits - (-uniforms.log()).log()) / self.temperature
        return scores - scores.logsumexp(-1, keepdim=True)

    def _log_prob(self, value: Tensor) -> Tensor:
        count = self.event_shape[0]
        logits, value = broadcast_all(self.logits, value)
        score = logits - value * self.temperature
        log_scale = math.lgamma(count) + (count - 1) * as_tensor(self.temperature).log()
        return (score - score.logsumexp(-1, keepdim=True)).sum(-1) + log_scale


class RelaxedOneHotCategorical(_Relaxed):
    """Points of a simplex near its corners; the lower the temperature, the nearer."""

    arg_constraints: ClassVar[Any] = {"probs": constraints.simplex, "logits": constraints.real_vector}
    support = constraints.simplex

    def __init__(
        self,
        temperature: Tensor | float,
        probs: Tensor | None = None,
        logits: Tensor | None = None,
        validate_args: bool | None = None,
    ) -> None:
        base = ExpRelaxedCategorical(temperature, probs, logits, validate_args=validate_args)
        super().__init__(base, ExpTransform(), validate_args=validate_args)
