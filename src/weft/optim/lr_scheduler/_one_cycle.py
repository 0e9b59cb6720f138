"""One cycle of rates over a whole training run."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Literal

from weft._base.types import Arg
from weft.errors import ValueRangeError
from weft.optim._optimizer import Optimizer
from weft.optim.lr_scheduler._base import per_group, require_optimizer
from weft.optim.lr_scheduler._momentum import MomentumCycle

if TYPE_CHECKING:
    from weft.optim.lr_scheduler._base import Rate


class OneCycleLR(MomentumCycle):
    """Up to `max_lr`, and down to nearly 0, once, with the momentum in the opposite direction (Smith, 2019).

    The rate starts at `max_lr / div_factor`, and ends at that divided by `final_div_factor`; it rises for `pct_start`
    of the steps. With `three_phase` it first falls to the initial rate as fast as it rose. Call `step` once per batch;
    there are `total_steps`, or else `epochs * steps_per_epoch`.
    """

    def __init__(
        self,
        optimizer: Optimizer,
        max_lr: float | list[float],
        total_steps: int | None = None,
        epochs: int | None = None,
        steps_per_epoch: int | None = None,
        pct_start: float = 0.3,
        anneal_strategy: Literal["cos", "linear"] = "cos",
        cycle_momentum: bool = True,
        base_momentum: float | list[float] = 0.85,
        max_momentum: float | list[float] = 0.95,
        div_factor: float = 25.0,
        final_div_factor: float = 1e4,
        three_phase: bool = False,
        last_epoch: int = -1,
    ) -> None:
        require_optimizer(optimizer)
        self.optimizer = optimizer
        self.total_steps = _total(total_steps, epochs, steps_per_epoch)
        self._schedule_phases = _phases(self.total_steps, pct_start, three_phase)
        if not (isinstance(pct_start, float) and 0 <= pct_start <= 1):
            raise ValueRangeError(f"Expected float between 0 and 1 pct_start, but got {pct_start}")
        if anneal_strategy not in ("cos", "linear"):
            raise ValueRangeError(f"anneal_strategy must be one of 'cos' or 'linear', instead got {anneal_strategy}")
        self._anneal_func_type = anneal_strategy
        max_lrs = per_group("max_lr", optimizer, max_lr)
        if last_epoch == -1:
            for group, most in zip(optimizer.param_groups, max_lrs, strict=True):
                group["initial_lr"] = most / div_factor
                group["max_lr"] = most
                group["min_lr"] = group["initial_lr"] / final_div_factor
        self.cycle_momentum = cycle_momentum
        if cycle_momentum:
            self._start_momenta(base_momentum, max_momentum, last_epoch)
        super().__init__(optimizer, last_epoch)

    def _between(self, start: float, end: float, share: float) -> float:
        if self._anneal_func_type == "linear":
            return (end - start) * share + start
        return end + (start - end) / 2.0 * (math.cos(math.pi * share) + 1)

    def _next_rates(self) -> list[Rate]:
        step = self.last_epoch
        if step > self.total_steps:
            raise ValueRangeError(
                f"Tried to step {step} times. The specified number of total steps is {self.total_steps}"
            )
        begun, phase = 0.0, self._schedule_phases[0]
        for following in self._schedule_phases[1:]:
            if step <= phase["end_step"]:
                break
            begun, phase = phase["end_step"], following
        share = (step - begun) / (phase["end_step"] - begun)
        groups = self.optimizer.param_groups
        if self.cycle_momentum:
            ends = phase["start_momentum"], phase["end_momentum"]
            self._set_momenta([self._between(group[ends[0]], group[ends[1]], share) for group in groups])
        return [self._between(group[phase["start_lr"]], group[phase["end_lr"]], share) for group in groups]


def _total(total_steps: int | None, epochs: int | None, steps_per_epoch: int | None) -> int:
    factors = {"total_steps": total_steps}
    if total_steps is None:
        if epochs is None or steps_per_epoch is None:
            raise ValueRangeError("You must define either total_steps OR (epochs AND steps_per_epoch)")
        factors = {"epochs": epochs, "steps_per_epoch": steps_per_epoch}
    for name, count in factors.items():
        if not isinstance(count, int) or count <= 0:
            raise ValueRangeError(f"Expected positive integer {name}, but got {count}")
    return math.prod(count for count in factors.values() if count is not None)


def _phases(total: int, up: float, three: bool) -> list[dict[str, Arg]]:
    """The end of each phase, and the group's options between which it interpolates."""
    ends = [("initial_lr", "max_momentum"), ("max_lr", "base_momentum")]
    ends += [("initial_lr", "max_momentum")] if three else []
    ends += [("min_lr", "max_momentum")]
    steps = [float(at * up * total) - at for at in range(1, len(ends) - 1)] + [total - 1]
    return [
        {
            "end_step": step,
            "start_lr": start[0],
            "end_lr": end[0],
            "start_momentum": start[1],
            "end_momentum": end[1],
        }
        for step, start, end in zip(steps, ends, ends[1:], strict=False)
    ]
