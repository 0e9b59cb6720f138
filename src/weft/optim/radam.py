"""RAdam."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from weft.ops.optimizer_adam import radam_step
from weft.optim._fused import FusedOptimizer
from weft.optim._optimizer import Params
from weft.optim._options import require_options

if TYPE_CHECKING:
    from weft._tensor.tensor import Tensor


class RAdam(FusedOptimizer):
    """`Adam` with an adaptive rate only once the variance of that rate is tractable (Liu et al., 2020)."""

    _row = radam_step
    _fresh: ClassVar = {"step": 0.0, "exp_avg": 0.0, "exp_avg_sq": 0.0}

    def __init__(
        self,
        params: Params,
        lr: float | Tensor = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0,
        decoupled_weight_decay: bool = False,
        *,
        foreach: bool | None = None,
        maximize: bool = False,
        capturable: bool = False,
        differentiable: bool = False,
    ) -> None:
        require_options(lr=lr, eps=eps, betas=betas, weight_decay=weight_decay)
        numbers = {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay}
        flags = {
            "maximize": maximize,
            "foreach": foreach,
            "capturable": capturable,
            "decoupled_weight_decay": decoupled_weight_decay,
            "differentiable": differentiable,
        }
        super().__init__(params, {**numbers, **flags})
