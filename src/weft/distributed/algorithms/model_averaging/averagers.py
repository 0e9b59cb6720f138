"""Periodic averaging over one group."""

from __future__ import annotations

import warnings
from abc import ABC, abstractmethod
from collections.abc import Iterable

from weft.distributed._world import AnyGroup, require_group
from weft.distributed.algorithms.model_averaging.utils import average_parameters_or_parameter_groups
from weft.errors import ValueRangeError


class ModelAverager(ABC):
    """Averages models over a group, None for the default one. `step` counts the calls."""

    def __init__(self, process_group: AnyGroup = None) -> None:
        self.process_group = require_group(process_group)
        self.step = 0

    @abstractmethod
    def average_parameters(self, params: Iterable[object]) -> None:
        """Call this after each step of the optimizer, with a model's parameters or an optimizer's groups."""


class PeriodicModelAverager(ModelAverager):
    """Averages in every `period`-th step, starting with the step after `warmup_steps`."""

    def __init__(self, period: int, warmup_steps: int = 0, process_group: AnyGroup = None) -> None:
        super().__init__(process_group)
        if warmup_steps < 0:
            raise ValueRangeError("Arg ``warmup_steps`` must be a non-negative number.")
        if period < 1:
            raise ValueRangeError("Arg ``period`` must be a positive value.")
        if period == 1:
            warnings.warn(
                "When period is 1, no need to use model averaging because the communication cost of all-reducing "
                "parameters will be no less than the cost of all-reducing gradients by DistributedDataParallel in the "
                "backward pass. Therefore, only DistributedDataParallel should be used for this case.",
                stacklevel=2,
            )
        self.period = period
        self.warmup_steps = warmup_steps

    def average_parameters(self, params: Iterable[object]) -> None:
        """Average the parameters that have a gradient, if this step is due."""
        since = self.step - self.warmup_steps
        if since >= 0 and since % self.period == 0:
            average_parameters_or_parameter_groups(params, self.process_group)
        self.step += 1
