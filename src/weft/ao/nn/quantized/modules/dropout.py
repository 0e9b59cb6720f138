"""Dropout in a quantized model, which is used for evaluation only."""

from __future__ import annotations

from typing import TYPE_CHECKING

from weft._tensor.tensor import Tensor
from weft.nn._dropout import Dropout as FloatDropout

if TYPE_CHECKING:
    from weft.nn._module import Module


class Dropout(FloatDropout):
    """Returns its input."""

    def _get_name(self) -> str:
        return "QuantizedDropout"

    def forward(self, input: Tensor) -> Tensor:
        """The input."""
        return input

    @classmethod
    def from_float(cls, mod: Module, use_precomputed_fake_quant: bool = False) -> Module:
        """The quantized form of a `Dropout`."""
        del use_precomputed_fake_quant
        return cls(mod.p, mod.inplace)
