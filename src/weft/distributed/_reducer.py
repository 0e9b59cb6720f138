"""The gradients of replicas, averaged in buckets while the backward pass goes on.

Ranks send buckets in the order of their numbers, whatever became ready first, so that they agree. The computation of a
bucket's gradients is started when the last of them is recorded; the group's thread waits for it and exchanges them, and
this thread records on.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from weft._autograd.engine import queue_callback
from weft._base.state import using
from weft._tensor.composite.create import zeros
from weft._tensor.composite.shape import split
from weft._tensor.convert import tensor
from weft._tensor.spelling import op as rows
from weft._tensor.tensor import Tensor
from weft.distributed import _collectives
from weft.distributed._bucket import buckets_of
from weft.distributed._group import ProcessGroup
from weft.distributed._objects import all_gather_object
from weft.distributed._reduce_op import ReduceOp
from weft.errors import GradientError
from weft.futures import Future

MEGABYTE = 1 << 20


class GradBucket:
    """What a communication hook gets: the gradients of a bucket, one after the other in one tensor."""

    def __init__(self, index: int, buffer: Tensor, parameters: Sequence[Tensor], last: bool) -> None:
        self._index = index
        self._buffer = buffer
        self._parameters = list(parameters)
        self._last = last

    def index(self) -> int:
        """The number of the bucket; 0 is sent first."""
        return self._index

    def buffer(self) -> Tensor:
        """All gradients, flat."""
        return self._buffer

    def set_buffer(self, buffer: Tensor) -> None:
        """Put another tensor of the same size in its place."""
        self._buffer = buffer

    def gradients(self) -> list[Tensor]:
        """The gradients in the shapes of their parameters."""
        return _taken_apart(self._buffer, self._parameters)

    def parameters(self) -> list[Tensor]:
        """The parameters."""
        return list(self._parameters)

    def is_last(self) -> bool:
        """Whether no bucket follows."""
        return self._last


Hook = Callable[[Any, GradBucket], Future[Any]]


def average(group: ProcessGroup, bucket: GradBucket) -> Future[Any]:
    """The hook that replicas have unless another is registered."""
    work = _collectives.all_reduce(bucket.buffer(), ReduceOp.AVG, group, async_op=True)
    assert work is not None, "a replica is a member of its group"
    return work.get_future().then(lambda future: future.value()[0])


def _taken_apart(flat: Tensor, like: Sequence[Tensor]) -> list[Tensor]:
    parts = split(flat, [p.numel() for p in like])
    return [rows.view(part, tuple(p.shape)) for part, p in zip(parts, like, strict=True)]


class Reducer:
    """Averages the gradients of `parameters` over a group.

    `limits` are the bytes of the first bucket and of the others. With `find_unused`, parameters that take no part in a
    backward pass count as ready, and keep their gradients where no rank used them.
    """

    def __init__(
        self, parameters: Sequence[Any], names: Sequence[str], group: ProcessGroup, limits: Sequence[int],
        *, find_unused: bool, static: bool,
    ) -> None:  # fmt: skip
        self.parameters = list(parameters)
        self.names = list(names)
        self.group = group
        self.limits = limits
        self.find_unused = find_unused
        self.static = static
        self.hook: Hook | None = None
        self.hook_state: Any = None
        self._order = list(reversed(range(len(self.parameters))))
        self._rebuilt = False
        self._plan()
        self._armed = False
        self._seen: list[int] = []
        for at, parameter in enumerate(self.parameters):
            parameter.register_post_accumulate_grad_hook(lambda _, at=at: self._ready(at))

    def _plan(self) -> None:
        ordered = [self.parameters[at] for at in self._order]
        kinds = [(p.dtype, p.device) for p in ordered]
        sizes = [p.numel() * p.dtype.itemsize for p in ordered]
        self.buckets = [[self._order[i] for i in bucket] for bucket in buckets_of(sizes, kinds, self.limits)]
        self._bucket_of = {at: number for number, bucket in enumerate(self.buckets) for at in bucket}

    # --- one backward pass ------------------------------------------------------------------------------------

    def prepare(self) -> None:
        """Expect a backward pass; called at the end of a forward pass."""
        self._armed = True
        self._missing = [len(bucket) for bucket in self.buckets]
        self._next = 0
        self._under_way: list[tuple[GradBucket, Future[Any]]] = []
        self._seen = []

    def _ready(self, at: int) -> None:
        """The gradient of a parameter is there."""
        if not self._armed:
            return
        if not self._seen:
            queue_callback(self._finish)
        self._seen.append(at)
        self._missing[self._bucket_of[at]] -= 1
        self._start_complete()

    def _start_complete(self) -> None:
        while self._next < len(self.buckets) and not self._missing[self._next]:
            self._start(self._next)
            self._next += 1

    def _start(self, number: int) -> None:
        parameters = [self.parameters[at] for at in self.buckets[number]]
        with using(grad=False):
            parts = [
                rows.reshape(zeros(p.shape, dtype=p.dtype) if p.grad is None else p.grad, (-1,)) for p in parameters
            ]
            flat = rows.cat(parts)
            bucket = GradBucket(number, flat, parameters, number == len(self.buckets) - 1)
            future = (self.hook or average)(self.hook_state if self.hook else self.group, bucket)
        self._under_way.append((bucket, future))

    def _finish(self) -> None:
        """The backward pass is over: wait for the averages, and put them in place."""
        self._armed = False
        unused = sorted(set(range(len(self.parameters))) - set(self._seen))
        if unused and not (self.find_unused or self.static):
            self._refuse(unused)
        for at in unused:
            self._missing[self._bucket_of[at]] -= 1
        self._start_complete()
        used = self._used_anywhere(unused) if self.find_unused else set(range(len(self.parameters)))
        with using(grad=False):
            for number, (bucket, future) in enumerate(self._under_way):
                flat = future.wait()
                for at, grad in zip(self.buckets[number], _taken_apart(flat, bucket.parameters()), strict=True):
                    if at in used:
                        self.parameters[at].grad = grad
        self._under_way = []
        if not self._rebuilt and not self.find_unused:
            self._rebuild()

    def _used_anywhere(self, unused: list[int]) -> set[int]:
        used = tensor([float(at not in set(unused)) for at in range(len(self.parameters))])
        _collectives.all_reduce(used, ReduceOp.MAX, self.group)
        return {at for at, one in enumerate(used.tolist()) if one}

    def _refuse(self, unused: list[int]) -> None:
        """Raise for parameters without a gradient, and say how this rank differs from the others."""
        listed: list[Any] = [None] * self.group.size()
        all_gather_object(listed, unused, self.group)
        mine = ", ".join(self.names[at] for at in unused)
        others = [rank for rank, found in enumerate(listed) if found != unused]
        differs = ""
        if others:
            other = ", ".join(self.names[at] for at in listed[others[0]]) or "none"
            differs = f" The first rank that differs is rank {others[0]}, where they are: {other}."
        raise GradientError(
            f"Rank {self.group.rank()}: parameters without a gradient in this backward pass: {mine}.{differs} Pass "
            "find_unused_parameters=True to DistributedDataParallel, or make sure that the loss depends on all of them"
        )

    def _rebuild(self) -> None:
        """Put parameters into buckets in the order in which rank 0 saw them become ready."""
        order = tensor(self._seen)
        _collectives.broadcast(order, group=self.group, group_src=0)
        self._order = order.tolist()
        self._rebuilt = True
        self._plan()
