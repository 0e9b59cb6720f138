"""Cosine annealing with restarts."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from weft._base.guards import is_a
from weft.errors import ValueRangeError
from weft.optim._optimizer import Optimizer
from weft.optim.lr_scheduler._base import LRScheduler

if TYPE_CHECKING:
    from weft.optim.lr_scheduler._base import Rate


class CosineAnnealingWarmRestarts(LRScheduler):
    """From the initial rate to `eta_min` along half a cosine, again and again (Loshchilov and Hutter, 2017).

    The first period has `T_0` epochs, each later one `T_mult` times as many. `step` also takes fractions of epochs.
    """

    def __init__(
        self, optimizer: Optimizer, T_0: int, T_mult: int = 1, eta_min: float = 0.0, last_epoch: int = -1
    ) -> None:
        if not is_a(T_0, int) or T_0 <= 0:
            raise ValueRangeError(f"Expected positive integer T_0, but got {T_0}")
        if not is_a(T_mult, int) or T_mult < 1:
            raise ValueRangeError(f"Expected integer T_mult >= 1, but got {T_mult}")
        if not is_a(eta_min, float, int):
            raise ValueRangeError(f"Expected float or int eta_min, but got {eta_min} of type {type(eta_min)}")
        self.T_0 = T_0
        self.T_i = T_0
        self.T_mult = T_mult
        self.eta_min = eta_min
        self.T_cur: float = last_epoch
        super().__init__(optimizer, last_epoch)

    def _next_rates(self) -> list[Rate]:
        height = (1 + math.cos(math.pi * self.T_cur / self.T_i)) / 2
        return [self.eta_min + (base - self.eta_min) * height for base in self.base_lrs]

    def step(self, epoch: float | None = None) -> None:
        """Move to the next epoch, or to the given one, which may be a fraction, and set its rates."""
        if epoch is None and self.last_epoch < 0:
            epoch = 0
        if epoch is None:
            epoch = self.last_epoch + 1
            self.T_cur += 1
            if self.T_cur >= self.T_i:
                self.T_cur %= self.T_i
                self.T_i *= self.T_mult
        else:
            self._jump(epoch)
        self.last_epoch = math.floor(epoch)
        self._set(self.get_lr)

    def _jump(self, epoch: float) -> None:
        if epoch < 0:
            raise ValueRangeError(f"Expected non-negative epoch, but got {epoch}")
        if epoch < self.T_0:
            self.T_i, self.T_cur = self.T_0, epoch
        elif self.T_mult == 1:
            self.T_cur = epoch % self.T_0
        else:
            restarts = int(math.log(epoch / self.T_0 * (self.T_mult - 1) + 1, self.T_mult))
            self.T_cur = epoch - self.T_0 * (self.T_mult**restarts - 1) / (self.T_mult - 1)
            self.T_i = self.T_0 * self.T_mult**restarts
