"""Adagrad."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from weft.ops.optimizer import adagrad_step
from weft.optim._fused import FusedOptimizer
from weft.optim._optimizer import Group, Params
from weft.optim._options import require_options

if TYPE_CHECKING:
    from weft._tensor.tensor import Tensor
    from weft.optim._fused import Start


class Adagrad(FusedOptimizer):
    """Gradients divided by the root of the sum of all their squares (Duchi, Hazan and Singer, 2011).

    As in PyTorch, the constructor creates the state.
    """

    _row = adagrad_step

    def __init__(
        self,
        params: Params,
        lr: float | Tensor = 1e-2,
        lr_decay: float = 0,
        weight_decay: float = 0,
        initial_accumulator_value: float = 0,
        eps: float = 1e-10,
        foreach: bool | None = None,
        *,
        maximize: bool = False,
        differentiable: bool = False,
        fused: bool | None = None,
    ) -> None:
        require_options(
            lr=lr,
            lr_decay=lr_decay,
            weight_decay=weight_decay,
            initial_accumulator_value=initial_accumulator_value,
            eps=eps,
        )
        numbers = {
            "lr": lr,
            "lr_decay": lr_decay,
            "eps": eps,
            "weight_decay": weight_decay,
            "initial_accumulator_value": initial_accumulator_value,
        }
        flags = {"foreach": foreach, "maximize": maximize, "differentiable": differentiable, "fused": fused}
        super().__init__(params, {**numbers, **flags})
        # As in PyTorch, whose Adagrad has its state, with the initial accumulator, before the first step.
        for group in self.param_groups:
            self._begin(group, group["params"])

    def _starts(self, group: Group, param: Tensor) -> Mapping[str, Start]:
        del group, param
        return {"step": 0.0, "sum": self.defaults["initial_accumulator_value"]}
