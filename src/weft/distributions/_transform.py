"""Differentiable maps of values, their inverses, and how they compose."""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from math import prod
from typing import TYPE_CHECKING, Any

from weft._base.size import Size
from weft._base.types import SavedState
from weft._tensor.codegen import op
from weft._tensor.tensor import Tensor
from weft.distributions import constraints
from weft.distributions.utils import Undefined, attribute, lazy_property, sum_rightmost, undefined
from weft.errors import ValueRangeError

if TYPE_CHECKING:
    from weft.distributions._constraint import Constraint


class Transform:
    """A differentiable map from `domain` to `codomain`, with a computable logarithm of the determinant of its Jacobian.

    A subclass defines `_call`, and where there is one, `_inverse` and `log_abs_det_jacobian`. `bijective` says that
    `t.inv(t(x)) == x` and `t(t.inv(y)) == y`; otherwise `inv` gives one of the arguments with this value. `sign` is
    that of the derivative of a monotone map. With `cache_size=1`, the last argument and value are kept, so that the
    inverse of a value is its argument itself.
    """

    bijective: Any = False
    domain: Any
    codomain: Any
    sign: Any = Undefined()

    def __init__(self, cache_size: int = 0) -> None:
        if cache_size not in (0, 1):
            raise ValueRangeError("cache_size must be 0 or 1")
        self._forget(cache_size)

    def _forget(self, cache_size: int) -> None:
        self._cache_size = cache_size
        self._cached_x_y: tuple[Any, Any] = (None, None)
        self._inv: Any = None

    def __getstate__(self) -> SavedState:
        return {**self.__dict__, "_inv": None}

    @property
    def event_dim(self) -> int:
        """The number of dims of arguments and values that are mapped as one."""
        if self.domain.event_dim == self.codomain.event_dim:
            return self.domain.event_dim
        raise ValueRangeError("Please use either .domain.event_dim or .codomain.event_dim")

    @property
    def inv(self) -> Transform:
        """The inverse, which shares this transform's cache."""
        if self._inv is None:
            self._inv = _InverseTransform(self)
        return self._inv

    def with_cache(self, cache_size: int = 1) -> Transform:
        """The same transform with a cache of this size."""
        if self._cache_size == cache_size:
            return self
        new = copy(self)
        new._forget(cache_size)
        return new

    def __eq__(self, other: object) -> bool:
        return self is other

    __hash__ = object.__hash__

    def __call__(self, x: Tensor) -> Tensor:
        if self._cache_size == 0:
            return self._call(x)
        known_x, known_y = self._cached_x_y
        if x is known_x:
            return known_y
        y = self._call(x)
        self._cached_x_y = (x, y)
        return y

    def _inv_call(self, y: Tensor) -> Tensor:
        if self._cache_size == 0:
            return self._inverse(y)
        known_x, known_y = self._cached_x_y
        if y is known_y:
            return known_x
        x = self._inverse(y)
        self._cached_x_y = (x, y)
        return x

    def _call(self, x: Tensor) -> Tensor:
        raise undefined(self, "_call")

    def _inverse(self, y: Tensor) -> Tensor:
        raise undefined(self, "_inverse")

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        """The logarithm of the absolute determinant of dy/dx, for an argument and its value."""
        raise undefined(self, "log_abs_det_jacobian")

    def __repr__(self) -> str:
        return f"{type(self).__name__}()"

    def forward_shape(self, shape: Size) -> Size:
        """The shape of values for arguments of this shape."""
        return shape

    def inverse_shape(self, shape: Size) -> Size:
        """The shape of arguments for values of this shape."""
        return shape


class FixedTransform(Transform):
    """A transform without parameters: all of one class are equal."""

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self)

    __hash__ = Transform.__hash__


class _InverseTransform(Transform):
    """The inverse of a transform, whose cache it uses."""

    def __init__(self, transform: Transform) -> None:
        super().__init__(cache_size=transform._cache_size)
        self._inv = transform

    @constraints.dependent_property(is_discrete=False)
    def domain(self) -> Constraint:
        return self._inv.codomain

    @constraints.dependent_property(is_discrete=False)
    def codomain(self) -> Constraint:
        return self._inv.domain

    bijective: bool = attribute("_inv.bijective")
    sign: int | Tensor = attribute("_inv.sign")

    def __getstate__(self) -> SavedState:
        return self.__dict__

    def with_cache(self, cache_size: int = 1) -> Transform:
        return self.inv.with_cache(cache_size).inv

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _InverseTransform) and self._inv == other._inv

    __hash__ = Transform.__hash__

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._inv!r})"

    def __call__(self, x: Tensor) -> Tensor:
        return self._inv._inv_call(x)

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        return -self._inv.log_abs_det_jacobian(y, x)

    def forward_shape(self, shape: Size) -> Size:
        return self._inv.inverse_shape(shape)

    def inverse_shape(self, shape: Size) -> Size:
        return self._inv.forward_shape(shape)


