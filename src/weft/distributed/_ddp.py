"""Data-parallel training: replicas of a module in all processes, whose gradients are averaged in each backward pass."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from weft._base.state import ambient, using
from weft._tensor.spelling import op as rows
from weft.distributed import _collectives
from weft.distributed._bucket import buckets_of
from weft.distributed._group import ProcessGroup
from weft.distributed._objects import all_gather_object
from weft.distributed._reducer import MEGABYTE, Hook, Reducer, _taken_apart
from weft.distributed._world import require_group
from weft.errors import ArgumentError, OptionError, PreconditionError, ValueRangeError
from weft.nn import Module

_COALESCED = 250 * MEGABYTE


class DistributedDataParallel(Module):
    """A replica of `module`: starts from rank 0's parameters and buffers, and averages gradients with the others.

    Gradients travel in buckets of `bucket_cap_mb` MB (25 unless given; the first has one), started in the order in
    which they become ready, while the backward pass goes on. Each rank has the same parameters with the same
    names, sizes and types; `RuntimeError` names the first that differs. `find_unused_parameters` is for models
    whose loss does not depend on all of them. Buffers are those of rank 0 in each forward pass that trains, unless
    `broadcast_buffers` is False.
    """

    def __init__(
        self, module: Any, device_ids: Any = None, output_device: Any = None, dim: int = 0,
        broadcast_buffers: bool = True, init_sync: bool = True, process_group: Any = None,
        bucket_cap_mb: float | None = None, find_unused_parameters: bool = False, check_reduction: bool = False,
        gradient_as_bucket_view: bool = False, static_graph: bool = False,
    ) -> None:  # fmt: skip
        super().__init__()
        del output_device, check_reduction, device_ids
        if bucket_cap_mb is not None and bucket_cap_mb <= 0:
            raise ValueRangeError(f"bucket_cap_mb must be positive, but got {bucket_cap_mb}")
        trained = [(name, p) for name, p in module.named_parameters() if p.requires_grad]
        if not trained:
            raise OptionError(
                "DistributedDataParallel is not needed when a module doesn't have any parameter that requires a "
                "gradient."
            )
        self.module = module
        self.dim = dim
        self.broadcast_buffers = broadcast_buffers
        self.find_unused_parameters = find_unused_parameters
        self.gradient_as_bucket_view = gradient_as_bucket_view
        self.static_graph = static_graph
        self.require_backward_grad_sync = True
        self.process_group: ProcessGroup = require_group(process_group)
        ignored = getattr(module, "_ddp_params_and_buffers_to_ignore", ())
        self._buffers_sent = [b for name, b in module.named_buffers() if name not in ignored]
        trained = [(name, p) for name, p in trained if name not in ignored]
        if init_sync:
            self._verify(trained)
            self._broadcast([p for name, p in module.named_parameters() if name not in ignored] + self._buffers_sent)
        cap = int((25 if bucket_cap_mb is None else bucket_cap_mb) * MEGABYTE)
        limits = [cap] if bucket_cap_mb is not None else [MEGABYTE, cap]
        self.reducer = Reducer(
            [p for _, p in trained], [name for name, _ in trained], self.process_group, limits,
            find_unused=find_unused_parameters, static=static_graph,
        )  # fmt: skip

    def _verify(self, trained: list[tuple[str, Any]]) -> None:
        """Raise unless all ranks have the same parameters."""
        mine = [(name, tuple(p.shape), str(p.dtype)) for name, p in trained]
        listed: list[Any] = [None] * self.process_group.size()
        all_gather_object(listed, mine, self.process_group)
        for rank, theirs in enumerate(listed):
            for own, other in zip(mine, theirs, strict=False):
                if own != other:
                    raise OptionError(
                        f"DDP expects the same model across all ranks, but rank {self.process_group.rank()} has the "
                        f"parameter {_shown(own)} where rank {rank} has {_shown(other)}"
                    )
            if len(mine) != len(theirs):
                raise OptionError(
                    f"DDP expects the same model across all ranks, but Rank {self.process_group.rank()} has "
                    f"{len(mine)} params, while rank {rank} has inconsistent {len(theirs)} params."
                )

    def _broadcast(self, tensors: list[Any]) -> None:
        """Give all ranks the tensors of rank 0, several in one message."""
        if not tensors:
            return
        sizes = [t.numel() * t.dtype.itemsize for t in tensors]
        for bucket in buckets_of(sizes, [t.dtype for t in tensors], [_COALESCED]):
            chosen = [tensors[at] for at in bucket]
            with using(grad=False):
                flat = rows.cat([rows.reshape(t.detach(), (-1,)) for t in chosen])
                _collectives.broadcast(flat, group=self.process_group, group_src=0)
                if self.process_group.rank():
                    for tensor, part in zip(chosen, _taken_apart(flat, chosen), strict=True):
                        tensor.copy_(part)

    def forward(self, *inputs: Any, **kwargs: Any) -> Any:
        """The module's results. Buffers are made equal first."""
        trains = ambient().grad and self.require_backward_grad_sync
        if trains and self.broadcast_buffers:
            self._broadcast(self._buffers_sent)
        found = self.module(*inputs, **kwargs)
        if trains:
            self.reducer.prepare()
        return found

    @contextmanager
    def no_sync(self) -> Iterator[None]:
        """Gradients of passes in the block stay with their rank; the first pass after it averages all of them."""
        before, self.require_backward_grad_sync = self.require_backward_grad_sync, False
        try:
            yield
        finally:
            self.require_backward_grad_sync = before

    def register_comm_hook(self, state: Any, hook: Hook) -> None:
        """Call `hook(state, bucket)` in place of the average; its future gives the bucket's gradients, flat."""
        if not callable(hook):
            raise ArgumentError("Communication hook must be callable.")
        if self.reducer.hook is not None:
            raise OptionError("register_comm_hook or register_builtin_comm_hook can only be called once.")
        self.reducer.hook, self.reducer.hook_state = hook, state

    def __getstate__(self) -> dict[str, Any]:
        raise PreconditionError(
            "a DistributedDataParallel holds a process group and cannot be pickled or copied; save its module, or its "
            "state_dict()"
        )


def _shown(parameter: tuple[str, tuple[int, ...], str]) -> str:
    name, shape, dtype = parameter
    return f"{name} of shape {list(shape)} and type {dtype}"
