"""Steps of optimizers over replicas: gradients are averaged within the step's program."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from weft._base.types import Arg, Result
from weft._lazy.flushing import keeping
from weft._tensor.tensor import Tensor
from weft.nn._module import Module
from weft.optim import Optimizer
from weft.xla._collectives import REDUCE_SUM, all_reduce, collective_broadcast
from weft.xla._flags import number
from weft.xla._replicas import replicas
from weft.xla._steps import mark_step


def _fetch_gradients(optimizer: Optimizer) -> list[Tensor]:
    """The gradients of all parameters of an optimizer that have one."""
    return [p.grad.detach() for group in optimizer.param_groups for p in group["params"] if p.grad is not None]


def reduce_gradients(
    optimizer: Optimizer, groups: Sequence[Sequence[int]] | None = None, pin_layout: bool = True
) -> None:
    """Average the gradients over the replicas, in place; nothing for one replica.

    They are summed and divided by the number of all replicas. With the environment variable
    ALLREDUCE_GRADIENTS_BUCKET_SIZE_MB, they are reduced in buckets, the last parameter's first.
    """
    count = replicas().size
    if count == 1:
        return
    gradients = _fetch_gradients(optimizer)
    cap = int(number("ALLREDUCE_GRADIENTS_BUCKET_SIZE_MB", 0))
    if cap > 0:
        all_reduce_bucketized_gradients(gradients[::-1], 1.0 / count, groups, pin_layout, bucket_cap_mb=cap)
    else:
        all_reduce(REDUCE_SUM, gradients, scale=1.0 / count, groups=groups, pin_layout=pin_layout)


def all_reduce_bucketized_gradients(
    gradients: Sequence[Tensor],
    scale: float,
    groups: Sequence[Sequence[int]] | None,
    pin_layout: bool,
    bucket_cap_mb: int = 0,
) -> None:
    """Sum gradients over the replicas, in place, times `scale`, in buckets of at most `bucket_cap_mb` MiB."""
    cap, held = bucket_cap_mb << 20, 0
    bucket: list[Tensor] = []
    for gradient in gradients:
        if bucket and held + gradient.nbytes > cap:
            all_reduce(REDUCE_SUM, bucket, scale, groups, pin_layout)
            bucket, held = [], 0
        bucket.append(gradient)
        held += gradient.nbytes
    if bucket:
        all_reduce(REDUCE_SUM, bucket, scale, groups, pin_layout)


def optimizer_step(
    optimizer: Optimizer,
    barrier: bool = False,
    optimizer_args: Mapping[str, Arg] | None = None,
    groups: Sequence[Sequence[int]] | None = None,
    pin_layout: bool = True,
) -> Result:
    """Average the gradients over the replicas and step; returns what the step returns. `barrier` ends the step."""
    reduce_gradients(optimizer, groups=groups, pin_layout=pin_layout)
    with keeping():  # an optimizer's step would end the program
        loss = optimizer.step(**(optimizer_args or {}))
    if barrier:
        mark_step()
    return loss


def broadcast_master_param(model: Module) -> None:
    """Give the parameters and buffers of all replicas the values of ordinal 0, and end the step."""
    collective_broadcast([x.detach() for x in (*model.parameters(), *model.buffers())])
    mark_step()
