"""Post-local SGD: gradients are averaged over all ranks at first, and later only within subgroups.

Lin et al., "Don't use large mini-batches, use local SGD", 2020 (https://arxiv.org/abs/1808.07217).
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from weft._base.types import Result
from weft.distributed._grad_bucket import GradBucket
from weft.distributed._world import AnyGroup, require_group
from weft.distributed.algorithms.ddp_comm_hooks.debugging_hooks import noop_hook
from weft.distributed.algorithms.ddp_comm_hooks.default_hooks import average
from weft.errors import OptionError
from weft.futures import Future

if TYPE_CHECKING:
    from weft.distributed._group import ProcessGroup

_log = logging.getLogger(__name__)


class PostLocalSGDState:
    """Averages over `process_group` (None: the default one) for `start_localSGD_iter` steps, then over `subgroup`.

    Without `post_local_gradient_allreduce`, nothing is exchanged after these steps. The parameters must be averaged
    from time to time.
    """

    def __init__(
        self,
        process_group: ProcessGroup,
        subgroup: AnyGroup,
        start_localSGD_iter: int,
        post_local_gradient_allreduce: bool = True,
    ) -> None:
        _log.info("Local SGD will be started after %s iterations", start_localSGD_iter)
        self.process_group = process_group
        self.subgroup = subgroup
        self.start_localSGD_iter = start_localSGD_iter
        self.post_local_gradient_allreduce = post_local_gradient_allreduce
        self.iter = 0

    def maybe_increase_iter(self, bucket: GradBucket) -> None:
        """Count a step at its last bucket."""
        if bucket.is_last():
            self.iter += 1
            if self.iter == self.start_localSGD_iter:
                _log.info("Start to apply local SGD after %s iterations.", self.iter)


def post_localSGD_hook(state: PostLocalSGDState, bucket: GradBucket) -> Future[Result]:
    """The average over all ranks, or over a subgroup once local SGD has begun."""
    if state.iter < state.start_localSGD_iter:
        state.maybe_increase_iter(bucket)
        return average(state.process_group, bucket.buffer())
    if not state.post_local_gradient_allreduce:
        return noop_hook(None, bucket)
    if state.subgroup is None:
        raise OptionError("PostLocalSGDState needs a subgroup for its averages; new_subgroups() makes some")
    return average(require_group(state.subgroup), bucket.buffer())
