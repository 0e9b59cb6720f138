"""Communication hooks that run the steps of a `ZeroRedundancyOptimizer` in the backward pass of a replica."""

from __future__ import annotations

from typing import Protocol

from weft._base.types import Arg, Result
from weft._tensor.tensor import Tensor
from weft.distributed._grad_bucket import GradBucket, Hook, flat_result, gradients_of
from weft.distributed._group import ProcessGroup
from weft.distributed.optim.zero_redundancy_optimizer import ZeroRedundancyOptimizer
from weft.errors import ValueRangeError
from weft.futures import Future


class _Replica(Protocol):
    process_group: ProcessGroup


def hook_with_zero_step(hook: Hook, ddp: _Replica, zero: ZeroRedundancyOptimizer, shard_buckets: bool = False) -> Hook:
    """A hook that exchanges gradients as `hook` does, and does the optimizer's step as soon as all have arrived.

    Register it on the replica `ddp`, whose group must be that of `zero`; its result is that of `hook`. `shard_buckets`
    has no effect: ranks always share the parameters of all buckets by size. `ValueError` without
    `overlap_with_ddp=True`.
    """
    del shard_buckets
    _require_overlap(ddp, zero)
    gradients: dict[Tensor, Tensor] = {}

    def exchange(state: Arg, bucket: GradBucket) -> Future[Result]:
        def step(done: Future[Result]) -> Tensor:
            if bucket.index() == 0:
                gradients.clear()  # they are from a pass that has failed
            flat = flat_result(done.value(), bucket)
            gradients.update(gradients_of(flat, bucket))
            if bucket.is_last():
                zero.step_with(gradients)
                gradients.clear()
            return flat

        return hook(state, bucket).then(step)

    return exchange


def hook_with_zero_step_interleaved(
    hook: Hook, ddp: _Replica, zero: ZeroRedundancyOptimizer, shard_buckets: bool = False
) -> Hook:
    """As `hook_with_zero_step`, but each bucket is updated and shared before the next one is exchanged."""
    del shard_buckets
    _require_overlap(ddp, zero)

    def exchange(state: Arg, bucket: GradBucket) -> Future[Result]:
        def step(done: Future[Result]) -> Tensor:
            flat = flat_result(done.value(), bucket)
            zero.step_with(gradients_of(flat, bucket))
            return flat

        return hook(state, bucket).then(step)

    return exchange


def _require_overlap(ddp: _Replica, zero: ZeroRedundancyOptimizer) -> None:
    if not zero.overlap_with_ddp:
        raise ValueRangeError(
            "ZeroRedundancyOptimizer must be constructed with `overlap_with_ddp=True` to use this hook properly"
        )
    if zero.process_group is not ddp.process_group:
        raise ValueRangeError("the replica and its ZeroRedundancyOptimizer need the same process group")
