"""Schedules of learning rates: call `step()` once per epoch, after the optimizer's."""

from __future__ import annotations

import math
import warnings
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from weft.errors import ArgumentError, ValueRangeError
from weft.optim._optimizer import Optimizer


class LRScheduler:
    """Sets the learning rate of each group of an optimizer, epoch by epoch.

    A subclass writes `get_lr`, the rates of the current epoch, mostly in terms of those of the last one.
    """

    def __init__(self, optimizer: Optimizer, last_epoch: int = -1) -> None:
        if not isinstance(optimizer, Optimizer):
            raise ArgumentError(f"{type(optimizer).__name__} is not an Optimizer")
        if last_epoch == -1:
            for group in optimizer.param_groups:
                group.setdefault("initial_lr", group["lr"])
        for at, group in enumerate(optimizer.param_groups):
            if "initial_lr" not in group:
                raise KeyError(
                    f"param 'initial_lr' is not specified in param_groups[{at}] when resuming scheduler with "
                    f"last_epoch >= 0.\nThis typically happens when:\n1. You're trying to resume training from a "
                    "checkpoint but haven't properly loaded the optimizer state\n2. You're using last_epoch >= 0 for a "
                    "fresh training run (not recommended)"
                )
        self.optimizer = optimizer
        self.base_lrs = [group["initial_lr"] for group in optimizer.param_groups]
        self.last_epoch = last_epoch
        self._stepped = False  # whether the optimizer has
        self._watch = optimizer.register_step_post_hook(lambda *_: self.__dict__.__setitem__("_stepped", True))
        self._step_count = 0
        self.step()

    def get_lr(self) -> list[Any]:
        """The rates of epoch `last_epoch`, one per group."""
        raise NotImplementedError

    def get_last_lr(self) -> list[Any]:
        """The rates set last."""
        return self._last_lr

    def step(self, epoch: int | None = None) -> None:
        """Go on to the next epoch, or to the one given."""
        if self._step_count == 1 and not self._stepped:
            warnings.warn(
                "Detected call of `lr_scheduler.step()` before `optimizer.step()`. Call them in the opposite order: "
                "`optimizer.step()` before `lr_scheduler.step()`. Failure to do this will result in skipping the first "
                "value of the learning rate schedule.",
                UserWarning,
                stacklevel=2,
            )
        self._step_count += 1
        if epoch is None:
            self.last_epoch += 1
            self._set(self.get_lr())
        else:
            self.last_epoch = epoch
            closed = getattr(self, "_get_closed_form_lr", self.get_lr)
            self._set(closed())

    def _set(self, rates: Sequence[Any]) -> None:
        for group, rate in zip(self.optimizer.param_groups, rates, strict=True):
            group["lr"] = rate
        self._last_lr = list(rates)

    def _rates(self) -> list[Any]:
        """The rates of the last epoch."""
        return [group["lr"] for group in self.optimizer.param_groups]

    def _scaled(self, factor: float) -> list[Any]:
        return [rate * factor for rate in self._rates()]

    def state_dict(self) -> dict[str, Any]:
        """All that is not the optimizer's."""
        return {name: value for name, value in self.__dict__.items() if name not in ("optimizer", "_watch")}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take over a state dict of the same kind of schedule."""
        self.__dict__.update(state_dict)


class LambdaLR(LRScheduler):
    """The initial rate times a function of the epoch, or one function per group."""

    def __init__(self, optimizer: Optimizer, lr_lambda: Any, last_epoch: int = -1) -> None:
        self.lr_lambdas = _per_group(lr_lambda, optimizer, "lr_lambdas")
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[Any]:
        """The rates of the current epoch."""
        return [base * scale(self.last_epoch) for scale, base in zip(self.lr_lambdas, self.base_lrs, strict=True)]

    def state_dict(self) -> dict[str, Any]:
        """Without the functions, but with the attributes of those that are objects."""
        state = super().state_dict()
        state["lr_lambdas"] = [dict(f.__dict__) if not hasattr(f, "__code__") else None for f in self.lr_lambdas]
        return state

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take over a state dict; the functions stay."""
        rest = dict(state_dict)
        for function, attributes in zip(self.lr_lambdas, rest.pop("lr_lambdas"), strict=True):
            if attributes is not None:
                function.__dict__.update(attributes)
        super().load_state_dict(rest)


