"""Schedules that combine other schedules."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence

from weft._base.types import SavedState
from weft.errors import ArgumentError, ValueRangeError
from weft.optim._optimizer import Optimizer
from weft.optim.lr_scheduler._base import LRScheduler, set_rate
from weft.optim.lr_scheduler._plateau import ReduceLROnPlateau


class _Combined(LRScheduler):
    """A schedule that contains others."""

    _schedulers: Sequence[LRScheduler]

    def state_dict(self) -> SavedState:
        """The state, with that of each schedule."""
        state = super().state_dict()
        del state["_schedulers"]
        return {**state, "_schedulers": [scheduler.state_dict() for scheduler in self._schedulers]}

    def load_state_dict(self, state_dict: SavedState) -> None:
        """Load a state dict of the same schedules."""
        rest = dict(state_dict)
        for scheduler, state in zip(self._schedulers, rest.pop("_schedulers"), strict=True):
            scheduler.load_state_dict(state)
        super().load_state_dict(rest)

    def _check(self, schedulers: Sequence[LRScheduler], optimizer: Optimizer) -> None:
        name = type(self).__name__
        for at, scheduler in enumerate(schedulers):
            if not hasattr(scheduler, "optimizer"):
                raise ArgumentError(f"{name} at index {at} should have `optimizer` as its attribute.")
            if isinstance(scheduler, ReduceLROnPlateau):
                raise ValueRangeError(
                    f"{name} does not support `ReduceLROnPlateau` scheduler as it requires additional kwargs to be "
                    f"specified when calling `step`, but got one at index {at} in the given schedulers sequence."
                )
            if scheduler.optimizer is not optimizer:
                raise ValueRangeError(
                    f"{name} expects all schedulers to belong to the same optimizer, but got scheduler "
                    f"{type(scheduler).__name__} at index {at} has {scheduler.optimizer}, which is different from "
                    f"{type(optimizer).__name__}."
                )


class SequentialLR(_Combined):
    """One schedule after another; each starts at its milestone, from its own epoch 0."""

    def __init__(
        self, optimizer: Optimizer, schedulers: list[LRScheduler], milestones: list[int], last_epoch: int = -1
    ) -> None:
        if not schedulers:
            raise ValueRangeError(f"{type(self).__name__} expects at least one scheduler, but got no scheduler.")
        self._check(schedulers, optimizer)
        if len(milestones) != len(schedulers) - 1:
            raise ValueRangeError(
                "Sequential Schedulers expects number of schedulers provided to be one more than the number of "
                f"milestone points, but got number of schedulers {len(schedulers)} and the number of milestones to be "
                f"equal to {len(milestones)}"
            )
        self._schedulers = schedulers
        self._milestones = milestones
        self.last_epoch = last_epoch + 1
        self.optimizer = optimizer
        for group in optimizer.param_groups:
            set_rate(group, group["initial_lr"])
        self.recursive_undo()
        first = schedulers[bisect_right(milestones, 0)]
        first._initial_step()
        self._last_lr = first.get_last_lr()

    def recursive_undo(self, sched: LRScheduler | None = None) -> None:
        """Undo the epoch that the schedules began when they were created."""
        scheduler = self if sched is None else sched
        if isinstance(scheduler, _Combined):
            for inner in scheduler._schedulers:
                self.recursive_undo(inner)
        elif hasattr(scheduler, "last_epoch"):
            scheduler.last_epoch -= 1

    def step(self) -> None:  # pyright: ignore[reportIncompatibleMethodOverride]  as PyTorch's
        """Move to the next epoch."""
        self.last_epoch += 1
        at = bisect_right(self._milestones, self.last_epoch)
        scheduler = self._schedulers[at]
        if at and self._milestones[at - 1] == self.last_epoch:
            scheduler._update_lr(0)
        else:
            scheduler.step()
        self._last_lr = scheduler.get_last_lr()


class ChainedScheduler(_Combined):
    """All schedules in every epoch; each changes the rates that the previous one has set."""

    def __init__(self, schedulers: Sequence[LRScheduler], optimizer: Optimizer | None = None) -> None:
        if not schedulers:
            name = type(self).__name__
            raise ValueRangeError(f"{name} expects at least one scheduler to be chained, but got no scheduler.")
        self._check(schedulers, optimizer or schedulers[0].optimizer)
        self._schedulers = schedulers
        self.optimizer = optimizer or schedulers[0].optimizer
        self._last_lr = self._rates()

    def step(self) -> None:  # pyright: ignore[reportIncompatibleMethodOverride]  as PyTorch's
        """Move to the next epoch."""
        for scheduler in self._schedulers:
            scheduler.step()
        self._last_lr = self._rates()
