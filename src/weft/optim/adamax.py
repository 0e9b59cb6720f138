"""Adamax."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from weft.ops.optimizer_adam import adamax_step
from weft.optim._fused import FusedOptimizer
from weft.optim._optimizer import Params
from weft.optim._options import require_options

if TYPE_CHECKING:
    from weft._tensor.tensor import Tensor


class Adamax(FusedOptimizer):
    """`Adam` with a decaying maximum of gradients in place of the root of the mean of squares (Kingma and Ba, 2015)."""

    _row = adamax_step
    _fresh: ClassVar = {"step": 0.0, "exp_avg": 0.0, "exp_inf": 0.0}

    def __init__(
        self,
        params: Params,
        lr: float | Tensor = 2e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0,
        foreach: bool | None = None,
        *,
        maximize: bool = False,
        differentiable: bool = False,
        capturable: bool = False,
    ) -> None:
        require_options(lr=lr, eps=eps, betas=betas, weight_decay=weight_decay)
        numbers = {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay}
        flags = {"foreach": foreach, "maximize": maximize, "differentiable": differentiable, "capturable": capturable}
        super().__init__(params, {**numbers, **flags})
