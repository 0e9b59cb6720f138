"""Hooks that average gradients, in their own type or in 16 bits."""

from __future__ import annotations

from typing import TYPE_CHECKING

from weft._base.dtype import DType, bfloat16, float16
from weft._base.types import Arg, Result
from weft._tensor.tensor import Tensor
from weft.distributed import _collectives
from weft.distributed._grad_bucket import GradBucket, Hook
from weft.distributed._world import require_group
from weft.futures import Future

if TYPE_CHECKING:
    from weft.distributed._group import ProcessGroup


def average(group: ProcessGroup, flat: Tensor) -> Future[Result]:
    """A future of the average of a tensor over a group. It divides first, so that 16-bit sums do not overflow."""
    group = require_group(group)
    flat.div_(group.size())
    work = _collectives.all_reduce(flat, group=group, async_op=True)
    assert work is not None, "a replica is a member of its group"
    return work.get_future().then(lambda done: done.value()[0])


def allreduce_hook(process_group: ProcessGroup, bucket: GradBucket) -> Future[Result]:
    """The average of the gradients over a group (None: the default one), as replicas do without a hook."""
    return average(process_group, bucket.buffer())


def _compressed(dtype: DType, process_group: ProcessGroup, bucket: GradBucket) -> Future[Result]:
    buffer = bucket.buffer()
    return average(process_group, buffer.to(dtype)).then(lambda done: done.value().to(buffer.dtype))


def fp16_compress_hook(process_group: ProcessGroup, bucket: GradBucket) -> Future[Result]:
    """The average of the gradients as float16."""
    return _compressed(float16, process_group, bucket)


def bf16_compress_hook(process_group: ProcessGroup, bucket: GradBucket) -> Future[Result]:
    """The average of the gradients as bfloat16."""
    return _compressed(bfloat16, process_group, bucket)


def _wrapper(dtype: DType, hook: Hook) -> Hook:
    def compressing(hook_state: Arg, bucket: GradBucket) -> Future[Result]:
        whole = bucket.buffer().dtype
        bucket.set_buffer(bucket.buffer().to(dtype))
        return hook(hook_state, bucket).then(lambda done: done.value().to(whole))

    return compressing


def fp16_compress_wrapper(hook: Hook) -> Hook:
    """A hook that calls `hook` with the gradients as float16."""
    return _wrapper(float16, hook)


def bf16_compress_wrapper(hook: Hook) -> Hook:
    """A hook that calls `hook` with the gradients as bfloat16."""
    return _wrapper(bfloat16, hook)
