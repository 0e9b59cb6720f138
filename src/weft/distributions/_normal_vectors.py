"""Normal vectors."""

from __future__ import annotations

import math
from typing import Any, ClassVar

from weft import linalg
from weft._base.size import Size
from weft._tensor.codegen import op
from weft._tensor.composite.shape import broadcast_tensors
from weft._tensor.tensor import Tensor
from weft.distributions import constraints
from weft.distributions._line import Normal
from weft.distributions._nested import TransformedDistribution
from weft.distributions._vector_transforms import StickBreakingTransform
from weft.distributions.distribution import Distribution, Shape
from weft.distributions.utils import attribute, lazy_property, standard_normal
from weft.errors import ShapeError, ValueRangeError
from weft.ops._dims import broadcast_shapes

_LOG_TWO_PI = math.log(2 * math.pi)


def half_log_det(factor: Tensor) -> Tensor:
    """Half the logarithm of the determinant of a matrix with this Cholesky factor."""
    return factor.diagonal(dim1=-2, dim2=-1).log().sum(-1)


def times_vector(matrix: Tensor, vector: Tensor) -> Tensor:
    return (matrix @ vector.unsqueeze(-1)).squeeze(-1)


def squared_length(factor: Tensor, x: Tensor) -> Tensor:
    """The square of Mahalanobis's length of vectors, `x^T (L L^T)^-1 x`, for the Cholesky factor L.

    With one factor for many vectors, one triangular system with many right sides is solved.
    """
    if factor.dim() == 2:
        rows = x.reshape(-1, x.shape[-1])
        return linalg.solve_triangular(factor, rows.mT, upper=False).square().sum(0).reshape(x.shape[:-1])
    return solve_lower(factor, x.unsqueeze(-1)).square().sum((-2, -1))


def solve_lower(factor: Tensor, right: Tensor) -> Tensor:
    """`L^-1 R`, for batches that broadcast."""
    batch = broadcast_shapes(tuple(factor.shape[:-2]), tuple(right.shape[:-2]))
    sides = [x.expand((*batch, *x.shape[-2:])) for x in (factor, right)]
    return linalg.solve_triangular(*sides, upper=False)


def lower_factor(covariance: Tensor | None, precision: Tensor | None, factor: Tensor | None) -> Tensor:
    """The Cholesky factor of the covariance, from the one that is given."""
    if factor is not None:
        return factor
    if covariance is not None:
        return linalg.cholesky(covariance)
    assert precision is not None
    return factor_of_precision(precision)


def factor_of_precision(precision: Tensor) -> Tensor:
    """The Cholesky factor of the covariance, from its inverse."""
    upper = linalg.cholesky(precision.flip((-2, -1))).flip((-2, -1)).mT
    return linalg.solve_triangular(upper, op.eye(upper.shape[-1], dtype=upper.dtype, device=upper.device), upper=False)


class WithCovariance(Distribution):
    """A distribution with a covariance, its inverse, or its Cholesky factor; the others are computed when needed."""

    _unbroadcasted_scale_tril: Tensor

    def _matrix(self, factor: Tensor) -> Tensor:
        size = factor.shape[-1]
        return factor.expand((*self._batch_shape, size, size))

    @lazy_property
    def scale_tril(self) -> Tensor:
        return self._matrix(self._unbroadcasted_scale_tril)

    @lazy_property
    def covariance_matrix(self) -> Tensor:
        factor = self._unbroadcasted_scale_tril
        return self._matrix(factor @ factor.mT)

    @lazy_property
    def precision_matrix(self) -> Tensor:
        return self._matrix(op.cholesky_inverse(self._unbroadcasted_scale_tril))


