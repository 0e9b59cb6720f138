"""Rprop."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, ClassVar

from weft.errors import ValueRangeError
from weft.ops.optimizer import rprop_step
from weft.optim._fused import FusedOptimizer
from weft.optim._optimizer import Group, Params
from weft.optim._options import require_options

if TYPE_CHECKING:
    from weft._tensor.tensor import Tensor
    from weft.optim._fused import Start


class Rprop(FusedOptimizer):
    """Steps that use only the sign of the gradient: longer while it stays, shorter when it changes.

    Riedmiller and Braun, 1993. `lr` is the length of the first step, and `step_sizes` are the bounds of all. It needs
    the gradient of the whole data set, not of random batches.
    """

    _row = rprop_step
    _parts: ClassVar = {
        "eta_minus": ("etas", 0),
        "eta_plus": ("etas", 1),
        "smallest": ("step_sizes", 0),
        "largest": ("step_sizes", 1),
    }

    def __init__(
        self,
        params: Params,
        lr: float | Tensor = 1e-2,
        etas: tuple[float, float] = (0.5, 1.2),
        step_sizes: tuple[float, float] = (1e-6, 50),
        *,
        capturable: bool = False,
        foreach: bool | None = None,
        maximize: bool = False,
        differentiable: bool = False,
    ) -> None:
        require_options(lr=lr)
        if not 0.0 < etas[0] < 1.0 < etas[1]:
            raise ValueRangeError(f"Invalid eta values: {etas[0]}, {etas[1]}")
        numbers = {"lr": lr, "etas": etas, "step_sizes": step_sizes}
        flags = {"foreach": foreach, "maximize": maximize, "differentiable": differentiable, "capturable": capturable}
        super().__init__(params, {**numbers, **flags})

    def _starts(self, group: Group, param: Tensor) -> Mapping[str, Start]:
        del param
        return {"step": 0.0, "prev": 0.0, "step_size": group["lr"]}
