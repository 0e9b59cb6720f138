"""Stages that are replicated or sharded by data parallelism: gradients are averaged once in a step."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext

from weft.distributed._ddp import DistributedDataParallel
from weft.nn._module import Module


def begin_step(module: Module) -> None:
    """Called before the first forward of a step."""
    if isinstance(module, DistributedDataParallel):
        module.require_forward_param_sync = True  # as after a step that has averaged: buffers are sent once in a step


def forward_apart(module: Module) -> AbstractContextManager[None]:
    """A context for a forward, which does not ask for averages, as other backwards may come before its own."""
    return module.no_sync() if isinstance(module, DistributedDataParallel) else nullcontext()


def begin_backward(module: Module, *, last: bool) -> None:
    """Called before a backward: the last one of a step averages the gradients of all, unless within `no_sync()`."""
    if isinstance(module, DistributedDataParallel) and last and module.require_backward_grad_sync:
        module.reducer.expect(sync=True)
    elif hasattr(module, "set_requires_gradient_sync"):  # a module under fully_shard
        module.set_requires_gradient_sync(last)
