"""Divergences of normal vectors: `(log det ratio + trace + squared length of the distance - size) / 2`."""

from __future__ import annotations

from weft._base.types import Arg
from weft._tensor.tensor import Tensor
from weft.distributions._divergence import register_kl
from weft.distributions._normal_vectors import (
    LowRankMultivariateNormal,
    MultivariateNormal,
    half_log_det,
    solve_lower,
    squared_length,
)
from weft.errors import ValueRangeError


def _require_one_size(p: Arg, q: Arg) -> None:
    if p.event_shape != q.event_shape:
        raise ValueRangeError(
            "KL-divergence between two (Low Rank) Multivariate Normals with different event shapes cannot be computed"
        )


def _sum_of_squares(matrix: Tensor) -> Tensor:
    return matrix.square().sum((-2, -1))


def _log_det(p: Arg) -> Tensor:
    return p.log_det() if isinstance(p, LowRankMultivariateNormal) else 2 * half_log_det(p._unbroadcasted_scale_tril)


@register_kl(MultivariateNormal, MultivariateNormal)
def _dense_dense(p: MultivariateNormal, q: MultivariateNormal) -> Tensor:
    _require_one_size(p, q)
    factor = q._unbroadcasted_scale_tril
    trace = _sum_of_squares(solve_lower(factor, p._unbroadcasted_scale_tril))
    return _divergence(p, q, trace, squared_length(factor, q.loc - p.loc))


@register_kl(LowRankMultivariateNormal, MultivariateNormal)
def _low_dense(p: LowRankMultivariateNormal, q: MultivariateNormal) -> Tensor:
    _require_one_size(p, q)
    factor = q._unbroadcasted_scale_tril
    parts = (p._unbroadcasted_cov_factor, p._unbroadcasted_cov_diag.sqrt().diag_embed())
    trace = sum(_sum_of_squares(solve_lower(factor, part)) for part in parts)
    return _divergence(p, q, trace, squared_length(factor, q.loc - p.loc))


@register_kl(MultivariateNormal, LowRankMultivariateNormal)
def _dense_low(p: MultivariateNormal, q: LowRankMultivariateNormal) -> Tensor:
    _require_one_size(p, q)
    trace = _trace_in(q, p._unbroadcasted_scale_tril)
    return _divergence(p, q, trace, q.squared_length(q.loc - p.loc))


@register_kl(LowRankMultivariateNormal, LowRankMultivariateNormal)
def _low_low(p: LowRankMultivariateNormal, q: LowRankMultivariateNormal) -> Tensor:
    _require_one_size(p, q)
    diagonal = p._unbroadcasted_cov_diag
    columns = solve_lower(q._capacitance_tril, q.scaled_factor()) * diagonal.sqrt().unsqueeze(-2)
    of_diagonal = (diagonal / q._unbroadcasted_cov_diag).sum(-1) - _sum_of_squares(columns)
    trace = of_diagonal + _trace_in(q, p._unbroadcasted_cov_factor)
    return _divergence(p, q, trace, q.squared_length(q.loc - p.loc))


def _trace_in(q: LowRankMultivariateNormal, factor: Tensor) -> Tensor:
    """The trace of `C^-1 F F^T` for the covariance C of q, by Woodbury's formula."""
    scaled = factor / q._unbroadcasted_cov_diag.sqrt().unsqueeze(-1)
    inner = solve_lower(q._capacitance_tril, q.scaled_factor()) @ factor
    return _sum_of_squares(scaled) - _sum_of_squares(inner)


def _divergence(p: Arg, q: Arg, trace: Tensor | float, length: Tensor) -> Tensor:
    return 0.5 * (_log_det(q) - _log_det(p) + trace + length - p.event_shape[0])
