"""NAdam."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from weft.ops.optimizer_adam import nadam_step
from weft.optim._fused import FusedOptimizer
from weft.optim._optimizer import Params
from weft.optim._options import require_options

if TYPE_CHECKING:
    from weft._tensor.tensor import Tensor


class NAdam(FusedOptimizer):
    """`Adam` with Nesterov's momentum, which grows towards `betas[0]`; see `momentum_decay` (Dozat, 2016)."""

    _row = nadam_step
    _fresh: ClassVar = {"step": 0.0, "mu_product": 1.0, "exp_avg": 0.0, "exp_avg_sq": 0.0}
    _counters = ("mu_product", "step")

    def __init__(
        self,
        params: Params,
        lr: float | Tensor = 2e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0,
        momentum_decay: float = 4e-3,
        decoupled_weight_decay: bool = False,
        *,
        foreach: bool | None = None,
        maximize: bool = False,
        capturable: bool = False,
        differentiable: bool = False,
    ) -> None:
        require_options(lr=lr, eps=eps, betas=betas, weight_decay=weight_decay, momentum_decay=momentum_decay)
        numbers = {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay, "momentum_decay": momentum_decay}
        flags = {
            "decoupled_weight_decay": decoupled_weight_decay,
            "maximize": maximize,
            "foreach": foreach,
            "capturable": capturable,
            "differentiable": differentiable,
        }
        super().__init__(params, {**numbers, **flags})
