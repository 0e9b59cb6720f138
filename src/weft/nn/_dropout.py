"""Dropout."""

from __future__ import annotations

from typing import TYPE_CHECKING

from weft._tensor.tensor import Tensor
from weft.errors import ValueRangeError
from weft.nn import functional as F
from weft.nn._module import Module

if TYPE_CHECKING:
    from weft.nn._layer import LayerClass


class _DropoutNd(Module):
    """The base of all dropout layers; in evaluation they return their input."""

    _function: str

    def __init__(self, p: float = 0.5, inplace: bool = False) -> None:
        super().__init__()
        if not 0 <= p <= 1:
            raise ValueRangeError(f"dropout probability has to be between 0 and 1, but got {p}")
        self.p = p
        self.inplace = inplace

    def forward(self, input: Tensor) -> Tensor:
        """The input after dropout, in the same shape."""
        return getattr(F, self._function)(input, self.p, self.training, self.inplace)

    def extra_repr(self) -> str:
        """The constructor's arguments."""
        return f"p={self.p}, inplace={self.inplace}"


def _dropout(name: str, function: str, doc: str) -> LayerClass:
    return type(name, (_DropoutNd,), {"_function": function, "__doc__": doc, "__module__": __name__})


Dropout = _dropout("Dropout", "dropout", "Elements set to 0 with probability `p`, the others divided by 1 - p.")
Dropout1d = _dropout("Dropout1d", "dropout1d", "`Dropout` of whole channels of (batch, channels, length).")
Dropout2d = _dropout("Dropout2d", "dropout2d", "`Dropout` of whole channels of (batch, channels, height, width).")
Dropout3d = _dropout("Dropout3d", "dropout3d", "`Dropout` of whole channels with three spatial dims.")
AlphaDropout = _dropout("AlphaDropout", "alpha_dropout", "`Dropout` that keeps mean and variance behind `SELU`.")
FeatureAlphaDropout = _dropout("FeatureAlphaDropout", "feature_alpha_dropout", "`AlphaDropout` of whole channels.")
