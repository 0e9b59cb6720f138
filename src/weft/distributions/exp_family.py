"""Exponential families."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from weft._base.state import ambient, using
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

    def _normalizer(self) -> tuple[Sequence[Tensor], Tensor, tuple[Any, ...]]:
        """Natural parameters, the log normalizer, and its gradients, which are the means of the statistics.

        All have gradients where the parameters do.
        """
        parameters = self._natural_params
        is_taped = ambient().grad and any(x.requires_grad for x in parameters)
        with using(grad=True):
            inputs = [x if x.requires_grad else x.detach().requires_grad_() for x in parameters]
            value = self._log_normalizer(*inputs)
            means = grad(value.sum(), inputs, create_graph=is_taped)
        return parameters, value if is_taped else value.detach(), means

    def entropy(self) -> Tensor:
        carrier = self._mean_carrier_measure
        parameters, value, means = self._normalizer()
        products = [
            sum_rightmost(x * mean, x.dim() - len(self._batch_shape)) for x, mean in zip(parameters, means, strict=True)
        ]
        return value - carrier - sum(products)
