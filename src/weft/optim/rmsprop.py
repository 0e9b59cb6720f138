"""RMSprop."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from weft.ops.optimizer import rmsprop_step
from weft.optim._fused import FusedOptimizer
from weft.optim._optimizer import Group, Params
from weft.optim._options import require_options

if TYPE_CHECKING:
    from weft._tensor.tensor import Tensor
    from weft.optim._fused import Start


class RMSprop(FusedOptimizer):
    """Gradients divided by the root of the running mean of their squares (Tieleman and Hinton, 2012).

    `centered` divides by the estimated standard deviation instead (Graves, 2013).
    """

    _row = rmsprop_step

    def __init__(
        self,
        params: Params,
        lr: float | Tensor = 1e-2,
        alpha: float = 0.99,
        eps: float = 1e-8,
        weight_decay: float = 0,
        momentum: float = 0,
        centered: bool = False,
        capturable: bool = False,
        foreach: bool | None = None,
        maximize: bool = False,
        differentiable: bool = False,
    ) -> None:
        require_options(lr=lr, eps=eps, momentum=momentum, weight_decay=weight_decay, alpha=alpha)
        numbers = {
            "lr": lr,
            "momentum": momentum,
            "alpha": alpha,
            "eps": eps,
            "centered": centered,
            "weight_decay": weight_decay,
        }
        flags = {"capturable": capturable, "foreach": foreach, "maximize": maximize, "differentiable": differentiable}
        super().__init__(params, {**numbers, **flags})

    def _starts(self, group: Group, param: Tensor) -> Mapping[str, Start]:
        del param
        names = ["step", "square_avg"]
        names += ["momentum_buffer"] if group["momentum"] > 0 else []
        names += ["grad_avg"] if group["centered"] else []
        return dict.fromkeys(names, 0.0)
