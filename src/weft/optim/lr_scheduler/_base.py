"""The base of learning rate schedules."""

from __future__ import annotations

import types
import warnings
from collections.abc import Callable, Sequence

from weft._base.state import using
from weft._base.types import SavedState
from weft._tensor.kind_names import advice
from weft._tensor.tensor import Tensor, wrap
from weft._tensor.view import own
from weft.errors import ArgumentError, ValueRangeError
from weft.optim._optimizer import Group, Optimizer

Rate = float | Tensor
"""A learning rate."""

Rates = Rate | list[float] | list[Tensor] | list[Rate] | tuple[Rate, ...]
"""One rate for all groups, or one for each."""

_GUIDE = "https://pytorch.org/docs/stable/optim.html#how-to-adjust-learning-rate"
_OVERRIDDEN = (
    "Seems like `optimizer.step()` has been overridden after learning rate scheduler initialization. Please, make sure "
    f"to call `optimizer.step()` before `lr_scheduler.step()`. See more details at {_GUIDE}"
)
_TOO_EARLY = (
    "Detected call of `lr_scheduler.step()` before `optimizer.step()`. In PyTorch 1.1.0 and later, you should call "
    "them in the opposite order: `optimizer.step()` before `lr_scheduler.step()`.  Failure to do this will result in "
    f"PyTorch skipping the first value of the learning rate schedule. See more details at {_GUIDE}"
)
EPOCH_WARNING = (
    "The epoch parameter in `scheduler.step()` was not necessary and is being deprecated where possible. Please use "
    "`scheduler.step()` to step the scheduler. During the deprecation, if epoch is different from None, the closed "
    "form is used instead of the new chainable form, where available. Please open an issue if you are unable to "
    "replicate your use case: https://github.com/pytorch/pytorch/issues/new/choose."
)
_NO_INITIAL_RATE = (
    "param 'initial_lr' is not specified in param_groups[{}] when resuming scheduler with last_epoch >= 0.\n"
    "This typically happens when:\n1. You're trying to resume training from a checkpoint but haven't properly loaded "
    "the optimizer state\n2. You're using last_epoch >= 0 for a fresh training run (not recommended)"
)


class LRScheduler:
    """Sets the learning rate of each group of an optimizer, epoch by epoch.

    A subclass overrides `get_lr`, which gives the rates of the current epoch, mostly from those of the last one. It may
    also define `_get_closed_form_lr`, which gives them from the initial rates.
    """

    _get_lr_called_within_step: bool = False
    _is_initial: bool = False
    _last_lr: list[Rate]

    def __init__(self, optimizer: Optimizer, last_epoch: int = -1) -> None:
        require_optimizer(optimizer)
        self.optimizer = optimizer
        for at, group in enumerate(optimizer.param_groups):
            if last_epoch == -1:
                group.setdefault("initial_lr", copied(group["lr"]))
            elif "initial_lr" not in group:
                raise KeyError(_NO_INITIAL_RATE.format(at))
        self.base_lrs = [copied(group["initial_lr"]) for group in optimizer.param_groups]
        self.last_epoch = last_epoch
        optimizer.watch_steps()
        self._initial_step()

    def _initial_step(self) -> None:
        self._step_count = 0
        self._is_initial = True
        try:
            self.step()
        finally:
            self._is_initial = False

    def get_lr(self) -> list[Rate]:
        """The rates of epoch `last_epoch`, one for each group. Only `step` should call it."""
        if not self._get_lr_called_within_step:
            warnings.warn(
                "To get the last learning rate computed by the scheduler, please use `get_last_lr()`.",
                UserWarning,
                stacklevel=2,
            )
        return self._next_rates()

    def _next_rates(self) -> list[Rate]:
        raise NotImplementedError

    def get_last_lr(self) -> list[Rate]:
        """The rates that were set last."""
        return self._last_lr

    def step(self, epoch: int | None = None) -> None:
        """Move to the next epoch, or to the given one, and set its rates."""
        if self._step_count == 1:
            self._warn_of_order()
        self._step_count += 1
        if epoch is not None:
            warnings.warn(EPOCH_WARNING, UserWarning, stacklevel=2)
        self._update_lr(epoch)

    def _warn_of_order(self) -> None:
        if self.optimizer.is_overridden():
            warnings.warn(_OVERRIDDEN, UserWarning, stacklevel=3)
        elif not self.optimizer.was_stepped():
            warnings.warn(_TOO_EARLY, UserWarning, stacklevel=3)

    def _update_lr(self, epoch: int | None = None) -> None:
        self.last_epoch = self.last_epoch + 1 if epoch is None else epoch
        closed = None if epoch is None else getattr(self, "_get_closed_form_lr", None)
        self._set(closed or self.get_lr)

    def _set(self, get_rates: Callable[[], Sequence[Rate]]) -> None:
        """Set the rates that a function returns."""
        self._get_lr_called_within_step = True
        try:
            rates = get_rates()
        finally:
            self._get_lr_called_within_step = False
        for group, rate in zip(self.optimizer.param_groups, rates, strict=True):
            set_rate(group, rate)
        self._last_lr = self._rates()

    def _rates(self) -> list[Rate]:
        """The current rates."""
        return [copied(group["lr"]) for group in self.optimizer.param_groups]

    def _scaled(self, factor: float) -> list[Rate]:
        return [group["lr"] * factor for group in self.optimizer.param_groups]

    def state_dict(self) -> SavedState:
        """The schedule's own attributes, without the optimizer."""
        return {name: value for name, value in self.__dict__.items() if name != "optimizer"}

    def load_state_dict(self, state_dict: SavedState) -> None:
        """Load a state dict of a schedule of the same kind."""
        self.__dict__.update(state_dict)


class _LRScheduler(LRScheduler):  # pyright: ignore[reportUnusedClass]  users import PyTorch's name
    """The former name of the base class."""


def require_optimizer(optimizer: object) -> None:
    """Raise unless this is an optimizer."""
    if not isinstance(optimizer, Optimizer):
        raise ArgumentError(f"{type(optimizer).__name__} is not an Optimizer{advice(optimizer)}")


def copied(rate: Rate) -> Rate:
    """A copy of a rate that is a tensor; a number as it is."""
    return wrap(own(rate._read())) if isinstance(rate, Tensor) else rate


def set_rate(group: Group, rate: Rate) -> None:
    """Set the rate of a group; a tensor is written in place."""
    if isinstance(group["lr"], Tensor):
        with using(grad=False):
            group["lr"].fill_(float(rate))
    else:
        group["lr"] = rate


def per_group(name: str, optimizer: Optimizer, value: Rates) -> list[Rate]:
    """One value for each group."""
    groups = optimizer.param_groups
    if not isinstance(value, (list, tuple)):
        return [copied(value) for _ in groups]
    if len(value) != len(groups):
        raise ValueRangeError(
            f"{name} must have the same length as optimizer.param_groups. {name} has {len(value)} values, "
            f"param_groups has {len(groups)}."
        )
    return [copied(entry) for entry in value]


def attributes_of(function: object) -> SavedState | None:
    """What a state dict has of a callable: None for a function, the attributes of an object."""
    return None if isinstance(function, types.FunctionType) else dict(function.__dict__)
