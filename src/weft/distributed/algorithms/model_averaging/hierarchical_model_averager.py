"""Averages over groups of different sizes: the larger the group, the rarer.

Wang et al., "Local averaging helps: hierarchical federated learning and convergence analysis", 2020
(https://arxiv.org/abs/2010.12998).
"""

from __future__ import annotations

import logging
import warnings
from collections import OrderedDict
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from weft.distributed._subgroups import new_subgroups
from weft.distributed._world import get_world_size
from weft.distributed.algorithms.model_averaging.averagers import ModelAverager
from weft.distributed.algorithms.model_averaging.utils import average_parameters_or_parameter_groups
from weft.errors import ValueRangeError

if TYPE_CHECKING:
    from weft.distributed._group import ProcessGroup

_log = logging.getLogger(__name__)


class HierarchicalModelAverager(ModelAverager):
    """In each step from `warmup_steps` on, averages over the groups of the largest period that divides the step.

    `period_group_size_dict` maps each period, ascending, to the size of the groups of neighbouring ranks; the last size
    is that of `process_group` (None: the default one). All ranks of the job must create it together, since it creates
    process groups.
    """

    def __init__(
        self,
        period_group_size_dict: Mapping[int, int] | None = None,
        warmup_steps: int = 0,
        process_group: ProcessGroup | None = None,
    ) -> None:
        super().__init__(process_group)
        if not period_group_size_dict:
            raise ValueRangeError("Arg ``period_group_size_dict`` must not be empty.")
        sizes, whole = dict(period_group_size_dict), get_world_size(self.process_group)
        self._periods = list(sizes)
        last = self._periods[-1]
        if self._periods[0] <= 0:
            raise ValueRangeError("The minimum period in arg ``period_group_size_dict`` must be a positive value.")
        if last == 1:
            warnings.warn(
                "When the maximum period in arg ``period_group_size_dict`` is 1, no need to use model averaging "
                "because the communication cost of all-reducing parameters will be no less than the cost of "
                "all-reducing gradients by DistributedDataParallel in the backward pass. Therefore, only "
                "DistributedDataParallel should be used for this case.",
                stacklevel=2,
            )
        if sizes[last] != whole:
            raise ValueRangeError(
                f"The last value in arg ``period_group_size_dict`` {sizes[last]} must be equal to the size of arg "
                f"``process_group`` {whole}."
            )
        if warmup_steps < 0:
            raise ValueRangeError("Arg ``warmup_steps`` must be a non-negative number.")
        self.warmup_steps = warmup_steps
        self.period_process_group_dict: OrderedDict[int, ProcessGroup] = OrderedDict()
        for period, size in sizes.items():
            _log.info("Groups of %s ranks average every %s steps, unless larger ones do.", size, period)
            group = self.process_group if size == whole else new_subgroups(size, self.process_group)[0]
            self.period_process_group_dict[period] = group

    def average_parameters(self, params: Iterable[object]) -> None:
        """Average the parameters that have a gradient, if this step is due."""
        due = [period for period in self._periods if self.step % period == 0]
        if due and self.step >= self.warmup_steps:
            average_parameters_or_parameter_groups(params, self.period_process_group_dict[due[-1]])
        self.step += 1
