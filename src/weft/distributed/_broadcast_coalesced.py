"""Broadcast of several tensors in one message."""

from __future__ import annotations

from collections.abc import Container, Sequence

from weft._base.state import using
from weft._tensor.codegen import op as rows
from weft._tensor.tensor import Tensor
from weft.distributed import _collectives
from weft.distributed import _recorded as recorded
from weft.distributed._bucket import buckets_of
from weft.distributed._grad_bucket import split_like
from weft.distributed._group import ProcessGroup
from weft.nn import Module

_MESSAGE = 250 << 20  # bytes of a message, as in PyTorch


def broadcast_coalesced(tensors: Sequence[Tensor], source: int, group: ProcessGroup, *, record: bool = False) -> None:
    """Copy the values of `tensors` from the group's rank `source` to all ranks; outside the tape.

    With `record`, operators do so in the program that the ranks run together.
    """
    sizes = [t.numel() * t.dtype.itemsize for t in tensors]
    for bucket in buckets_of(sizes, [(t.dtype, t.device) for t in tensors], [_MESSAGE]):
        chosen = [tensors[at] for at in bucket]
        with using(grad=False):
            flat = rows.cat([rows.reshape(t.detach(), (-1,)) for t in chosen])
            if record:
                flat = recorded.broadcast(flat, source)
            else:
                _collectives.broadcast(flat, group=group, group_src=source)
            if record or group.rank() != source:  # all ranks record the same
                for one, part in zip(chosen, split_like(flat, chosen), strict=True):
                    one.copy_(part)


def _sync_module_states(
    module: Module,
    process_group: ProcessGroup,
    broadcast_bucket_size: int,
    src: int,
    params_and_buffers_to_ignore: Container[str],
    broadcast_buffers: bool = True,
) -> None:
    """Copy a module's parameters, and its buffers, from a rank of a group to the others."""
    del broadcast_bucket_size
    named = [*module.named_parameters(), *(module.named_buffers() if broadcast_buffers else ())]
    tensors = [tensor.detach() for name, tensor in named if name not in params_and_buffers_to_ignore]
    broadcast_coalesced(tensors, src, process_group)
