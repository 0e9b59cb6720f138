"""What constraints are, and how they are made of others."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from weft._base.types import AnyCallable, AttributeValue
from weft._tensor.codegen import op
from weft._tensor.tensor import Tensor
from weft.distributions.utils import attribute
from weft.errors import NotDefinedError, PreconditionError, ValueRangeError


class Constraint:
    """A region; `event_dim` is the number of rightmost dims that are valid or not as one."""

    is_discrete: Any = False
    event_dim: Any = 0
    _shows: tuple[str, ...] = ()  # the attributes that the representation shows

    def check(self, value: Tensor) -> Tensor:
        """Whether each event in `value` lies in the region: booleans without the last `event_dim` dims."""
        raise NotImplementedError

    def __repr__(self) -> str:
        fields = ", ".join(f"{name}={getattr(self, name)}" for name in self._shows)
        return f"{type(self).__name__.removeprefix('_')}({fields})"


def require_constraint(value: object, name: str) -> None:
    if not isinstance(value, Constraint):
        raise PreconditionError(f"{name} must be a Constraint, got {type(value).__name__}")


# --- that depend on other parameters ----------------------------------------------------------------------------


class Dependent(Constraint):
    """A region that depends on other values, so that it is not known of a class."""

    def __init__(self, *, is_discrete: object = NotImplemented, event_dim: object = NotImplemented) -> None:
        self._is_discrete = is_discrete
        self._event_dim = event_dim

    @property
    def is_discrete(self) -> bool:
        return self._static("is_discrete")

    @property
    def event_dim(self) -> int:
        return self._static("event_dim")

    def _static(self, name: str) -> AttributeValue:
        value = getattr(self, f"_{name}")
        if value is NotImplemented:
            raise NotDefinedError(f".{name} cannot be determined statically")
        return value

    def __call__(self, *, is_discrete: object = NotImplemented, event_dim: object = NotImplemented) -> Dependent:
        """The same, with attributes that hold for every instance."""
        return Dependent(
            is_discrete=self._is_discrete if is_discrete is NotImplemented else is_discrete,
            event_dim=self._event_dim if event_dim is NotImplemented else event_dim,
        )

    def check(self, value: Tensor) -> Tensor:
        raise ValueRangeError("Cannot determine validity of dependent constraint")


class DependentProperty(property, Dependent):
    """A property of instances that holds a constraint; on the class, a dependent constraint."""

    def __init__(
        self,
        fn: AnyCallable | None = None,
        *,
        is_discrete: object = NotImplemented,
        event_dim: object = NotImplemented,
    ) -> None:
        super().__init__(fn)
        self._is_discrete = is_discrete
        self._event_dim = event_dim

    def __call__(self, fn: AnyCallable) -> AttributeValue:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Decorate `fn`."""
        return DependentProperty(fn, is_discrete=self._is_discrete, event_dim=self._event_dim)


def is_dependent(constraint: Constraint) -> bool:
    """Whether a constraint depends on other parameters, so that it cannot be checked."""
    return isinstance(constraint, Dependent)


# --- made of others ---------------------------------------------------------------------------------------------


class _Wrapper(Constraint):
    """The region of another constraint, for events of other dims."""

    def __init__(self, base_constraint: Constraint) -> None:
        require_constraint(base_constraint, "base_constraint")
        self.base_constraint = base_constraint

    is_discrete: bool = attribute("base_constraint.is_discrete")

    @property
    def event_dim(self) -> int:
        return self.base_constraint.event_dim


class IndependentConstraint(_Wrapper):
    """Valid where all elements of the last `reinterpreted_batch_ndims` batch dims are."""

    def __init__(self, base_constraint: Constraint, reinterpreted_batch_ndims: int) -> None:
        super().__init__(base_constraint)
        if not isinstance(reinterpreted_batch_ndims, int):
            got = type(reinterpreted_batch_ndims).__name__
            raise PreconditionError(f"reinterpreted_batch_ndims must be an int, got {got}")
        if reinterpreted_batch_ndims < 0:
            raise PreconditionError(f"reinterpreted_batch_ndims must be >= 0, got {reinterpreted_batch_ndims}")
        self.reinterpreted_batch_ndims = reinterpreted_batch_ndims

    @property
    def event_dim(self) -> int:
        return self.base_constraint.event_dim + self.reinterpreted_batch_ndims

    def check(self, value: Tensor) -> Tensor:
        valid = self.base_constraint.check(value)
        kept = valid.dim() - self.reinterpreted_batch_ndims
        if kept < 0:
            raise ValueRangeError(f"Expected value.dim() >= {self.event_dim} but got {value.dim()}")
        return valid.reshape((*valid.shape[:kept], -1)).all(-1)

    def __repr__(self) -> str:
        return f"IndependentConstraint({self.base_constraint!r}, {self.reinterpreted_batch_ndims})"


class MixtureSameFamilyConstraint(_Wrapper):
    """The region of the components of a mixture, for values without the dim of components."""

    def check(self, value: Tensor) -> Tensor:
        valid = self.base_constraint.check(value.unsqueeze(-1 - self.event_dim))
        kept = value.dim() - self.event_dim
        if kept < 0:
            raise ValueRangeError(f"Expected value.dim() >= {self.event_dim} but got {value.dim()}")
        return valid.reshape((*valid.shape[:kept], -1)).all(-1)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.base_constraint!r})"


class _Sequence(Constraint):
    """Several constraints, each for its own part of a dim."""

    def __init__(self, cseq: Sequence[Constraint], dim: int = 0) -> None:
        if not all(isinstance(c, Constraint) for c in cseq):
            raise PreconditionError("All elements of cseq must be Constraint instances")
        self.cseq = list(cseq)
        self.dim = dim

    @property
    def is_discrete(self) -> bool:
        return any(c.is_discrete for c in self.cseq)

    @property
    def event_dim(self) -> int:
        return max(c.event_dim for c in self.cseq)

    def _require_dim(self, value: Tensor) -> None:
        if not -value.dim() <= self.dim < value.dim():
            raise PreconditionError(f"dim {self.dim} out of range for value with {value.dim()} dimensions")


class Cat(_Sequence):
    """Constraints of slices that are concatenated along `dim`."""

    def __init__(self, cseq: Sequence[Constraint], dim: int = 0, lengths: Sequence[int] | None = None) -> None:
        super().__init__(cseq, dim)
        self.lengths = [1] * len(self.cseq) if lengths is None else list(lengths)
        if len(self.lengths) != len(self.cseq):
            raise PreconditionError(f"lengths ({len(self.lengths)}) must match cseq ({len(self.cseq)})")

    def check(self, value: Tensor) -> Tensor:
        self._require_dim(value)
        parts = value.split(self.lengths, self.dim)
        return op.cat([c.check(part) for c, part in zip(self.cseq, parts, strict=True)], self.dim)


class Stack(_Sequence):
    """Constraints of slices that are stacked along `dim`."""

    @property
    def event_dim(self) -> int:
        dims = super().event_dim
        return dims + 1 if self.dim + dims < 0 else dims

    def check(self, value: Tensor) -> Tensor:
        self._require_dim(value)
        return op.stack([c.check(part) for c, part in zip(self.cseq, value.unbind(self.dim), strict=True)], self.dim)
