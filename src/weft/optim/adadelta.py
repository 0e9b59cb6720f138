"""Adadelta."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, ClassVar

from weft.ops.optimizer import adadelta_step
from weft.optim._fused import FusedOptimizer
from weft.optim._optimizer import Params
from weft.optim._options import require, require_options

if TYPE_CHECKING:
    from weft._tensor.tensor import Tensor


class Adadelta(FusedOptimizer):
    """Gradients times the ratio of the root mean squares of past steps and of past gradients (Zeiler, 2012)."""

    _row = adadelta_step
    _fresh: ClassVar = {"step": 0.0, "square_avg": 0.0, "acc_delta": 0.0}

    def __init__(
        self,
        params: Params,
        lr: float | Tensor = 1.0,
        rho: float = 0.9,
        eps: float = 1e-6,
        weight_decay: float = 0,
        foreach: bool | None = None,
        *,
        capturable: bool = False,
        maximize: bool = False,
        differentiable: bool = False,
    ) -> None:
        require_options(lr=lr)
        require("rho value", rho, 0.0, math.nextafter(1.0, 2.0))  # 1 is allowed
        require_options(eps=eps, weight_decay=weight_decay)
        numbers = {"lr": lr, "rho": rho, "eps": eps, "weight_decay": weight_decay}
        flags = {"maximize": maximize, "capturable": capturable, "foreach": foreach, "differentiable": differentiable}
        super().__init__(params, {**numbers, **flags})
