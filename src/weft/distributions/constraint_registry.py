"""Transforms from unconstrained numbers to constrained ones.

`biject_to(constraint)` is a bijection, whose Jacobian is known: for densities. `transform_to(constraint)` need not be
one, and may be better for optimization. Both take the constraints of `weft.distributions.constraints`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

from weft._base.cell import Registry
from weft._base.types import AnyCallable
from weft._tensor.tensor import Tensor
from weft.distributions import constraints
from weft.distributions._elementwise_transforms import AffineTransform, ExpTransform, SigmoidTransform
from weft.distributions._sequence_transforms import CatTransform, StackTransform
from weft.distributions._transform import ComposeTransform, IndependentTransform, Transform, identity_transform
from weft.distributions._vector_transforms import (
    CorrCholeskyTransform,
    LowerCholeskyTransform,
    PositiveDefiniteTransform,
    SoftmaxTransform,
    StickBreakingTransform,
)
from weft.errors import ArgumentError, NotDefinedError

AnyConstraint: TypeAlias = Any
"""A constraint, with the attributes of its class."""

Factory = Callable[[AnyConstraint], Transform]


class ConstraintRegistry:
    """A table of functions that make a transform for a constraint, by the constraint's class."""

    def __init__(self) -> None:
        self._registry = Registry[type, Factory]("the transforms for constraints")

    def register(self, constraint: AnyConstraint, factory: Factory | None = None) -> AnyCallable:
        """Use `factory` for constraints of this class, or of the class of this constraint; also as a decorator."""
        if factory is None:
            return lambda factory: self.register(constraint, factory)
        kind = type(constraint) if isinstance(constraint, constraints.Constraint) else constraint
        if not isinstance(kind, type) or not issubclass(kind, constraints.Constraint):
            raise ArgumentError(
                f"Expected constraint to be either a Constraint subclass or instance, but got {constraint}"
            )
        self._registry[kind] = factory
        return factory

    def __call__(self, constraint: AnyConstraint) -> Transform:
        """A transform whose values satisfy the constraint."""
        factory = self._registry.get(type(constraint))
        if factory is None:
            raise NotDefinedError(f"Cannot transform {type(constraint).__name__} constraints")
        return factory(constraint)


# no cell: its table is a `Registry`
biject_to = ConstraintRegistry()
# no cell: its table is a `Registry`
transform_to = ConstraintRegistry()


def _register(factory: Factory, *kinds: object) -> None:
    """One factory for both tables."""
    for registry in (biject_to, transform_to):
        for kind in kinds:
            registry.register(kind, factory)


def _interval(constraint: AnyConstraint) -> Transform:
    low: Any = constraint.lower_bound
    high: Any = constraint.upper_bound
    are_numbers = not isinstance(low, Tensor) and not isinstance(high, Tensor)
    if are_numbers and (low, high) == (0, 1):
        return SigmoidTransform()
    return ComposeTransform([SigmoidTransform(), AffineTransform(low, high - low)])


def _above(constraint: AnyConstraint) -> Transform:
    return ComposeTransform([ExpTransform(), AffineTransform(constraint.lower_bound, 1)])


def _below(constraint: AnyConstraint) -> Transform:
    return ComposeTransform([ExpTransform(), AffineTransform(constraint.upper_bound, -1)])


_register(lambda _: identity_transform, constraints.real)
_register(_above, constraints.greater_than, constraints.greater_than_eq)
_register(_below, constraints.less_than)
_register(_interval, constraints.interval, constraints.half_open_interval)
_register(lambda _: CorrCholeskyTransform(), constraints.corr_cholesky)

biject_to.register(constraints.simplex, lambda _: StickBreakingTransform())
transform_to.register(constraints.simplex, lambda _: SoftmaxTransform())
transform_to.register(constraints.lower_cholesky, lambda _: LowerCholeskyTransform())
transform_to.register(constraints.positive_definite, lambda _: PositiveDefiniteTransform())
transform_to.register(constraints.positive_semidefinite, lambda _: PositiveDefiniteTransform())


def _register_nested(registry: ConstraintRegistry) -> None:
    """Constraints that are made of others."""

    @registry.register(constraints.independent)
    def _independent(constraint: AnyConstraint) -> Transform:
        return IndependentTransform(registry(constraint.base_constraint), constraint.reinterpreted_batch_ndims)

    @registry.register(constraints.cat)
    def _cat(constraint: AnyConstraint) -> Transform:
        return CatTransform([registry(c) for c in constraint.cseq], constraint.dim, constraint.lengths)

    @registry.register(constraints.stack)
    def _stack(constraint: AnyConstraint) -> Transform:
        return StackTransform([registry(c) for c in constraint.cseq], constraint.dim)


_register_nested(biject_to)
_register_nested(transform_to)
for _table in (biject_to, transform_to):
    _table._registry.settle()
