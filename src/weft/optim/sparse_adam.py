"""Adam for gradients with few rows."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from weft.errors import ValueRangeError
from weft.ops.optimizer_adam import sparse_adam_step
from weft.optim._fused import FusedOptimizer
from weft.optim._optimizer import Params
from weft.optim._options import require, require_options

if TYPE_CHECKING:
    from weft._tensor.tensor import Tensor


class SparseAdam(FusedOptimizer):
    """`Adam` that skips the rows of a parameter, and their state, whose gradient is zero.

    Gradients are dense here: a row (along dim 0) is skipped if its gradient is all zero.
    """

    _row = sparse_adam_step
    _fresh: ClassVar = {"step": 0.0, "exp_avg": 0.0, "exp_avg_sq": 0.0}

    def __init__(
        self,
        params: Params,
        lr: float | Tensor = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        maximize: bool = False,
    ) -> None:
        require("learning rate", lr, _ABOVE_ZERO)
        require("epsilon value", eps, _ABOVE_ZERO)
        require_options(betas=betas)
        super().__init__(params, {"lr": lr, "betas": betas, "eps": eps, "maximize": maximize})
        groups = enumerate(self.param_groups)
        indices = [[i, j] for i, group in groups for j, p in enumerate(group["params"]) if p.dtype.is_complex]
        if indices:
            raise ValueRangeError(
                f"Complex params at indices {indices}: SparseAdam does not support complex parameters"
            )


_ABOVE_ZERO = 5e-324
