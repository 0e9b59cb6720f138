"""Distributions over categories."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, ClassVar, Self

from weft._base.dtype import int64
from weft._base.limits import finfo
from weft._base.size import Size
from weft._base.state import using
from weft._base.types import SavedState
from weft._tensor.codegen import op
from weft._tensor.composite.create import arange
from weft._tensor.tensor import Tensor
from weft.distributions import constraints
from weft.distributions._counts import Binomial
from weft.distributions._probability import require_one
from weft.distributions.distribution import Distribution, Shape
from weft.distributions.utils import attribute, broadcast_all, lazy_property, logits_to_probs, probs_to_logits
from weft.errors import NotDefinedError, ValueRangeError
from weft.nn.functional import one_hot

if TYPE_CHECKING:
    from weft.distributions._constraint import Constraint

_PARAMETERS = {"probs": constraints.simplex, "logits": constraints.real_vector}


class Categorical(Distribution):
    """An index, with the probabilities of the last dim of `probs`, which are divided by their sum.

    `logits` are logarithms of the probabilities, up to a constant.
    """

    arg_constraints: ClassVar[Any] = _PARAMETERS
    has_enumerate_support = True

    def __init__(
        self, probs: Tensor | None = None, logits: Tensor | None = None, validate_args: bool | None = None
    ) -> None:
        require_one(probs, logits)
        name, value = ("logits", logits) if probs is None else ("probs", probs)
        assert value is not None
        if value.dim() < 1:
            raise ValueRangeError(f"`{name}` parameter must be at least one-dimensional.")
        is_logits = probs is None
        normal = value - value.logsumexp(-1, keepdim=True) if is_logits else value / value.sum(-1, keepdim=True)
        setattr(self, name, normal)
        super().__init__(value.shape[:-1], validate_args=validate_args)

    @lazy_property
    def logits(self) -> Tensor:
        return probs_to_logits(self.probs)

    @lazy_property
    def probs(self) -> Tensor:
        return logits_to_probs(self.logits)

    @property
    def _param(self) -> Tensor:
        return self.logits if "logits" in self.__dict__ else self.probs

    def __getstate__(self) -> SavedState:
        # Attributes in PyTorch, which may load this.
        return {**vars(self), "_param": self._param, "_num_events": self._num_events}

    @property
    def param_shape(self) -> Size:
        """The shape of the probabilities."""
        return self._param.size()

    @property
    def _num_events(self) -> int:
        return self.param_shape[-1]

    @constraints.dependent_property(is_discrete=True, event_dim=0)
    def support(self) -> Constraint:
        return constraints.integer_interval(0, self._num_events - 1)

    @property
    def mean(self) -> Tensor:
        return self._param.new_full(self._extended_shape(), math.nan)

    @property
    def mode(self) -> Tensor:
        return self.probs.argmax(-1)

    variance: Tensor = attribute("mean")

    def sample(self, sample_shape: Shape = ()) -> Tensor:
        rows = self.probs.reshape(-1, self._num_events)
        with using(grad=False):
            draws = op.multinomial(rows, Size(sample_shape).numel(), True)
        # A copy and no view of the draws: each array of a view goes through the views again, which takes 40 us.
        return draws.T.reshape(self._extended_shape(sample_shape)).clone()

    def _log_prob(self, value: Tensor) -> Tensor:
        index, logits = broadcast_all(value.to(int64).unsqueeze(-1), self.logits)
        return op.gather(logits, -1, index[..., :1]).squeeze(-1)

    def entropy(self) -> Tensor:
        return -(self.logits.clamp(min=finfo(self.logits.dtype).min) * self.probs).sum(-1)

    def enumerate_support(self, expand: bool = True) -> Tensor:
        batch = self.batch_shape
        values = arange(self._num_events, device=self._param.device).reshape((-1, *(1,) * len(batch)))
        return values.expand((-1, *batch)) if expand else values


class OverCategories(Distribution):
    """A distribution of vectors with an element for each category, whose probabilities are those of a `Categorical`."""

    arg_constraints: ClassVar[Any] = _PARAMETERS
    _categorical: Categorical

    def expand(self, batch_shape: Shape, _instance: Distribution | None = None) -> Self:
        new = super().expand(batch_shape, _instance)
        new._categorical = self._categorical.expand(batch_shape)
        return new

    _param: Tensor = attribute("_categorical._param")

    @property
    def probs(self) -> Tensor:
        """The probabilities of the categories."""
        return self._categorical.probs

    @property
    def logits(self) -> Tensor:
        """Their logarithms."""
        return self._categorical.logits

    @property
    def param_shape(self) -> Size:
        """The shape of the probabilities."""
        return self._categorical.param_shape


class OneHotCategorical(OverCategories):
    """Vectors with a 1 at the index that a `Categorical` draws, and zeros elsewhere."""

    support = constraints.one_hot
    has_enumerate_support = True

    def __init__(
        self, probs: Tensor | None = None, logits: Tensor | None = None, validate_args: bool | None = None
    ) -> None:
        self._categorical = Categorical(probs, logits)
        super().__init__(self._categorical.batch_shape, self.param_shape[-1:], validate_args=validate_args)

    mean: Tensor = attribute("probs")

    @property
    def mode(self) -> Tensor:
        return self._vectors(self.probs.argmax(-1))

    @property
    def variance(self) -> Tensor:
        return self.probs * (1 - self.probs)

    def _vectors(self, indices: Tensor) -> Tensor:
        return one_hot(indices, self.event_shape[0]).to(self._param.dtype)

    def sample(self, sample_shape: Shape = ()) -> Tensor:
        return self._vectors(self._categorical.sample(sample_shape))

    def _log_prob(self, value: Tensor) -> Tensor:
        return self._categorical.log_prob(value.argmax(-1))

    def entropy(self) -> Tensor:
        return self._categorical.entropy()

    def enumerate_support(self, expand: bool = True) -> Tensor:
        return self._vectors(self._categorical.enumerate_support(expand))


class OneHotCategoricalStraightThrough(OneHotCategorical):
    """The same, with the gradients of the probabilities as those of draws (Bengio and others, 2013)."""

    has_rsample = True

    def rsample(self, sample_shape: Shape = ()) -> Tensor:
        return self.sample(sample_shape) + (self.probs - self.probs.detach())


class Multinomial(OverCategories):
    """How often each category comes in `total_count` independent draws."""

    total_count: int

    def __init__(
        self,
        total_count: int = 1,
        probs: Tensor | None = None,
        logits: Tensor | None = None,
        validate_args: bool | None = None,
    ) -> None:
        if not isinstance(total_count, int):
            raise NotDefinedError("inhomogeneous total_count is not supported")
        self.total_count = total_count
        self._categorical = Categorical(probs, logits)
        super().__init__(self._categorical.batch_shape, self.param_shape[-1:], validate_args=validate_args)

    @constraints.dependent_property(is_discrete=True, event_dim=1)
    def support(self) -> Constraint:
        return constraints.multinomial(self.total_count)

    @property
    def mean(self) -> Tensor:
        return self.probs * self.total_count

    @property
    def variance(self) -> Tensor:
        return self.total_count * self.probs * (1 - self.probs)

    def sample(self, sample_shape: Shape = ()) -> Tensor:
        draws = self._categorical.sample((self.total_count, *sample_shape)).movedim((0,), (-1,))
        counts = draws.new_zeros(self._extended_shape(sample_shape))
        return counts.scatter_add(-1, draws, draws.new_ones(draws.shape)).to(self._param.dtype)

    def entropy(self) -> Tensor:
        n = self.total_count
        counts = Binomial(n, self.probs, validate_args=False)
        values = counts.enumerate_support(expand=False)[1:]
        weights = (values + 1).lgamma()
        term = (counts.log_prob(values).exp() * weights).sum([0, -1])
        return n * self._categorical.entropy() - math.lgamma(n + 1) + term

    def _log_prob(self, value: Tensor) -> Tensor:
        logits, value = broadcast_all(self.logits, value)
        logits = logits.masked_fill((value == 0) & (logits == -math.inf), 0)
        log_choices = (value.sum(-1) + 1).lgamma() - (value + 1).lgamma().sum(-1)
        return log_choices + (logits * value).sum(-1)
