"""Distributions that are made of others: with other dims, transformed, or mixed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Self

from weft._base.size import Size
from weft._base.state import using
from weft._tensor.codegen import op
from weft._tensor.tensor import Tensor
from weft.distributions import constraints
from weft.distributions._categorical import Categorical
from weft.distributions._transform import ComposeTransform, Transform
from weft.distributions.distribution import Distribution, Shape
from weft.distributions.utils import attribute, sum_rightmost
from weft.errors import NotDefinedError, PreconditionError, ValueRangeError

if TYPE_CHECKING:
    from weft.distributions._constraint import Constraint


class Independent(Distribution):
    """Another distribution, with its last `reinterpreted_batch_ndims` batch dims counted to the event."""

    arg_constraints: ClassVar[Any] = {}

    def __init__(
        self, base_distribution: Distribution, reinterpreted_batch_ndims: int, validate_args: bool | None = None
    ) -> None:
        batch = base_distribution.batch_shape
        if reinterpreted_batch_ndims > len(batch):
            raise ValueRangeError(
                "Expected reinterpreted_batch_ndims <= len(base_distribution.batch_shape), "
                f"actual {reinterpreted_batch_ndims} vs {len(batch)}"
            )
        self.base_dist: Any = base_distribution
        self.reinterpreted_batch_ndims = reinterpreted_batch_ndims
        cut = len(batch) - reinterpreted_batch_ndims
        super().__init__(batch[:cut], batch[cut:] + base_distribution.event_shape, validate_args=validate_args)

    def expand(self, batch_shape: Shape, _instance: Distribution | None = None) -> Self:
        new = super().expand(batch_shape, _instance)
        reinterpreted = self.event_shape[: self.reinterpreted_batch_ndims]
        new.base_dist = self.base_dist.expand((*batch_shape, *reinterpreted))
        return new

    has_rsample: bool = attribute("base_dist.has_rsample")

    @property
    def has_enumerate_support(self) -> bool:
        return not self.reinterpreted_batch_ndims and self.base_dist.has_enumerate_support

    @constraints.dependent_property
    def support(self) -> Constraint:
        support = self.base_dist.support
        ndims = self.reinterpreted_batch_ndims
        return constraints.independent(support, ndims) if ndims else support

    mean: Tensor = attribute("base_dist.mean")
    mode: Tensor = attribute("base_dist.mode")
    variance: Tensor = attribute("base_dist.variance")

    def sample(self, sample_shape: Shape = ()) -> Tensor:
        return self.base_dist.sample(sample_shape)

    def rsample(self, sample_shape: Shape = ()) -> Tensor:
        return self.base_dist.rsample(sample_shape)

    def log_prob(self, value: Tensor) -> Tensor:
        return sum_rightmost(self.base_dist.log_prob(value), self.reinterpreted_batch_ndims)

    def entropy(self) -> Tensor:
        return sum_rightmost(self.base_dist.entropy(), self.reinterpreted_batch_ndims)

    def enumerate_support(self, expand: bool = True) -> Tensor:
        if self.reinterpreted_batch_ndims > 0:
            raise NotDefinedError("Enumeration over cartesian product is not implemented")
        return self.base_dist.enumerate_support(expand=expand)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.base_dist}, {self.reinterpreted_batch_ndims})"


class TransformedDistribution(Distribution):
    """The values of transforms of the draws of another distribution, `base_dist`.

    Densities need transforms with an inverse and a Jacobian. Shapes may grow by broadcasting, and the event is that of
    the transforms, or of the distribution if that has more dims.
    """

    arg_constraints: ClassVar[Any] = {}

    def __init__(
        self,
        base_distribution: Distribution,
        transforms: Transform | Sequence[Transform],
        validate_args: bool | None = None,
    ) -> None:
        self.transforms = _as_list(transforms)
        whole = ComposeTransform(self.transforms)
        domain_dims, codomain_dims = whole.domain.event_dim, whole.codomain.event_dim
        base_shape = base_distribution.batch_shape + base_distribution.event_shape
        if len(base_shape) < domain_dims:
            raise ValueRangeError(
                f"base_distribution needs to have shape with size at least {domain_dims}, but got {base_shape}."
            )
        shape = whole.forward_shape(base_shape)
        base_event_dim = len(base_distribution.event_shape)
        self.base_dist: Any = _fitted(base_distribution, whole.inverse_shape(shape), domain_dims)
        event_dim = max(codomain_dims, base_event_dim + codomain_dims - domain_dims)
        if len(shape) < event_dim:
            raise PreconditionError(f"forward_shape length {len(shape)} must be >= event_dim {event_dim}")
        cut = len(shape) - event_dim
        super().__init__(shape[:cut], shape[cut:], validate_args=validate_args)

    def expand(self, batch_shape: Shape, _instance: Distribution | None = None) -> Self:
        new = super().expand(batch_shape, _instance)
        shape = Size((*batch_shape, *self.event_shape))
        for transform in reversed(self.transforms):
            shape = transform.inverse_shape(shape)
        new.base_dist = self.base_dist.expand(shape[: len(shape) - len(self.base_dist.event_shape)])
        return new

    @constraints.dependent_property(is_discrete=False)
    def support(self) -> Constraint:
        if not self.transforms:
            return self.base_dist.support
        support = self.transforms[-1].codomain
        further = len(self.event_shape) - support.event_dim
        return constraints.independent(support, further) if further > 0 else support

    has_rsample: bool = attribute("base_dist.has_rsample")

    def _transformed(self, x: Tensor) -> Tensor:
        for transform in self.transforms:
            x = transform(x)
        return x

    def sample(self, sample_shape: Shape = ()) -> Tensor:
        with using(grad=False):
            return self._transformed(self.base_dist.sample(sample_shape))

    def rsample(self, sample_shape: Shape = ()) -> Tensor:
        return self._transformed(self.base_dist.rsample(sample_shape))

    def _log_prob(self, value: Tensor) -> Tensor:
        event_dim = len(self.event_shape)
        total: Any = 0
        y = value
        for transform in reversed(self.transforms):
            x = transform.inv(y)
            event_dim += transform.domain.event_dim - transform.codomain.event_dim
            term = transform.log_abs_det_jacobian(x, y)
            total = total - sum_rightmost(term, event_dim - transform.domain.event_dim)
            y = x
        return total + sum_rightmost(self.base_dist.log_prob(y), event_dim - len(self.base_dist.event_shape))

    def _flipped(self, probability: Tensor) -> Tensor:
        """1 - p where the transforms fall, else p."""
        sign = ComposeTransform(self.transforms).sign
        return probability if isinstance(sign, int) and sign == 1 else sign * (probability - 0.5) + 0.5

    def _cdf(self, value: Tensor) -> Tensor:
        for transform in reversed(self.transforms):
            value = transform.inv(value)
        return self._flipped(self.base_dist.cdf(value))

    def icdf(self, value: Tensor) -> Tensor:
        return self._transformed(self.base_dist.icdf(self._flipped(value)))


def _as_list(transforms: object) -> list[Transform]:
    if isinstance(transforms, Transform):
        return [transforms]
    if not isinstance(transforms, list):
        raise ValueRangeError(f"transforms must be a Transform or list, but was {transforms}")
    if not all(isinstance(t, Transform) for t in transforms):
        raise ValueRangeError("transforms must be a Transform or a list of Transforms")
    return transforms


def _fitted(distribution: Distribution, shape: Size, event_dim: int) -> Distribution:
    """A distribution expanded to the shape that transforms take, with events of at least `event_dim` dims."""
    own = len(distribution.event_shape)
    if distribution.batch_shape + distribution.event_shape != shape:
        distribution = distribution.expand(shape[: len(shape) - own])
    return Independent(distribution, event_dim - own) if event_dim > own else distribution


class MixtureSameFamily(Distribution):
    """Draws of one of the components, along the last batch dim of a distribution; a `Categorical` chooses which."""

    arg_constraints: ClassVar[Any] = {}

    def __init__(
        self,
        mixture_distribution: Categorical,
        component_distribution: Distribution,
        validate_args: bool | None = None,
    ) -> None:
        _require_fit(mixture_distribution, component_distribution)
        self._mixture_distribution = mixture_distribution
        self._component_distribution = component_distribution
        self._num_component = mixture_distribution.logits.shape[-1]
        self._event_ndims = len(component_distribution.event_shape)
        super().__init__(
            component_distribution.batch_shape[:-1], component_distribution.event_shape, validate_args=validate_args
        )

    def expand(self, batch_shape: Shape, _instance: Distribution | None = None) -> Self:
        new = super().expand(batch_shape, _instance)
        new._component_distribution = self._component_distribution.expand((*batch_shape, self._num_component))
        new._mixture_distribution = self._mixture_distribution.expand(batch_shape)
        return new

    @property
    def mixture_distribution(self) -> Categorical:
        """Which chooses the component."""
        return self._mixture_distribution

    @property
    def component_distribution(self) -> Distribution:
        """The components."""
        return self._component_distribution

    @constraints.dependent_property
    def support(self) -> Constraint:
        return constraints.MixtureSameFamilyConstraint(self._component_distribution.support)

    def _average(self, x: Tensor) -> Tensor:
        """The average over components, along the last dim before the event."""
        weights = self.mixture_distribution.probs
        weights = weights.reshape((*weights.shape, *(1,) * self._event_ndims))
        return (weights * x).sum(-1 - self._event_ndims)

    def _unsqueezed(self, x: Tensor) -> Tensor:
        return x.unsqueeze(-1 - self._event_ndims)

    @property
    def mean(self) -> Tensor:
        return self._average(self.component_distribution.mean)

    @property
    def variance(self) -> Tensor:
        deviations = self.component_distribution.mean - self._unsqueezed(self.mean)
        return self._average(self.component_distribution.variance) + self._average(deviations**2)

    def cdf(self, value: Tensor) -> Tensor:
        return (self.component_distribution.cdf(self._unsqueezed(value)) * self.mixture_distribution.probs).sum(-1)

    def _log_prob(self, value: Tensor) -> Tensor:
        log_probs = self.component_distribution.log_prob(self._unsqueezed(value))
        return (log_probs + self.mixture_distribution.logits.log_softmax(-1)).logsumexp(-1)

    def sample(self, sample_shape: Shape = ()) -> Tensor:
        with using(grad=False):
            choice = self.mixture_distribution.expand(self.batch_shape).sample(sample_shape)
            draws = self.component_distribution.sample(sample_shape)
            dim = len(sample_shape) + len(self.batch_shape)
            index = choice.reshape((*choice.shape, *(1,) * (self._event_ndims + 1)))
            index = index.expand((*draws.shape[:dim], 1, *self.event_shape))
            return op.gather(draws, dim, index).squeeze(dim)

    def __repr__(self) -> str:
        return f"MixtureSameFamily(\n  {self.mixture_distribution},\n  {self.component_distribution})"


def _require_fit(mixture: object, component: object) -> None:
    if not isinstance(mixture, Categorical):
        raise ValueRangeError(" The Mixture distribution needs to be an  instance of torch.distributions.Categorical")
    if not isinstance(component, Distribution):
        raise ValueRangeError("The Component distribution needs to be an instance of torch.distributions.Distribution")
    batch = component.batch_shape[:-1]
    for i, j in zip(reversed(mixture.batch_shape), reversed(batch), strict=False):
        if i != 1 and j != 1 and i != j:
            raise ValueRangeError(
                f"`mixture_distribution.batch_shape` ({mixture.batch_shape}) is not compatible with "
                f"`component_distribution.batch_shape`({batch})"
            )
    choices, components = mixture.logits.shape[-1], component.batch_shape[-1]
    if choices != components:
        raise ValueRangeError(
            f"`mixture_distribution component` ({choices}) does not equal "
            f"`component_distribution.batch_shape[-1]` ({components})"
        )
