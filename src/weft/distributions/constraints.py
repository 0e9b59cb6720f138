"""Regions in which parameters and values of distributions must lie."""

from __future__ import annotations

from weft import linalg
from weft._base.dtype import bool_
from weft._base.limits import finfo
from weft._tensor.codegen import op
from weft._tensor.tensor import Tensor
from weft.distributions._constraint import Cat as _Cat
from weft.distributions._constraint import Constraint as Constraint
from weft.distributions._constraint import Dependent as _Dependent
from weft.distributions._constraint import DependentProperty as _DependentProperty
from weft.distributions._constraint import IndependentConstraint as _IndependentConstraint
from weft.distributions._constraint import MixtureSameFamilyConstraint as MixtureSameFamilyConstraint
from weft.distributions._constraint import Stack as _Stack
from weft.distributions._constraint import is_dependent as is_dependent

Bound = Tensor | float

# --- of numbers -------------------------------------------------------------------------------------------------


class _Real(Constraint):
    """All numbers, infinities included, but not NaN."""

    def check(self, value: Tensor) -> Tensor:
        return ~value.isnan()


class _Boolean(Constraint):
    """0 and 1."""

    is_discrete = True

    def check(self, value: Tensor) -> Tensor:
        return (value == 0) | (value == 1)


class _GreaterThan(Constraint):
    """Numbers above `lower_bound`."""

    _shows = ("lower_bound",)

    def __init__(self, lower_bound: Bound) -> None:
        self.lower_bound = lower_bound

    def check(self, value: Tensor) -> Tensor:
        return value > self.lower_bound


class _GreaterThanEq(_GreaterThan):
    """Numbers from `lower_bound` on."""

    def check(self, value: Tensor) -> Tensor:
        return value >= self.lower_bound


class _LessThan(Constraint):
    """Numbers below `upper_bound`."""

    _shows = ("upper_bound",)

    def __init__(self, upper_bound: Bound) -> None:
        self.upper_bound = upper_bound

    def check(self, value: Tensor) -> Tensor:
        return value < self.upper_bound


class _Interval(Constraint):
    """Numbers between two bounds, which belong to the region."""

    _shows = ("lower_bound", "upper_bound")

    def __init__(self, lower_bound: Bound, upper_bound: Bound) -> None:
        self.lower_bound = lower_bound
        self.upper_bound = upper_bound

    def check(self, value: Tensor) -> Tensor:
        return (value >= self.lower_bound) & (value <= self.upper_bound)


class _HalfOpenInterval(_Interval):
    """Numbers between two bounds, of which the lower belongs to the region."""

    def check(self, value: Tensor) -> Tensor:
        return (value >= self.lower_bound) & (value < self.upper_bound)


class _IntegerInterval(_Interval):
    """Integers between two bounds, which belong to the region."""

    is_discrete = True

    def check(self, value: Tensor) -> Tensor:
        return _where_whole(value, super().check(value))


class _IntegerGreaterThan(_GreaterThan):
    """Integers from `lower_bound` on."""

    is_discrete = True

    def check(self, value: Tensor) -> Tensor:
        return _where_whole(value, value >= self.lower_bound)


def _where_whole(value: Tensor, valid: Tensor) -> Tensor:
    """What is valid and a whole number, as the elements of integer types are without a look at them."""
    return valid & (value % 1 == 0) if value.is_floating_point() else valid


# --- of vectors and matrices ------------------------------------------------------------------------------------


class _OneHot(Constraint):
    """Vectors with one 1 among zeros."""

    is_discrete = True
    event_dim = 1

    def check(self, value: Tensor) -> Tensor:
        return ((value == 0) | (value == 1)).all(-1) & (value.sum(-1) == 1)


class _Simplex(Constraint):
    """Vectors of nonnegative numbers with sum 1."""

    event_dim = 1

    def check(self, value: Tensor) -> Tensor:
        return (value >= 0).all(-1) & ((value.sum(-1) - 1).abs() < 1e-6)


