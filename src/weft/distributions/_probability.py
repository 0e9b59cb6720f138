"""What distributions have in common that take either probabilities or their logits."""

from __future__ import annotations

from weft._base.size import Size
from weft._tensor.tensor import Tensor
from weft.distributions.distribution import Distribution
from weft.distributions.utils import broadcast_all, lazy_property, logits_to_probs, probs_to_logits
from weft.errors import ValueRangeError


def require_one(probs: Tensor | float | None, logits: Tensor | float | None) -> None:
    """Raise `ValueError` unless exactly one of the two is given."""
    if (probs is None) == (logits is None):
        raise ValueRangeError("Either `probs` or `logits` must be specified, but not both.")


class OddsDistribution(Distribution):
    """A distribution with the probability of an event, `probs`, or its log odds, `logits`.

    The one that is not given is computed when it is needed.
    """

    def _take(self, probs: Tensor | float | None, logits: Tensor | float | None, *others: object) -> tuple[Tensor, ...]:
        """Keep the one that is given, broadcast with other parameters, which are returned."""
        require_one(probs, logits)
        *broadcast, value = broadcast_all(*others, logits if probs is None else probs)
        setattr(self, "logits" if probs is None else "probs", value)
        return tuple(x.type_as(value) for x in broadcast)

    @lazy_property
    def logits(self) -> Tensor:
        return probs_to_logits(self.probs, is_binary=True)

    @lazy_property
    def probs(self) -> Tensor:
        return logits_to_probs(self.logits, is_binary=True)

    @property
    def _param(self) -> Tensor:
        return self.logits if "logits" in self.__dict__ else self.probs

    @property
    def param_shape(self) -> Size:
        """The shape of the probabilities."""
        return self._param.size()
