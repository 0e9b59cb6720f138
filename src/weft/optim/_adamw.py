"""Adam, and Adam with decoupled weight decay."""

from __future__ import annotations

from typing import Any

from weft._base.dtype import float32
from weft._dispatch import apply
from weft._lazy.infer import ONE, call_of, many
from weft._lazy.runtime import new_array
from weft._lazy.value import Value, aval_of
from weft._tensor.tensor import wrap
from weft.ops.optimizer import adam_step
from weft.optim._optimizer import Group, Optimizer, by_device, replace, require, scalars, values, zeros_like


class Adam(Optimizer):
    """Steps along the mean of gradients, divided by the root of the mean of their squares (Kingma and Ba, 2015).

    `weight_decay` is a penalty in the loss, unless decoupled. `amsgrad` divides by the largest root so far. `foreach`,
    `fused`, `capturable` and `differentiable` are kept for PyTorch's state dicts; every step is one program anyway.
    """

    def __init__(
        self, params: Any, lr: Any = 1e-3, betas: tuple[float, float] = (0.9, 0.999), eps: float = 1e-8,
        weight_decay: float = 0, amsgrad: bool = False, *, foreach: bool | None = None, maximize: bool = False,
        capturable: bool = False, differentiable: bool = False, fused: bool | None = None,
        decoupled_weight_decay: bool = False,
    ) -> None:  # fmt: skip
        require("learning rate", lr)
        require("epsilon value", eps)
        for at, beta in enumerate(betas):
            require(f"beta parameter at index {at}", beta, 0.0, 1.0)
        require("weight_decay value", weight_decay)
        super().__init__(
            params,
            {
                "lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay, "amsgrad": amsgrad,
                "maximize": maximize, "foreach": foreach, "capturable": capturable, "differentiable": differentiable,
                "fused": fused, "decoupled_weight_decay": decoupled_weight_decay,
            },
        )  # fmt: skip

    def _start(self, param: Any, amsgrad: bool, age: Any) -> None:
        """The state of a parameter before its first step; those that start together share one age."""
        state = self.state[param]
        if "step" not in state:
            state["step"] = wrap(age)
            state["exp_avg"] = zeros_like(param)
            state["exp_avg_sq"] = zeros_like(param)
        if amsgrad and "max_exp_avg_sq" not in state:
            state["max_exp_avg_sq"] = zeros_like(param)

    def _update(self, group: Group, params: list[Any]) -> None:
        amsgrad = bool(group["amsgrad"])
        for _, together in by_device(params):
            aval = aval_of((), float32, device=together[0].device)
            age = Value(aval, new_array(aval, 0))
            for param in together:
                self._start(param, amsgrad, age)
            self._update_together(group, together, amsgrad)

    def _update_together(self, group: Group, params: list[Any], amsgrad: bool) -> None:
        states = [self.state[param] for param in params]
        means = [state["exp_avg"] for state in states]
        squares = [state["exp_avg_sq"] for state in states]
        peaks = [state["max_exp_avg_sq"] for state in states] if amsgrad else []
        counts = values(state["step"] for state in states)
        distinct = {count: at for at, count in enumerate(dict.fromkeys(counts))}
        step_of = tuple([distinct[count] for count in counts])
        n = many(len(params))
        static = (
            n, n, n, n, many(len(peaks)), many(len(distinct)), ONE, ONE, ONE, ONE, ONE,
            bool(group["decoupled_weight_decay"]), bool(group["maximize"]), step_of,
        )  # fmt: skip
        numbers = scalars(
            lambda: group["lr"], lambda: group["betas"][0], lambda: group["betas"][1], lambda: group["eps"],
            lambda: group["weight_decay"],
        )  # fmt: skip
        grads = values(param.grad for param in params)
        moments = [*means, *squares, *peaks]
        new = apply(
            call_of(adam_step, static),
            (*values(params), *grads, *values(moments), *distinct, *numbers),
        )
        replace([*params, *moments], new)
        new_counts = new[-len(distinct) :]
        replace([state["step"] for state in states], [new_counts[at] for at in step_of])


class AdamW(Adam):
    """`Adam` whose weight decay shrinks the parameters themselves (Loshchilov and Hutter, 2019)."""

    def __init__(
        self, params: Any, lr: Any = 1e-3, betas: tuple[float, float] = (0.9, 0.999), eps: float = 1e-8,
        weight_decay: float = 1e-2, amsgrad: bool = False, *, maximize: bool = False, foreach: bool | None = None,
        capturable: bool = False, differentiable: bool = False, fused: bool | None = None,
    ) -> None:  # fmt: skip
        super().__init__(
            params, lr, betas, eps, weight_decay, amsgrad, foreach=foreach, maximize=maximize, capturable=capturable,
            differentiable=differentiable, fused=fused, decoupled_weight_decay=True,
        )  # fmt: skip