class _Multinomial(Constraint):
    """Vectors of nonnegative numbers with a sum up to `upper_bound`."""

    is_discrete = True
    event_dim = 1

    def __init__(self, upper_bound: Bound) -> None:
        self.upper_bound = upper_bound

    def check(self, value: Tensor) -> Tensor:
        return (value >= 0).all(-1) & (value.sum(-1) <= self.upper_bound)


class _Matrix(Constraint):
    event_dim = 2


class _LowerTriangular(_Matrix):
    """Matrices with zeros above the diagonal."""

    def check(self, value: Tensor) -> Tensor:
        return (value.tril() == value).all(-1).all(-1)


class _LowerCholesky(_LowerTriangular):
    """Lower triangular matrices with a positive diagonal."""

    def check(self, value: Tensor) -> Tensor:
        return super().check(value) & (value.diagonal(dim1=-2, dim2=-1) > 0).all(-1)


class _CorrCholesky(_LowerCholesky):
    """Cholesky factors of correlation matrices: their rows have norm 1."""

    def check(self, value: Tensor) -> Tensor:
        tolerance = finfo(value.dtype).eps * value.size(-1) * 10
        norms = value.detach().square().sum(-1).sqrt()
        return super().check(value) & ((norms - 1).abs() <= tolerance).all(-1)


class _Square(_Matrix):
    """Square matrices."""

    def check(self, value: Tensor) -> Tensor:
        return value.new_full(value.shape[:-2], value.shape[-2] == value.shape[-1], dtype=bool_)


class _Symmetric(_Square):
    """Symmetric matrices."""

    def check(self, value: Tensor) -> Tensor:
        if value.shape[-2] != value.shape[-1]:
            return super().check(value)
        return op.isclose(value, value.mT, atol=1e-6).all(-2).all(-1)


class _PositiveSemidefinite(_Symmetric):
    """Symmetric matrices without negative eigenvalues."""

    def check(self, value: Tensor) -> Tensor:
        symmetric = super().check(value)
        if not symmetric.all():
            return symmetric
        return (linalg.eigvalsh(value) >= 0).all(-1)


class _PositiveDefinite(_Symmetric):
    """Symmetric matrices whose eigenvalues are positive."""

    def check(self, value: Tensor) -> Tensor:
        symmetric = super().check(value)
        if not symmetric.all():
            return symmetric
        return linalg.cholesky_ex(value).info == 0


dependent = _Dependent()
dependent_property = _DependentProperty
independent = _IndependentConstraint
cat = _Cat
stack = _Stack
real = _Real()
real_vector = independent(real, 1)
boolean = _Boolean()
greater_than = _GreaterThan
greater_than_eq = _GreaterThanEq
less_than = _LessThan
interval = _Interval
half_open_interval = _HalfOpenInterval
unit_interval = _Interval(0.0, 1.0)
positive = _GreaterThan(0.0)
nonnegative = _GreaterThanEq(0.0)
integer_interval = _IntegerInterval
nonnegative_integer = _IntegerGreaterThan(0)
positive_integer = _IntegerGreaterThan(1)
one_hot = _OneHot()
simplex = _Simplex()
multinomial = _Multinomial
lower_triangular = _LowerTriangular()
lower_cholesky = _LowerCholesky()
corr_cholesky = _CorrCholesky()
square = _Square()
symmetric = _Symmetric()
positive_semidefinite = _PositiveSemidefinite()
positive_definite = _PositiveDefinite()

__all__ = [
    "Constraint",
    "MixtureSameFamilyConstraint",
    "boolean",
    "cat",
    "corr_cholesky",
    "dependent",
    "dependent_property",
    "greater_than",
    "greater_than_eq",
    "half_open_interval",
    "independent",
    "integer_interval",
    "interval",
    "is_dependent",
    "less_than",
    "lower_cholesky",
    "lower_triangular",
    "multinomial",
    "nonnegative",
    "nonnegative_integer",
    "one_hot",
    "positive",
    "positive_definite",
    "positive_integer",
    "positive_semidefinite",
    "real",
    "real_vector",
    "simplex",
    "square",
    "stack",
    "symmetric",
    "unit_interval",
]
