"""Transforms of numbers."""

from __future__ import annotations

import math
from numbers import Number
from typing import TYPE_CHECKING

from weft._base.limits import finfo
from weft._base.size import Size
from weft._tensor.codegen import op
from weft._tensor.tensor import Tensor
from weft.distributions import constraints
from weft.distributions._transform import FixedTransform, Transform
from weft.distributions.distribution import Distribution
from weft.distributions.utils import attribute, broadcast_all, sum_rightmost
from weft.nn.functional import softplus
from weft.ops._dims import broadcast_shapes

if TYPE_CHECKING:
    from weft.distributions._constraint import Constraint


class ExpTransform(FixedTransform):
    """`y = exp(x)`."""

    domain = constraints.real
    codomain = constraints.positive
    bijective = True
    sign = 1

    def _call(self, x: Tensor) -> Tensor:
        return x.exp()

    def _inverse(self, y: Tensor) -> Tensor:
        return y.log()

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        return x


class SoftplusTransform(FixedTransform):
    """`y = log(1 + exp(x))`."""

    domain = constraints.real
    codomain = constraints.positive
    bijective = True
    sign = 1

    def _call(self, x: Tensor) -> Tensor:
        return softplus(x)

    def _inverse(self, y: Tensor) -> Tensor:
        return (-(-y).expm1()).log() + y

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        return -softplus(-x)


class TanhTransform(FixedTransform):
    """`y = tanh(x)`. The inverse of values that have been rounded to 1 or -1 is infinite: see `cache_size`."""

    domain = constraints.real
    codomain = constraints.interval(-1.0, 1.0)
    bijective = True
    sign = 1

    def _call(self, x: Tensor) -> Tensor:
        return x.tanh()

    def _inverse(self, y: Tensor) -> Tensor:
        return y.atanh()

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        return 2 * (math.log(2) - x - softplus(-2 * x))


def clipped_sigmoid(x: Tensor) -> Tensor:
    """The logistic function, with values that are neither 0 nor 1."""
    return _inside(x.sigmoid())


def _inside(y: Tensor) -> Tensor:
    info = finfo(y.dtype)
    return y.clamp(min=info.tiny, max=1 - info.eps)


class SigmoidTransform(FixedTransform):
    """`y = 1 / (1 + exp(-x))`, kept apart from 0 and 1."""

    domain = constraints.real
    codomain = constraints.unit_interval
    bijective = True
    sign = 1

    def _call(self, x: Tensor) -> Tensor:
        return clipped_sigmoid(x)

    def _inverse(self, y: Tensor) -> Tensor:
        inside = _inside(y)
        return inside.log() - (-inside).log1p()

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        return -softplus(-x) - softplus(x)


class AbsTransform(FixedTransform):
    """`y = |x|`; of the two arguments with this value, the inverse gives the positive one."""

    domain = constraints.real
    codomain = constraints.positive

    def _call(self, x: Tensor) -> Tensor:
        return x.abs()

    def _inverse(self, y: Tensor) -> Tensor:
        return y


def _broadcast(shape: Size, *parameters: Tensor | float) -> Size:
    return type(shape)(broadcast_shapes(tuple(shape), *(tuple(getattr(x, "shape", ())) for x in parameters)))


class PowerTransform(Transform):
    """`y = x ** exponent`."""

    domain = constraints.positive
    codomain = constraints.positive
    bijective = True

    def __init__(self, exponent: Tensor | float, cache_size: int = 0) -> None:
        super().__init__(cache_size=cache_size)
        (self.exponent,) = broadcast_all(exponent)

    @property
    def sign(self) -> int | Tensor:
        return self.exponent.sign()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, PowerTransform) and _are_equal(self.exponent, other.exponent)

    __hash__ = Transform.__hash__

    def _call(self, x: Tensor) -> Tensor:
        return x**self.exponent

    def _inverse(self, y: Tensor) -> Tensor:
        return y ** (1 / self.exponent)

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        return (self.exponent * y / x).abs().log()

    def forward_shape(self, shape: Size) -> Size:
        return _broadcast(shape, self.exponent)

    inverse_shape = forward_shape


class AffineTransform(Transform):
    """`y = loc + scale * x`, of events with `event_dim` dims."""

    bijective = True

    def __init__(self, loc: Tensor | float, scale: Tensor | float, event_dim: int = 0, cache_size: int = 0) -> None:
        super().__init__(cache_size=cache_size)
        self.loc = loc
        self.scale = scale
        self._event_dim = event_dim

    @property
    def event_dim(self) -> int:
        return self._event_dim

    @constraints.dependent_property(is_discrete=False)
    def domain(self) -> Constraint:
        return constraints.independent(constraints.real, self.event_dim) if self.event_dim else constraints.real

    codomain = domain

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, AffineTransform):
            return False
        return _are_equal(self.loc, other.loc) and _are_equal(self.scale, other.scale)

    __hash__ = Transform.__hash__

    @property
    def sign(self) -> int | Tensor:
        if isinstance(self.scale, Tensor):
            return self.scale.sign()
        return (self.scale > 0) - (self.scale < 0)

    def _call(self, x: Tensor) -> Tensor:
        return self.loc + self.scale * x

    def _inverse(self, y: Tensor) -> Tensor:
        return (y - self.loc) / self.scale

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        logs = self.scale.abs().log() if isinstance(self.scale, Tensor) else x.new_full((), math.log(abs(self.scale)))
        return sum_rightmost(logs.expand(x.shape), self.event_dim)

    def forward_shape(self, shape: Size) -> Size:
        return _broadcast(shape, self.loc, self.scale)

    inverse_shape = forward_shape


def _are_equal(a: object, b: object) -> bool:
    """Whether two parameters, tensors or numbers, have the same values."""
    same = a == b
    return same if isinstance(a, Number) and isinstance(b, Number) else bool(op.all(same))


class CumulativeDistributionTransform(Transform):
    """The distribution function of a distribution of numbers; the inverse gives its quantiles."""

    bijective = True
    codomain = constraints.unit_interval
    sign = 1

    def __init__(self, distribution: Distribution, cache_size: int = 0) -> None:
        super().__init__(cache_size=cache_size)
        self.distribution = distribution

    domain: Constraint = attribute("distribution.support")

    def _call(self, x: Tensor) -> Tensor:
        return self.distribution.cdf(x)

    def _inverse(self, y: Tensor) -> Tensor:
        return self.distribution.icdf(y)

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        return self.distribution.log_prob(x)
