"""Where a model would be quantized: before that, as in PyTorch, stubs change nothing."""

from __future__ import annotations

from typing import Any

from weft._tensor.tensor import Tensor
from weft.nn._module import Module


class QuantStub(Module):
    """Returns its input. PyTorch's `convert` would replace it."""

    def __init__(self, qconfig: Any = None) -> None:
        super().__init__()
        if qconfig:
            self.qconfig = qconfig

    def forward(self, x: Tensor) -> Tensor:
        """The input."""
        return x


class DeQuantStub(QuantStub):
    """Returns its input. PyTorch's `convert` would replace it."""


class QuantWrapper(Module):
    """A module between the two stubs."""

    def __init__(self, module: Module) -> None:
        super().__init__()
        self.quant = QuantStub()
        self.dequant = DeQuantStub()
        self.module = module
        self.train(module.training)

    def forward(self, X: Tensor) -> Tensor:
        """What the module returns."""
        return self.dequant(self.module(self.quant(X)))
