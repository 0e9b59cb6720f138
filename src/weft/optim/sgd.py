"""Stochastic gradient descent."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from weft._tensor.scalar import number
from weft.errors import ValueRangeError
from weft.ops.optimizer import sgd_step
from weft.optim._fused import FusedOptimizer, Numbers
from weft.optim._optimizer import Group, Params
from weft.optim._options import require_options

if TYPE_CHECKING:
    from weft._tensor.tensor import Tensor
    from weft.optim._fused import Start


class SGD(FusedOptimizer):
    """Steps against the gradient or, with momentum, against a decaying sum of gradients.

    `foreach` and `fused` are kept only for PyTorch's state dicts: every step is one program anyway. With
    `differentiable`, steps are recorded on the tape, and parameters must not be leaves.
    """

    _row = sgd_step
    _counters = ()

    def __init__(
        self,
        params: Params,
        lr: float | Tensor = 1e-3,
        momentum: float = 0,
        dampening: float = 0,
        weight_decay: float = 0,
        nesterov: bool = False,
        *,
        maximize: bool = False,
        foreach: bool | None = None,
        differentiable: bool = False,
        fused: bool | None = None,
    ) -> None:
        require_options(lr=lr, momentum=momentum, weight_decay=weight_decay)
        if nesterov and (momentum <= 0 or dampening != 0):
            raise ValueRangeError("Nesterov momentum requires a momentum and zero dampening")
        numbers = {
            "lr": lr,
            "momentum": momentum,
            "dampening": dampening,
            "weight_decay": weight_decay,
            "nesterov": nesterov,
        }
        flags = {"maximize": maximize, "foreach": foreach, "differentiable": differentiable, "fused": fused}
        super().__init__(params, {**numbers, **flags})

    def _kind(self, param: Tensor) -> bool:
        state = self.state.get(param)
        return bool(state) and state.get("momentum_buffer") is not None

    def _starts(self, group: Group, param: Tensor) -> Mapping[str, Start]:
        del param
        return {"momentum_buffer": 0.0} if group["momentum"] != 0 else {}

    def _update(self, group: Group, params: Sequence[Tensor], numbers: Numbers) -> None:
        if not self._kind(params[0]):
            if group["momentum"] != 0 and group["dampening"] != 0 and any(map(float, self._found_inf)):
                return  # a skipped step creates no buffers, since the first gradient in a buffer is not dampened
            numbers = {**numbers, "dampening": number(0.0)}  # the first buffer is the gradient itself
        super()._update(group, params, numbers)
