"""A layer with weights and the batch normalisation after it, trained as the one layer that they will become."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self

from weft._base.types import AnyCallable
from weft._tensor.codegen import op
from weft._tensor.tensor import Tensor
from weft.ao.nn.intrinsic.modules.fused import FusedModule
from weft.nn import init
from weft.nn._lookup import AnyModule

if TYPE_CHECKING:
    from weft.nn._module import Module


class WithNorm(FusedModule):
    """Mixed in before a float layer: its weight is scaled as by the running statistics, rounded, and scaled back.

    `bn` is the normalisation. `_linear(input, weight)` is the layer without a bias.
    """

    bn: Any
    freeze_bn: bool
    training: bool

    def _linear(self, input: Tensor, weight: Tensor) -> Tensor:
        raise NotImplementedError

    def _set_norm(self, norm: Module, freeze_bn: bool) -> None:
        self.freeze_bn = freeze_bn if self.training else True
        self.bn = norm
        self.reset_bn_parameters()
        if self.freeze_bn:
            self.freeze_bn_stats()
        else:
            self.update_bn_stats()

    def reset_running_stats(self) -> None:
        """Set the statistics to those of numbers with mean 0 and variance 1."""
        self.bn.reset_running_stats()

    def reset_bn_parameters(self) -> None:
        """Draw the normalisation's parameters."""
        self.bn.reset_running_stats()
        init.uniform_(self.bn.weight)
        init.zeros_(self.bn.bias)

    def update_bn_stats(self) -> Self:
        """Normalise by the statistics of each batch, and let them update the running ones, in training."""
        self.freeze_bn = False
        self.bn.training = True
        return self

    def freeze_bn_stats(self) -> Self:
        """Normalise by the running statistics from now on, also in training."""
        self.freeze_bn = True
        self.bn.training = False
        return self

    def fold_norm(self, fuse: AnyCallable) -> None:
        """Replace weight and bias by those that `fuse` computes from them and the normalisation."""
        own: AnyModule = self
        norm = self.bn
        statistics = (norm.running_mean, norm.running_var, norm.eps, norm.weight, norm.bias)
        own.weight, own.bias = fuse(own.weight, own.bias, *statistics)

    def _normalised(self, input: Tensor) -> Tensor:
        own: AnyModule = self
        factor = self.bn.weight / op.sqrt(self.bn.running_var + self.bn.eps)
        per_row = (-1, *(1,) * (own.weight.ndim - 1))
        weight = own.weight_fake_quant(own.weight * op.reshape(factor, per_row))
        y = self._linear(input, weight)
        per_channel = (1, -1, *(1,) * (own.weight.ndim - 2))
        y = y / op.reshape(factor, per_channel)
        return self.bn(y if own.bias is None else y + op.reshape(own.bias, per_channel))

    def forward(self, input: Tensor) -> Tensor:
        """The results, normalised."""
        return self._normalised(input)

    def train(self, mode: bool = True) -> Self:
        """Set the mode; a frozen normalisation keeps its own."""
        self.training = mode
        if not self.freeze_bn:
            for module in self.children():
                module.train(mode)
        return self
