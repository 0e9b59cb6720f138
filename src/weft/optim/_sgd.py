"""Stochastic gradient descent."""

from __future__ import annotations

from typing import Any

from weft._dispatch import apply
from weft._lazy.infer import ONE, call_of, many
from weft.errors import ValueRangeError
from weft.ops.optimizer import sgd_step
from weft.optim._optimizer import Group, Optimizer, by_device, replace, require, scalars, values, zeros_like


class SGD(Optimizer):
    """Steps against the gradient, or, with momentum, against a decaying sum of gradients.

    `foreach`, `fused` and `differentiable` are kept for PyTorch's state dicts; every step is one program anyway.
    """

    def __init__(
        self, params: Any, lr: Any = 1e-3, momentum: float = 0, dampening: float = 0, weight_decay: float = 0,
        nesterov: bool = False, *, maximize: bool = False, foreach: bool | None = None, differentiable: bool = False,
        fused: bool | None = None,
    ) -> None:  # fmt: skip
        require("learning rate", lr)
        require("momentum value", momentum)
        require("weight_decay value", weight_decay)
        if nesterov and (momentum <= 0 or dampening != 0):
            raise ValueRangeError("Nesterov momentum requires a momentum and zero dampening")
        super().__init__(
            params,
            {
                "lr": lr, "momentum": momentum, "dampening": dampening, "weight_decay": weight_decay,
                "nesterov": nesterov, "maximize": maximize, "foreach": foreach, "differentiable": differentiable,
                "fused": fused,
            },
        )  # fmt: skip

    def _update(self, group: Group, params: list[Any]) -> None:
        state = self.state

        def has_buffer(param: Any) -> bool:
            return state[param].get("momentum_buffer") is not None

        for (old,), together in by_device(params, has_buffer):
            buffers = []
            dampening = group["dampening"]
            if group["momentum"] != 0:
                if not old:  # the first sum is the gradient itself, undamped
                    dampening = 0
                    for param in together:
                        state[param]["momentum_buffer"] = zeros_like(param)
                buffers = [state[param]["momentum_buffer"] for param in together]
            n = many(len(together))
            static = (n, n, many(len(buffers)), ONE, ONE, ONE, ONE, bool(group["nesterov"]), bool(group["maximize"]))
            numbers = scalars(
                lambda: group["lr"],
                lambda: group["momentum"],
                lambda damp=dampening: damp,
                lambda: group["weight_decay"],
            )
            grads = values(param.grad for param in together)
            inputs = (*values(together), *grads, *values(buffers), *numbers)
            replace([*together, *buffers], apply(call_of(sgd_step, static), inputs))
