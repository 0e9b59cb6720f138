"""Exponential families."""

from __future__ import annotations

from typing import Any

from weft._tensor.gradients import grad
from weft._tensor.tensor import Tensor
from weft.distributions.distribution import Distribution
from weft.distributions.utils import Undefined, sum_rightmost, undefined


class ExponentialFamily(Distribution):
    """A distribution with density `exp(t(x) . θ - F(θ) + k(x))`: sufficient statistics t, natural parameters θ.

    A subclass may define `_natural_params`, `_log_normalizer` (F) and `_mean_carrier_measure` (the mean of k). Then its
    entropy and divergences between its members follow by Bregman divergences (Nielsen and Nock, "Entropies and
    cross-entropies of exponential families", 2010).
    """

    @property
    def _natural_params(self) -> tuple[Tensor, ...]:
        raise undefined(self, "_natural_params")

    _log_normalizer: Any = Undefined()
    _mean_carrier_measure: Any = Undefined()

    def _normalizer(self) -> tuple[list[Tensor], Tensor, tuple[Any, ...]]:
        """Natural parameters as leaves, the log normalizer, and its gradients: the means of the statistics."""
        parameters = [x.detach().requires_grad_() for x in self._natural_params]
        value = self._log_normalizer(*parameters)
        return parameters, value, grad(value.sum(), parameters, create_graph=True)

    def entropy(self) -> Tensor:
        carrier = self._mean_carrier_measure
        parameters, value, means = self._normalizer()
        products = [
            sum_rightmost(x * mean, x.dim() - len(self._batch_shape)) for x, mean in zip(parameters, means, strict=True)
        ]
        return value - carrier - sum(products)
