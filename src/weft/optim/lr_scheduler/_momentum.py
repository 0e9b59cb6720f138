"""The base of schedules that move the momentum opposite to the rate."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from weft.errors import ValueRangeError
from weft.optim._optimizer import Group, Optimizer
from weft.optim.lr_scheduler._base import LRScheduler, per_group

if TYPE_CHECKING:
    from weft.optim.lr_scheduler._base import Rate, Rates


class MomentumCycle(LRScheduler):
    """A schedule of rates and, with `cycle_momentum`, of the momentum: the option `momentum`, or else `betas[0]`."""

    optimizer: Optimizer
    cycle_momentum: bool
    use_beta1: bool

    def _start_momenta(self, base: Rates, most: Rates, last_epoch: int) -> tuple[list[Rate], list[Rate]]:
        """Set the largest momentum; returns the smallest and the largest momentum of each group."""
        options = self.optimizer.defaults
        if "momentum" not in options and "betas" not in options:
            raise ValueRangeError("optimizer must support momentum or beta1 with `cycle_momentum` option enabled")
        self.use_beta1 = "betas" in options
        bases = per_group("base_momentum", self.optimizer, base)
        tops = per_group("max_momentum", self.optimizer, most)
        if last_epoch == -1:
            self._set_momenta(tops)
            for group, least, top in zip(self.optimizer.param_groups, bases, tops, strict=True):
                group["max_momentum"] = top
                group["base_momentum"] = least
        return bases, tops

    def _set_momenta(self, momenta: Sequence[Rate]) -> None:
        for group, momentum in zip(self.optimizer.param_groups, momenta, strict=True):
            self._set_momentum(group, momentum)

    def _set_momentum(self, group: Group, momentum: Rate) -> None:
        if self.use_beta1:
            group["betas"] = (momentum, *group["betas"][1:])
        else:
            group["momentum"] = momentum