class MultiplicativeLR(LambdaLR):
    """Each epoch's rate is the last one's times a function of the epoch."""

    def get_lr(self) -> list[Any]:
        """The rates of the current epoch."""
        if self.last_epoch == 0:
            return self._rates()
        return [rate * scale(self.last_epoch) for scale, rate in zip(self.lr_lambdas, self._rates(), strict=True)]


def _per_group(given: Any, optimizer: Optimizer, name: str) -> list[Callable[[int], float]]:
    count = len(optimizer.param_groups)
    if not isinstance(given, (list, tuple)):
        return [given] * count
    if len(given) != count:
        raise ValueRangeError(f"Expected {count} {name}, but got {len(given)}")
    return list(given)


class StepLR(LRScheduler):
    """The rate times `gamma` every `step_size` epochs."""

    def __init__(self, optimizer: Optimizer, step_size: int, gamma: float = 0.1, last_epoch: int = -1) -> None:
        self.step_size = step_size
        self.gamma = gamma
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[Any]:
        """The rates of the current epoch."""
        due = self.last_epoch and self.last_epoch % self.step_size == 0
        return self._scaled(self.gamma) if due else self._rates()

    def _get_closed_form_lr(self) -> list[Any]:
        return [base * self.gamma ** (self.last_epoch // self.step_size) for base in self.base_lrs]


class MultiStepLR(LRScheduler):
    """The rate times `gamma` at each milestone."""

    def __init__(
        self, optimizer: Optimizer, milestones: Iterable[int], gamma: float = 0.1, last_epoch: int = -1
    ) -> None:
        self.milestones = Counter(milestones)
        self.gamma = gamma
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[Any]:
        """The rates of the current epoch."""
        return self._scaled(self.gamma ** self.milestones[self.last_epoch])

    def _get_closed_form_lr(self) -> list[Any]:
        passed = bisect_right(sorted(self.milestones.elements()), self.last_epoch)
        return [base * self.gamma**passed for base in self.base_lrs]


class ExponentialLR(LRScheduler):
    """The rate times `gamma` every epoch."""

    def __init__(self, optimizer: Optimizer, gamma: float, last_epoch: int = -1) -> None:
        self.gamma = gamma
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[Any]:
        """The rates of the current epoch."""
        return self._scaled(self.gamma) if self.last_epoch else self._rates()

    def _get_closed_form_lr(self) -> list[Any]:
        return [base * self.gamma**self.last_epoch for base in self.base_lrs]


class ConstantLR(LRScheduler):
    """The initial rate times `factor` for `total_iters` epochs, then the initial rate."""

    def __init__(self, optimizer: Optimizer, factor: float = 1 / 3, total_iters: int = 5, last_epoch: int = -1) -> None:
        if not 0 <= factor <= 1:
            raise ValueRangeError("Constant multiplicative factor expected to be between 0 and 1.")
        self.factor = factor
        self.total_iters = total_iters
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[Any]:
        """The rates of the current epoch."""
        if self.last_epoch == 0:
            return self._scaled(self.factor)
        return self._scaled(1 / self.factor) if self.last_epoch == self.total_iters else self._rates()

    def _get_closed_form_lr(self) -> list[Any]:
        return [base * (self.factor if self.last_epoch < self.total_iters else 1) for base in self.base_lrs]


class LinearLR(LRScheduler):
    """The initial rate times a factor that goes in a line from start to end over `total_iters` epochs."""

    def __init__(
        self, optimizer: Optimizer, start_factor: float = 1 / 3, end_factor: float = 1.0, total_iters: int = 5,
        last_epoch: int = -1,
    ) -> None:  # fmt: skip
        if not 0 < start_factor <= 1:
            raise ValueRangeError(
                "Starting multiplicative factor expected to be greater than 0 and less or equal to 1."
            )
        if not 0 <= end_factor <= 1:
            raise ValueRangeError("Ending multiplicative factor expected to be between 0 and 1.")
        self.start_factor = start_factor
        self.end_factor = end_factor
        self.total_iters = total_iters
        super().__init__(optimizer, last_epoch)

    def _factor(self, epoch: int) -> float:
        share = min(self.total_iters, epoch) / self.total_iters
        return self.start_factor + (self.end_factor - self.start_factor) * share

    def get_lr(self) -> list[Any]:
        """The rates of the current epoch."""
        if self.last_epoch == 0:
            return self._scaled(self.start_factor)
        if self.last_epoch > self.total_iters:
            return self._rates()
        return self._scaled(self._factor(self.last_epoch) / self._factor(self.last_epoch - 1))

    def _get_closed_form_lr(self) -> list[Any]:
        return [base * self._factor(self.last_epoch) for base in self.base_lrs]


class CosineAnnealingLR(LRScheduler):
    """From the initial rate to `eta_min` along half a cosine over `T_max` epochs, and back (Loshchilov, 2017)."""

    def __init__(self, optimizer: Optimizer, T_max: float, eta_min: float = 0.0, last_epoch: int = -1) -> None:
        self.T_max = T_max
        self.eta_min = eta_min
        super().__init__(optimizer, last_epoch)

    def _height(self, epoch: float) -> float:
        return 1 + math.cos(math.pi * epoch / self.T_max)

    def get_lr(self) -> list[Any]:
        """The rates of the current epoch."""
        if self.last_epoch == 0:
            return self._rates()
        if (self.last_epoch - 1 - self.T_max) % (2 * self.T_max) == 0:  # up again from the least rate
            rise = (1 - math.cos(math.pi / self.T_max)) / 2
            return [
                rate + (base - self.eta_min) * rise for base, rate in zip(self.base_lrs, self._rates(), strict=True)
            ]
        ratio = self._height(self.last_epoch) / self._height(self.last_epoch - 1)
        return [ratio * (rate - self.eta_min) + self.eta_min for rate in self._rates()]

    def _get_closed_form_lr(self) -> list[Any]:
        height = self._height(self.last_epoch) / 2
        return [self.eta_min + (base - self.eta_min) * height for base in self.base_lrs]


class SequentialLR(LRScheduler):
    """One schedule after another; each takes over at its milestone, from its own epoch 0."""

    def __init__(
        self, optimizer: Optimizer, schedulers: Sequence[LRScheduler], milestones: Sequence[int], last_epoch: int = -1
    ) -> None:
        _check_sequence(optimizer, schedulers, milestones)
        self._schedulers = list(schedulers)
        self._milestones = list(milestones)
        self.optimizer = optimizer
        self.last_epoch = last_epoch + 1
        for group in optimizer.param_groups:
            group["lr"] = group["initial_lr"]
        for scheduler in self._schedulers:
            scheduler.last_epoch -= 1
        self._schedulers[0]._step_count = 0
        self._schedulers[0].step()
        self._last_lr = self._schedulers[0].get_last_lr()

    def step(self, epoch: int | None = None) -> None:
        """Go on to the next epoch."""
        del epoch
        self.last_epoch += 1
        at = bisect_right(self._milestones, self.last_epoch)
        scheduler = self._schedulers[at]
        if at and self._milestones[at - 1] == self.last_epoch:
            scheduler.step(0)
        else:
            scheduler.step()
        self._last_lr = scheduler.get_last_lr()

    def state_dict(self) -> dict[str, Any]:
        """With the state of each schedule."""
        states = [scheduler.state_dict() for scheduler in self._schedulers]
        return {**super().state_dict(), "_schedulers": states}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take over a state dict of the same schedules."""
        rest = dict(state_dict)
        for scheduler, state in zip(self._schedulers, rest.pop("_schedulers"), strict=True):
            scheduler.load_state_dict(state)
        super().load_state_dict(rest)


def _check_sequence(optimizer: Optimizer, schedulers: Sequence[LRScheduler], milestones: Sequence[int]) -> None:
    if not schedulers:
        raise ValueRangeError("SequentialLR expects at least one scheduler, but got no scheduler.")
    for at, scheduler in enumerate(schedulers):
        if scheduler.optimizer is not optimizer:
            raise ValueRangeError(
                "SequentialLR expects all schedulers to belong to the same optimizer, but got scheduler "
                f"{type(scheduler).__name__} at index {at} of another one."
            )
    if len(milestones) != len(schedulers) - 1:
        raise ValueRangeError(
            "Sequential Schedulers expects number of schedulers provided to be one more than the number of milestone "
            f"points, but got number of schedulers {len(schedulers)} and the number of milestones to be equal to "
            f"{len(milestones)}"
        )
