"""Cyclic learning rates."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Literal

from weft._base.types import SavedState
from weft.errors import ValueRangeError
from weft.optim._optimizer import Optimizer
from weft.optim.lr_scheduler._base import attributes_of, per_group, require_optimizer, set_rate
from weft.optim.lr_scheduler._momentum import MomentumCycle

if TYPE_CHECKING:
    from weft.optim.lr_scheduler._base import Rate


class CyclicLR(MomentumCycle):
    """From `base_lr` to `max_lr` and back, linearly, again and again; call `step` once per batch (Smith, 2017).

    `mode` gives the amplitude of the cycles: "triangular" keeps it, "triangular2" halves it every cycle, "exp_range"
    multiplies it by `gamma` every step. `scale_fn`, if given, is a factor of the amplitude instead: a function of the
    cycle, or of the step if `scale_mode` is "iterations".
    """

    def __init__(
        self,
        optimizer: Optimizer,
        base_lr: float | list[float],
        max_lr: float | list[float],
        step_size_up: int = 2000,
        step_size_down: int | None = None,
        mode: Literal["triangular", "triangular2", "exp_range"] = "triangular",
        gamma: float = 1.0,
        scale_fn: Callable[[float], float] | None = None,
        scale_mode: Literal["cycle", "iterations"] = "cycle",
        cycle_momentum: bool = True,
        base_momentum: float | list[float] = 0.8,
        max_momentum: float | list[float] = 0.9,
        last_epoch: int = -1,
    ) -> None:
        require_optimizer(optimizer)
        self.optimizer = optimizer
        base_lrs = per_group("base_lr", optimizer, base_lr)
        if last_epoch == -1:
            for rate, group in zip(base_lrs, optimizer.param_groups, strict=True):
                set_rate(group, rate)
        self.max_lrs = per_group("max_lr", optimizer, max_lr)
        up = float(step_size_up)
        self.total_size = up + (up if step_size_down is None else float(step_size_down))
        self.step_ratio = up / self.total_size
        if mode not in ("triangular", "triangular2", "exp_range") and scale_fn is None:
            raise ValueRangeError("mode is invalid and scale_fn is None")
        self.mode = mode
        self.gamma = gamma
        self._scale_fn_custom = scale_fn
        self.scale_mode: Literal["cycle", "iterations"] = scale_mode
        self._init_scale_fn()
        self.cycle_momentum = cycle_momentum
        if cycle_momentum:
            self.base_momentums, self.max_momentums = self._start_momenta(base_momentum, max_momentum, last_epoch)
        super().__init__(optimizer, last_epoch)
        self.base_lrs = base_lrs

    def _init_scale_fn(self) -> None:
        if self._scale_fn_custom is not None:
            return
        self.scale_mode = "iterations" if self.mode == "exp_range" else "cycle"
        self._scale_fn_ref: Callable[[float], float] = {
            "triangular": self._triangular_scale_fn,
            "triangular2": self._triangular2_scale_fn,
            "exp_range": partial(self._exp_range_scale_fn, self.gamma),
        }[self.mode]

    def scale_fn(self, x: float) -> float:
        """The factor of the amplitude in cycle `x`, or at step `x`."""
        return self._scale_fn_ref(x) if self._scale_fn_custom is None else self._scale_fn_custom(x)

    # Static and of these names as in PyTorch: a pickled schedule refers to them.

    @staticmethod
    def _triangular_scale_fn(x: float) -> float:
        del x
        return 1.0

    @staticmethod
    def _triangular2_scale_fn(x: float) -> float:
        return 1 / 2.0 ** (x - 1)

    @staticmethod
    def _exp_range_scale_fn(gamma: float, x: float) -> float:
        return gamma**x

    def _next_rates(self) -> list[Rate]:
        cycles = self.last_epoch / self.total_size
        cycle = math.floor(1 + cycles)
        x = 1.0 + cycles - cycle
        height = x / self.step_ratio if x <= self.step_ratio else (x - 1) / (self.step_ratio - 1)
        height *= self.scale_fn(cycle if self.scale_mode == "cycle" else self.last_epoch)
        if self.cycle_momentum:
            spans = zip(self.base_momentums, self.max_momentums, strict=True)
            self._set_momenta([most - (most - least) * height for least, most in spans])
        return [base + (most - base) * height for base, most in zip(self.base_lrs, self.max_lrs, strict=True)]

    def state_dict(self) -> SavedState:
        """The state, without `scale_fn` if that is a function, or with its attributes if it is an object."""
        state = super().state_dict()
        state.pop("_scale_fn_ref", None)
        scale = state.pop("_scale_fn_custom")
        return {**state, "_scale_fn_custom": None if scale is None else attributes_of(scale)}

    def load_state_dict(self, state_dict: SavedState) -> None:
        """Load a state dict; `scale_fn` stays."""
        rest = dict(state_dict)
        attributes = rest.pop("_scale_fn_custom")
        if attributes is not None:
            self._scale_fn_custom.__dict__.update(attributes)
        super().load_state_dict(rest)
        self._init_scale_fn()
