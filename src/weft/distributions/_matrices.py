"""Distributions of matrices."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, ClassVar

from weft import linalg
from weft._base.limits import finfo
from weft._base.site import warn_user
from weft._base.state import using
from weft._tensor.codegen import op
from weft._tensor.composite.create import arange
from weft._tensor.convert import tensor
from weft._tensor.tensor import Tensor
from weft.distributions import constraints
from weft.distributions._dirichlet import Beta
from weft.distributions._gamma import Chi2
from weft.distributions._normal_vectors import WithCovariance, half_log_det, lower_factor, solve_lower
from weft.distributions.distribution import Distribution, Shape, all_true
from weft.distributions.exp_family import ExponentialFamily
from weft.distributions.utils import broadcast_all, standard_normal
from weft.errors import PreconditionError, ValueRangeError
from weft.ops._dims import broadcast_shapes

if TYPE_CHECKING:
    from weft.distributions._constraint import Constraint

_ATTEMPTS = 10  # to replace singular draws


class Wishart(WithCovariance, ExponentialFamily):
    """Sums of the products of `df` normal vectors with themselves; the vectors have the covariance that is given.

    Draws are those of Bartlett's decomposition: a lower triangular matrix of normal numbers, with chi numbers on the
    diagonal.
    """

    support = constraints.positive_definite
    has_rsample = True
    _mean_carrier_measure = 0

    def __init__(
        self,
        df: Tensor | float,
        covariance_matrix: Tensor | None = None,
        precision_matrix: Tensor | None = None,
        scale_tril: Tensor | None = None,
        validate_args: bool | None = None,
    ) -> None:
        matrices = {
            "scale_tril": scale_tril, "covariance_matrix": covariance_matrix, "precision_matrix": precision_matrix
        }  # fmt: skip
        name, matrix = _only(matrices)
        size = matrix.shape[-1]
        degrees = df if isinstance(df, Tensor) else tensor(df, dtype=matrix.dtype, device=matrix.device)
        batch = broadcast_shapes(tuple(matrix.shape[:-2]), tuple(degrees.shape))
        self.df = degrees.expand(batch)
        setattr(self, name, matrix.expand((*batch, -1, -1)))
        if not all_true(self.df > size - 1):
            raise ValueRangeError(f"Value of df={df} expected to be greater than ndim - 1 = {size - 1}.")
        if not all_true(self.df >= size):
            warn_user("Low df values detected. Singular samples are highly likely to occur for ndim - 1 < df < ndim.")
        super().__init__(batch, matrix.shape[-2:], validate_args=validate_args)
        self._unbroadcasted_scale_tril = lower_factor(covariance_matrix, precision_matrix, scale_tril)

    @property
    def arg_constraints(self) -> dict[str, Constraint]:  # pyright: ignore[reportIncompatibleVariableOverride]
        return {
            "covariance_matrix": constraints.positive_definite,
            "precision_matrix": constraints.positive_definite,
            "scale_tril": constraints.lower_cholesky,
            "df": constraints.greater_than(self.event_shape[-1] - 1),
        }

    @property
    def _wide_df(self) -> Tensor:
        return self.df.reshape((*self._batch_shape, 1, 1))

    @property
    def mean(self) -> Tensor:
        return self._wide_df * self.covariance_matrix

    @property
    def mode(self) -> Tensor:
        factor = self._wide_df - self._event_shape[-1] - 1
        return factor.masked_fill(factor <= 0, math.nan) * self.covariance_matrix

    @property
    def variance(self) -> Tensor:
        diagonal = self.covariance_matrix.diagonal(dim1=-2, dim2=-1)
        products = diagonal.unsqueeze(-1) * diagonal.unsqueeze(-2)
        return self._wide_df * (self.covariance_matrix**2 + products)

    def _draws(self, sample_shape: Shape) -> Tensor:
        size, factor = self._event_shape[-1], self._unbroadcasted_scale_tril
        degrees = self.df.unsqueeze(-1) - arange(size, dtype=factor.dtype, device=factor.device)
        chi = Chi2(degrees, validate_args=False).rsample(sample_shape).sqrt().clamp(min=finfo(factor.dtype).eps)
        noise = standard_normal((*chi.shape, size), factor).tril(-1) + chi.diag_embed()
        product = factor @ noise
        return product @ product.mT

    def rsample(self, sample_shape: Shape = (), max_try_correction: int = _ATTEMPTS) -> Tensor:
        """Draws with gradients. Singular ones are drawn again, up to `max_try_correction` times."""
        draws = self._draws(sample_shape)
        valid = self.support.check(draws)
        if all_true(valid):
            return draws
        warn_user("Singular sample detected.")
        for _ in range(max_try_correction):
            draws = op.where(valid[..., None, None], draws, self._draws(sample_shape))
            valid = self.support.check(draws)
            if all_true(valid):
                break
        return draws

    def _log_scale(self) -> Tensor:
        """Half the logarithm of the determinant of twice the covariance."""
        return self._event_shape[-1] * math.log(2) / 2 + half_log_det(self._unbroadcasted_scale_tril)

    def _log_prob(self, value: Tensor) -> Tensor:
        nu, p = self.df, self._event_shape[-1]
        whitened = solve_lower(self._unbroadcasted_scale_tril, value)
        trace = solve_lower(self._unbroadcasted_scale_tril, whitened.mT).diagonal(dim1=-2, dim2=-1).sum(-1)
        log_det = linalg.slogdet(value).logabsdet
        return -nu * self._log_scale() - (nu / 2).mvlgamma(p) + (nu - p - 1) / 2 * log_det - trace / 2

    def entropy(self) -> Tensor:
        nu, p = self.df, self._event_shape[-1]
        arguments = (nu / 2).unsqueeze(-1) - arange(p, dtype=nu.dtype, device=nu.device) / 2
        digammas = arguments.digamma().sum(-1)
        return (p + 1) * self._log_scale() + (nu / 2).mvlgamma(p) - (nu - p - 1) / 2 * digammas + nu * p / 2

    @property
    def _natural_params(self) -> tuple[Tensor, ...]:
        return -self.precision_matrix / 2, (self.df - self._event_shape[-1] - 1) / 2

    def _log_normalizer(self, x: Tensor, y: Tensor) -> Tensor:
        p = self._event_shape[-1]
        half_df = y + (p + 1) / 2
        return half_df * (p * math.log(2) - linalg.slogdet(-2 * x).logabsdet) + half_df.mvlgamma(p)


def _only(matrices: dict[str, Tensor | None]) -> tuple[str, Tensor]:
    present = [(name, x) for name, x in matrices.items() if x is not None]
    if len(present) != 1:
        raise PreconditionError("Exactly one of covariance_matrix or precision_matrix or scale_tril may be specified.")
    if present[0][1].dim() < 2:
        raise ValueRangeError("scale_tril must be at least two-dimensional, with optional leading batch dimensions")
    return present[0]


class LKJCholesky(Distribution):
    """Cholesky factors of correlation matrices, whose density is proportional to `det**(concentration - 1)`.

    Draws are those of the onion method (Lewandowski, Kurowicka and Joe, "Generating random correlation matrices based
    on vines and extended onion method", 2009): each row is a point on a sphere. They have no derivatives.
    """

    arg_constraints: ClassVar[Any] = {"concentration": constraints.positive}
    support = constraints.corr_cholesky
    concentration: Tensor

    def __init__(self, dim: int, concentration: Tensor | float = 1.0, validate_args: bool | None = None) -> None:
        if dim < 2:
            raise ValueRangeError(f"Expected dim to be an integer greater than or equal to 2. Found dim={dim}.")
        self.dim = dim
        (self.concentration,) = broadcast_all(concentration)
        super().__init__(self.concentration.shape, (dim, dim), validate_args)

    @property
    def _beta(self) -> Beta:
        """The squared length of each row without its last element."""
        like = self.concentration
        half = 0.5 * arange(-1, self.dim - 1, dtype=like.dtype, device=like.device).clamp(min=0)
        marginal = like.unsqueeze(-1) + 0.5 * (self.dim - 2)
        return Beta(half + 0.5, marginal - half, validate_args=False)

    def sample(self, sample_shape: Shape = ()) -> Tensor:
        shape, like = self._extended_shape(sample_shape), self.concentration
        with using(grad=False):
            lengths = self._beta.sample(sample_shape).unsqueeze(-1)
            numbers = standard_normal(shape, like).tril(-1)
            norms = numbers.square().sum(-1, keepdim=True).sqrt()
            rows = lengths.sqrt() * (numbers / norms).masked_fill(norms == 0, 0)
            rest = (1 - rows.square().sum(-1)).clamp(min=finfo(like.dtype).tiny)
            return rows + rest.sqrt().diag_embed()

    def _log_prob(self, value: Tensor) -> Tensor:
        n, like = self.dim, self.concentration
        order = n - arange(2, n + 1, device=like.device)
        weights = 2 * (like - 1).unsqueeze(-1) + order
        log_pdf = (weights * value.diagonal(dim1=-1, dim2=-2)[..., 1:].log()).sum(-1)
        alpha = like + 0.5 * (n - 1)
        constant = 0.5 * (n - 1) * math.log(math.pi) + (alpha - 0.5).mvlgamma(n - 1)
        return log_pdf - constant + alpha.lgamma() * (n - 1)
