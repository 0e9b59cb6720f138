"""Muon."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar

from weft.errors import OptionError, ValueRangeError
from weft.ops.optimizer import muon_step
from weft.optim._fused import FusedOptimizer, Numbers
from weft.optim._optimizer import Group, Params
from weft.optim._options import require_one, require_that

if TYPE_CHECKING:
    from weft._tensor.tensor import Tensor


class Muon(FusedOptimizer):
    """Momentum whose steps are made nearly orthogonal, for the matrices of hidden layers (Jordan et al., 2024).

    All parameters must have two dims; give the others to another optimizer. `ns_coefficients` and `ns_steps` are those
    of the Newton-Schulz iteration, which runs in bfloat16. `adjust_lr_fn` is "original" (as is None), or
    "match_rms_adamw" for steps of AdamW's size.
    """

    _row = muon_step
    _fresh: ClassVar = {"momentum_buffer": 0.0}
    _counters = ()
    _parts: ClassVar = {"a": ("ns_coefficients", 0), "b": ("ns_coefficients", 1), "c": ("ns_coefficients", 2)}

    def __init__(
        self,
        params: Params,
        lr: float | Tensor = 1e-3,
        weight_decay: float = 0.1,
        momentum: float = 0.95,
        nesterov: bool = True,
        ns_coefficients: tuple[float, float, float] = (3.4445, -4.775, 2.0315),
        eps: float = 1e-7,
        ns_steps: int = 5,
        adjust_lr_fn: str | None = None,
    ) -> None:
        require_one(lr)
        require_that(lr >= 0, f"Learning rate should be >= 0 but is: {lr}")
        require_that(momentum >= 0, f"momentum should be >= 0 but is: {momentum}")
        require_that(weight_decay >= 0, f"weight decay should be >= 0 but is: {weight_decay}")
        is_known = adjust_lr_fn in (None, "original", "match_rms_adamw")
        require_that(is_known, f"Adjust learning rate function {adjust_lr_fn} is not supported")
        super().__init__(
            params,
            {
                "lr": lr,
                "weight_decay": weight_decay,
                "momentum": momentum,
                "nesterov": nesterov,
                "ns_coefficients": ns_coefficients,
                "eps": eps,
                "ns_steps": ns_steps,
                "adjust_lr_fn": adjust_lr_fn,
            },
        )
        for param in (param for group in self.param_groups for param in group["params"]):
            size = param.size()
            require_that(
                len(size) == 2, f"Muon only supports 2D parameters whereas we found a parameter with size: {size}"
            )

    def _update(self, group: Group, params: Sequence[Tensor], numbers: Numbers) -> None:
        if any(param.dtype.is_complex for param in params):
            raise OptionError("Muon does not support complex parameters")
        if group["ns_steps"] >= 100:
            raise ValueRangeError("Number of steps must be less than 100 for computational efficiency")
        if len(group["ns_coefficients"]) != 3:
            raise ValueRangeError("Coefficients must be a tuple of exactly 3 values")
        super()._update(group, params, numbers)