class MultivariateNormal(WithCovariance):
    """Normal vectors with mean `loc`, and one of covariance, precision, or lower Cholesky factor of the covariance."""

    arg_constraints: ClassVar[Any] = {
        "loc": constraints.real_vector,
        "covariance_matrix": constraints.positive_definite,
        "precision_matrix": constraints.positive_definite,
        "scale_tril": constraints.lower_cholesky,
    }
    support = constraints.real_vector
    has_rsample = True

    def __init__(
        self,
        loc: Tensor,
        covariance_matrix: Tensor | None = None,
        precision_matrix: Tensor | None = None,
        scale_tril: Tensor | None = None,
        validate_args: bool | None = None,
    ) -> None:
        if loc.dim() < 1:
            raise ValueRangeError("loc must be at least one-dimensional.")
        name, matrix = _only(covariance_matrix, precision_matrix, scale_tril)
        if matrix.dim() < 2:
            word = "scale_tril matrix" if name == "scale_tril" else name
            raise ValueRangeError(f"{word} must be at least two-dimensional, with optional leading batch dimensions")
        batch = broadcast_shapes(tuple(matrix.shape[:-2]), tuple(loc.shape[:-1]))
        setattr(self, name, matrix.expand((*batch, -1, -1)))
        self.loc = loc.expand((*batch, -1))
        super().__init__(batch, self.loc.shape[-1:], validate_args=validate_args)
        self._unbroadcasted_scale_tril = lower_factor(covariance_matrix, precision_matrix, scale_tril)

    mean: Tensor = attribute("loc")
    mode: Tensor = attribute("loc")

    @property
    def variance(self) -> Tensor:
        return self._unbroadcasted_scale_tril.square().sum(-1).expand(self._extended_shape())

    def rsample(self, sample_shape: Shape = ()) -> Tensor:
        noise = standard_normal(self._extended_shape(sample_shape), self.loc)
        return self.loc + times_vector(self._unbroadcasted_scale_tril, noise)

    def _log_prob(self, value: Tensor) -> Tensor:
        factor = self._unbroadcasted_scale_tril
        length = squared_length(factor, value - self.loc)
        return -0.5 * (self._event_shape[0] * _LOG_TWO_PI + length) - half_log_det(factor)

    def entropy(self) -> Tensor:
        entropy = 0.5 * self._event_shape[0] * (1 + _LOG_TWO_PI) + half_log_det(self._unbroadcasted_scale_tril)
        return entropy.expand(self._batch_shape)


def _only(covariance: Tensor | None, precision: Tensor | None, factor: Tensor | None) -> tuple[str, Tensor]:
    """The matrix that is given, with its name."""
    matrices = {"covariance_matrix": covariance, "precision_matrix": precision, "scale_tril": factor}
    present = [(name, x) for name, x in matrices.items() if x is not None]
    if len(present) != 1:
        raise ValueRangeError("Exactly one of covariance_matrix or precision_matrix or scale_tril may be specified.")
    return present[0]


