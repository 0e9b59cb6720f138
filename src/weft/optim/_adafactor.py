"""Adafactor."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, ClassVar

from weft.errors import OptionError
from weft.ops.optimizer import adafactor_step
from weft.optim._fused import FusedOptimizer, Numbers
from weft.optim._optimizer import Group, Params
from weft.optim._options import require_one, require_that

if TYPE_CHECKING:
    from weft._tensor.tensor import Tensor
    from weft.optim._fused import Start


class Adafactor(FusedOptimizer):
    """Adam's steps with a state of only the sums over rows and columns of a parameter (Shazeer and Stern, 2018).

    `lr` bounds the length of a step relative to the parameter's root mean square, and is the rate of the decoupled
    weight decay. `eps` has the lower bounds of the mean squared gradient's root (None: the type's precision) and of the
    parameter's root mean square.
    """

    _row = adafactor_step
    _parts: ClassVar = {"eps1": ("eps", 0), "eps2": ("eps", 1)}

    def __init__(
        self,
        params: Params,
        lr: float | Tensor = 1e-2,
        beta2_decay: float = -0.8,
        eps: tuple[float | None, float] = (None, 1e-3),
        d: float = 1.0,
        weight_decay: float = 0.0,
        *,
        foreach: bool | None = None,
        maximize: bool = False,
    ) -> None:
        require_one(lr)
        require_that(lr >= 0, f"Learning rate should be >= 0 but is: {lr}")
        require_that(beta2_decay <= 0, f"beta2_decay should be <= 0 but is: {beta2_decay}")
        require_that(eps[0] is None or eps[0] >= 0, f"epsilon1 should be >= 0 but is: {eps[0]}")
        require_that(eps[1] >= 0, f"epsilon2 should be >= 0 but is: {eps[1]}")
        require_that(d >= 1, f"Clipping threshold d should be >= 1 but is: {d}")
        require_that(weight_decay >= 0, f"weight_decay should be >= 0 but is: {weight_decay}")
        numbers = {"lr": lr, "beta2_decay": beta2_decay, "eps": eps, "d": d, "weight_decay": weight_decay}
        flags = {"foreach": foreach, "maximize": maximize}
        super().__init__(params, {**numbers, **flags})

    def _kind(self, param: Tensor) -> bool:
        return param.ndim > 1

    def _starts(self, group: Group, param: Tensor) -> Mapping[str, Start]:
        del group
        if not self._kind(param):
            return {"step": 0.0, "variance": 0.0}
        *batch, rows, columns = param.shape
        return {"step": 0.0, "row_var": (0.0, (*batch, rows, 1)), "col_var": (0.0, (*batch, 1, columns))}

    def _update(self, group: Group, params: Sequence[Tensor], numbers: Numbers) -> None:
        if any(param.dtype.is_complex for param in params):
            raise OptionError("Adafactor does not support complex parameters")
        super()._update(group, params, numbers)
