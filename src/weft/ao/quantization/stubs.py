"""Where tensors are quantized, and where they become floats again: `convert` replaces these modules."""

from __future__ import annotations

from typing import TYPE_CHECKING

from weft._tensor.tensor import Tensor
from weft.nn._module import Module

if TYPE_CHECKING:
    from weft.ao._observing.qconfig import QConfigAny


class _Stub(Module):
    def __init__(self, qconfig: QConfigAny = None) -> None:
        super().__init__()
        if qconfig:
            self.qconfig = qconfig

    def forward(self, x: Tensor) -> Tensor:
        """The input."""
        return x


class QuantStub(_Stub):
    """Returns its input. `prepare` lets it observe, and `convert` makes a `Quantize` of it."""


class DeQuantStub(_Stub):
    """Returns its input. `convert` makes a `DeQuantize` of it."""


class QuantWrapper(Module):
    """A module between the two stubs."""

    def __init__(self, module: Module) -> None:
        super().__init__()
        qconfig = getattr(module, "qconfig", None)
        self.quant = QuantStub(qconfig)
        self.dequant = DeQuantStub(qconfig)
        self.module = module
        self.train(module.training)

    def forward(self, X: Tensor) -> Tensor:
        """What the module returns."""
        return self.dequant(self.module(self.quant(X)))
