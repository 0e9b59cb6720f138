"""Averaged stochastic gradient descent."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from weft.ops.optimizer import asgd_step
from weft.optim._fused import FusedOptimizer
from weft.optim._optimizer import Group, Params
from weft.optim._options import require_options

if TYPE_CHECKING:
    from weft._tensor.tensor import Tensor
    from weft.optim._fused import Start


class ASGD(FusedOptimizer):
    """Stochastic gradient descent that also averages the parameters (Polyak and Juditsky, 1992).

    The average over the steps after `t0` is `state[param]["ax"]`.
    """

    _row = asgd_step
    _counters = ("eta", "mu", "step")

    def __init__(
        self,
        params: Params,
        lr: float | Tensor = 1e-2,
        lambd: float = 1e-4,
        alpha: float = 0.75,
        t0: float = 1e6,
        weight_decay: float = 0,
        foreach: bool | None = None,
        maximize: bool = False,
        differentiable: bool = False,
        capturable: bool = False,
    ) -> None:
        require_options(lr=lr, weight_decay=weight_decay)
        numbers = {"lr": lr, "lambd": lambd, "alpha": alpha, "t0": t0, "weight_decay": weight_decay}
        flags = {"foreach": foreach, "maximize": maximize, "differentiable": differentiable, "capturable": capturable}
        super().__init__(params, {**numbers, **flags})

    def _starts(self, group: Group, param: Tensor) -> Mapping[str, Start]:
        del param
        return {"step": 0.0, "eta": group["lr"], "mu": 1.0, "ax": 0.0}