class LowRankMultivariateNormal(Distribution):
    """Normal vectors with covariance `cov_factor @ cov_factor^T + diag(cov_diag)`.

    With a factor W of m columns, densities need a Cholesky factor of size m alone: that of `I + W^T D^-1 W`, the
    capacitance matrix, by the formulas of Woodbury and Sylvester.
    """

    arg_constraints: ClassVar[Any] = {
        "loc": constraints.real_vector,
        "cov_factor": constraints.independent(constraints.real, 2),
        "cov_diag": constraints.independent(constraints.positive, 1),
    }
    support = constraints.real_vector
    has_rsample = True

    def __init__(self, loc: Tensor, cov_factor: Tensor, cov_diag: Tensor, validate_args: bool | None = None) -> None:
        _require_low_rank(loc, cov_factor, cov_diag)
        try:
            columns = broadcast_tensors(loc.unsqueeze(-1), cov_factor, cov_diag.unsqueeze(-1))
        except ShapeError as error:
            raise ValueRangeError(
                f"Incompatible batch shapes: loc {loc.shape}, cov_factor {cov_factor.shape}, cov_diag {cov_diag.shape}"
            ) from error
        self.loc, self.cov_factor, self.cov_diag = columns[0][..., 0], columns[1], columns[2][..., 0]
        super().__init__(self.loc.shape[:-1], loc.shape[-1:], validate_args=validate_args)
        self._unbroadcasted_cov_factor = cov_factor
        self._unbroadcasted_cov_diag = cov_diag
        identity = op.eye(cov_factor.shape[-1], dtype=loc.dtype, device=loc.device)
        self._capacitance_tril = linalg.cholesky(self.scaled_factor() @ cov_factor + identity)

    def scaled_factor(self) -> Tensor:
        """`W^T D^-1`."""
        return self._unbroadcasted_cov_factor.mT / self._unbroadcasted_cov_diag.unsqueeze(-2)

    def log_det(self) -> Tensor:
        """The logarithm of the determinant of the covariance."""
        return 2 * half_log_det(self._capacitance_tril) + self._unbroadcasted_cov_diag.log().sum(-1)

    def squared_length(self, x: Tensor) -> Tensor:
        """The square of Mahalanobis's length of vectors."""
        inner = squared_length(self._capacitance_tril, times_vector(self.scaled_factor(), x))
        return (x**2 / self._unbroadcasted_cov_diag).sum(-1) - inner

    mean: Tensor = attribute("loc")
    mode: Tensor = attribute("loc")

    def _matrix(self, matrix: Tensor) -> Tensor:
        return matrix.expand(Size((*self._batch_shape, *matrix.shape[-2:])))

    @lazy_property
    def variance(self) -> Tensor:
        variances = self._unbroadcasted_cov_factor.square().sum(-1) + self._unbroadcasted_cov_diag
        return variances.expand(self._extended_shape())

    @lazy_property
    def covariance_matrix(self) -> Tensor:
        factor = self._unbroadcasted_cov_factor
        return self._matrix(factor @ factor.mT + self._unbroadcasted_cov_diag.diag_embed())

    @lazy_property
    def scale_tril(self) -> Tensor:
        return self._matrix(linalg.cholesky(self.covariance_matrix))

    @lazy_property
    def precision_matrix(self) -> Tensor:
        a = solve_lower(self._capacitance_tril, self.scaled_factor())
        return self._matrix((1 / self._unbroadcasted_cov_diag).diag_embed() - a.mT @ a)

    def rsample(self, sample_shape: Shape = ()) -> Tensor:
        shape = self._extended_shape(sample_shape)
        low_rank = standard_normal((*shape[:-1], self.cov_factor.shape[-1]), self.loc)
        noise = self._unbroadcasted_cov_diag.sqrt() * standard_normal(shape, self.loc)
        return self.loc + times_vector(self._unbroadcasted_cov_factor, low_rank) + noise

    def _log_prob(self, value: Tensor) -> Tensor:
        length = self.squared_length(value - self.loc)
        return -0.5 * (self._event_shape[0] * _LOG_TWO_PI + self.log_det() + length)

    def entropy(self) -> Tensor:
        entropy = 0.5 * (self._event_shape[0] * (1 + _LOG_TWO_PI) + self.log_det())
        return entropy.expand(self._batch_shape)


def _require_low_rank(loc: Tensor, cov_factor: Tensor, cov_diag: Tensor) -> None:
    if loc.dim() < 1:
        raise ValueRangeError("loc must be at least one-dimensional.")
    event = loc.shape[-1:]
    if cov_factor.dim() < 2:
        raise ValueRangeError("cov_factor must be at least two-dimensional, with optional leading batch dimensions")
    if cov_factor.shape[-2:-1] != event:
        raise ValueRangeError(f"cov_factor must be a batch of matrices with shape {event[0]} x m")
    if cov_diag.shape[-1:] != event:
        raise ValueRangeError(f"cov_diag must be a batch of vectors with shape {event}")


class LogisticNormal(TransformedDistribution):
    """Independent normal numbers as points of a simplex with one more element, by `StickBreakingTransform`."""

    arg_constraints: ClassVar[Any] = {"loc": constraints.real, "scale": constraints.positive}
    support = constraints.simplex

    def __init__(self, loc: Tensor | float, scale: Tensor | float, validate_args: bool | None = None) -> None:
        base = Normal(loc, scale, validate_args=validate_args)
        base = base if base.batch_shape else base.expand((1,))
        super().__init__(base, StickBreakingTransform(), validate_args=validate_args)

    loc: Tensor = attribute("base_dist.base_dist.loc")
    scale: Tensor = attribute("base_dist.base_dist.scale")
