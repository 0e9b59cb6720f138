"""A schedule that depends on a metric."""

from __future__ import annotations

import math
import warnings
from typing import Any, Literal, SupportsFloat

from weft.errors import OptionError, ValueRangeError
from weft.optim._optimizer import Optimizer
from weft.optim.lr_scheduler._base import EPOCH_WARNING, LRScheduler, require_optimizer, set_rate


class ReduceLROnPlateau(LRScheduler):
    """Multiplies the rate by `factor` if a metric has not improved for more than `patience` epochs.

    It has improved if it is less (`mode` "min") or more ("max") than the best so far, by more than `threshold`, which
    is relative (`threshold_mode` "rel") or absolute ("abs"). After a reduction, `cooldown` epochs are not counted.
    """

    def __init__(
        self,
        optimizer: Optimizer,
        mode: Literal["min", "max"] = "min",
        factor: float = 0.1,
        patience: int = 10,
        threshold: float = 1e-4,
        threshold_mode: Literal["rel", "abs"] = "rel",
        cooldown: int = 0,
        min_lr: list[float] | float = 0,
        eps: float = 1e-8,
    ) -> None:
        if factor >= 1.0:
            raise ValueRangeError("Factor should be < 1.0.")
        self.factor = factor
        require_optimizer(optimizer)
        self.optimizer = optimizer
        count = len(optimizer.param_groups)
        values = list(min_lr) if isinstance(min_lr, (list, tuple)) else None
        if values is not None and len(values) != count:
            raise ValueRangeError(f"expected {count} min_lrs, got {len(values)}")
        self.default_min_lr = min_lr if values is None else None
        self.min_lrs: list[Any] = [min_lr] * count if values is None else values
        self.patience = patience
        self.cooldown = cooldown
        self.eps = eps
        self.last_epoch = 0
        self._last_lr = self._rates()
        if mode not in ("min", "max"):
            raise ValueRangeError(f"mode {mode} is unknown!")
        if threshold_mode not in ("rel", "abs"):
            raise ValueRangeError(f"threshold mode {threshold_mode} is unknown!")
        self.mode_worse = math.inf if mode == "min" else -math.inf
        self.mode = mode
        self.threshold = threshold
        self.threshold_mode = threshold_mode
        self._reset()

    def _reset(self) -> None:
        self.best = self.mode_worse
        self.cooldown_counter = 0
        self.num_bad_epochs = 0

    def step(self, metrics: SupportsFloat, epoch: int | None = None) -> None:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Take the metric of an epoch: a number, or a tensor of one element."""
        current = float(metrics)
        if epoch is not None:
            warnings.warn(EPOCH_WARNING, UserWarning, stacklevel=2)
        self.last_epoch = self.last_epoch + 1 if epoch is None else epoch
        if self._is_better(current, self.best):
            self.best = current
            self.num_bad_epochs = 0
        else:
            self.num_bad_epochs += 1
        if self.in_cooldown:
            self.cooldown_counter -= 1
            self.num_bad_epochs = 0
        if self.num_bad_epochs > self.patience:
            self._reduce_lr()
            self.cooldown_counter = self.cooldown
            self.num_bad_epochs = 0
        self._last_lr = self._rates()

    @property
    def in_cooldown(self) -> bool:
        """Whether epochs are not counted, because of a recent reduction."""
        return self.cooldown_counter > 0

    def _reduce_lr(self) -> None:
        groups = self.optimizer.param_groups
        if len(groups) != len(self.min_lrs):
            if self.default_min_lr is None:
                raise OptionError(
                    f"The number of param groups in the `optimizer` ({len(groups)}) differs from when "
                    f"`ReduceLROnPlateau` was initialized ({len(self.min_lrs)}), usually due to a new param group "
                    "being added to the optimizer. Please modify the `min_lrs` field to match the length of the "
                    "`optimizer` param groups."
                )
            self.min_lrs = [self.default_min_lr] * len(groups)
        for group, least in zip(groups, self.min_lrs, strict=True):
            old = float(group["lr"])
            new = max(old * self.factor, least)
            if old - new > self.eps:
                set_rate(group, new)

    def _is_better(self, a: float, best: float) -> bool:
        if self.mode == "min":
            return a < (best * (1 - self.threshold) if self.threshold_mode == "rel" else best - self.threshold)
        return a > (best * (1 + self.threshold) if self.threshold_mode == "rel" else best + self.threshold)