class ComposeTransform(Transform):
    """Transforms one after the other, the first of `parts` first."""

    def __init__(self, parts: Sequence[Transform], cache_size: int = 0) -> None:
        super().__init__(cache_size=cache_size)
        self.parts = [part.with_cache(cache_size) for part in parts] if cache_size else list(parts)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ComposeTransform) and self.parts == other.parts

    __hash__ = Transform.__hash__

    @constraints.dependent_property(is_discrete=False)
    def domain(self) -> Constraint:
        return _end_of([(part.domain, part.codomain) for part in reversed(self.parts)])

    @constraints.dependent_property(is_discrete=False)
    def codomain(self) -> Constraint:
        return _end_of([(part.codomain, part.domain) for part in self.parts])

    @lazy_property
    def bijective(self) -> bool:
        return all(part.bijective for part in self.parts)

    @property
    def sign(self) -> int | Tensor:
        return prod((part.sign for part in self.parts), start=1)

    @property
    def inv(self) -> Transform:
        if self._inv is None:
            self._inv = ComposeTransform([part.inv for part in reversed(self.parts)])
            self._inv._inv = self
        return self._inv

    def with_cache(self, cache_size: int = 1) -> Transform:
        return self if self._cache_size == cache_size else ComposeTransform(self.parts, cache_size)

    def __call__(self, x: Tensor) -> Tensor:
        for part in self.parts:
            x = part(x)
        return x

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        if not self.parts:
            return op.zeros(x.shape, dtype=x.dtype, device=x.device)
        values = [x]
        for part in self.parts[:-1]:
            values.append(part(values[-1]))
        values.append(y)
        total, event_dim = 0, self.domain.event_dim
        for part, before, after in zip(self.parts, values[:-1], values[1:], strict=True):
            term = part.log_abs_det_jacobian(before, after)
            total = total + sum_rightmost(term, event_dim - part.domain.event_dim)
            event_dim += part.codomain.event_dim - part.domain.event_dim
        return total  # pyright: ignore[reportReturnType]

    def forward_shape(self, shape: Size) -> Size:
        for part in self.parts:
            shape = part.forward_shape(shape)
        return shape

    def inverse_shape(self, shape: Size) -> Size:
        for part in reversed(self.parts):
            shape = part.inverse_shape(shape)
        return shape

    def __repr__(self) -> str:
        lines = ",\n    ".join(repr(part) for part in self.parts)
        return f"{type(self).__name__}(\n    {lines}\n)"


def _end_of(steps: Sequence[tuple[Any, Any]]) -> Constraint:
    """The region at one end of a chain: `steps` lead to it, each with its region and the one that it comes from.

    Parts of the chain may map events of more dims than the last one, whose region then holds for each element of those.
    """
    if not steps:
        return constraints.real
    region, event_dim = steps[-1][0], steps[0][1].event_dim
    for there, here in steps:
        event_dim = max(event_dim + there.event_dim - here.event_dim, there.event_dim)
    return constraints.independent(region, event_dim - region.event_dim) if event_dim > region.event_dim else region


# no cell: its cache holds inverses by the tensors that they belong to
identity_transform = ComposeTransform([])


class IndependentTransform(Transform):
    """Another transform, with its last `reinterpreted_batch_ndims` batch dims counted to the event."""

    def __init__(self, base_transform: Transform, reinterpreted_batch_ndims: int, cache_size: int = 0) -> None:
        super().__init__(cache_size=cache_size)
        self.base_transform = base_transform.with_cache(cache_size)
        self.reinterpreted_batch_ndims = reinterpreted_batch_ndims

    def with_cache(self, cache_size: int = 1) -> Transform:
        if self._cache_size == cache_size:
            return self
        return IndependentTransform(self.base_transform, self.reinterpreted_batch_ndims, cache_size)

    @constraints.dependent_property(is_discrete=False)
    def domain(self) -> Constraint:
        return constraints.independent(self.base_transform.domain, self.reinterpreted_batch_ndims)

    @constraints.dependent_property(is_discrete=False)
    def codomain(self) -> Constraint:
        return constraints.independent(self.base_transform.codomain, self.reinterpreted_batch_ndims)

    bijective: bool = attribute("base_transform.bijective")
    sign: int | Tensor = attribute("base_transform.sign")

    def _call(self, x: Tensor) -> Tensor:
        require_dims(x.dim() >= self.domain.event_dim)
        return self.base_transform(x)

    def _inverse(self, y: Tensor) -> Tensor:
        require_dims(y.dim() >= self.codomain.event_dim)
        return self.base_transform.inv(y)

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        return sum_rightmost(self.base_transform.log_abs_det_jacobian(x, y), self.reinterpreted_batch_ndims)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.base_transform!r}, {self.reinterpreted_batch_ndims})"

    def forward_shape(self, shape: Size) -> Size:
        return self.base_transform.forward_shape(shape)

    def inverse_shape(self, shape: Size) -> Size:
        return self.base_transform.inverse_shape(shape)


def require_dims(enough: bool) -> None:
    if not enough:
        raise ValueRangeError("Too few dimensions on input")
