"""Contexts of distributed autograd, and backward passes in them."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import contextmanager
from typing import Literal

from weft._base.guards import is_int, is_list_or_tuple_of
from weft._tensor.tensor import Tensor, wrap
from weft.distributed.rpc._backward import run
from weft.distributed.rpc._context_release import release
from weft.distributed.rpc._contexts import current_context, use_context
from weft.distributed.rpc._state import current_agent
from weft.errors import ArgumentError, GradientError, ValueRangeError


@contextmanager
def context() -> Generator[int]:
    """A context of distributed autograd; yields its id, for backward passes over all workers.

    Calls within the block record the sent and received tensors that need gradients, and so do the calls made by the
    called functions. At the end of the block all workers release their part of the context. `RuntimeError` if this
    thread is already in a context.
    """
    agent = current_agent()
    if current_context() is not None:
        raise GradientError("Already have an autograd context id for this thread.")
    new_context = agent.contexts.make()
    try:
        with use_context(new_context):
            yield new_context.id
    finally:
        release(agent, new_context.id)


def backward(
    context_id: int,
    roots: Tensor | Sequence[Tensor],
    retain_graph: bool = False,
    *,
    mode: Literal["fast", "smart"] = "smart",
) -> None:
    """Differentiate scalars of this worker with respect to the leaves on all workers that they depend on.

    Returns when all workers are done. Each has the gradients of its leaves in the context (`get_gradients`); `.grad` is
    not changed. With `retain_graph`, a second pass over the same tensors is possible.

    `mode="fast"` saves a round of messages. It requires that the roots depend on all tensors that were sent in the
    context; a `RuntimeError` names those for which this is false, where PyTorch would wait for ever.

    `RuntimeError` for an unknown context, for roots that are not scalars or need no gradient, and for errors on other
    workers.
    """
    agent = current_agent()
    if not is_int(context_id):
        raise ArgumentError(
            "backward(): incompatible function arguments: context_id must be an int, as context() gives it, but got "
            f"{context_id!r}"
        )
    if mode not in ("fast", "smart"):
        raise ValueRangeError(f"mode must be 'fast' or 'smart', but got {mode!r}")
    root_tensors = [roots] if isinstance(roots, Tensor) else roots
    if not is_list_or_tuple_of(root_tensors, Tensor):
        raise ArgumentError(
            f"backward(): incompatible function arguments: roots must be a list of tensors, but got {roots!r}"
        )
    run(agent, context_id, list(root_tensors), retain_graph, mode == "smart")


def get_gradients(context_id: int) -> dict[Tensor, Tensor]:
    """The gradients of this worker's leaves in a context. `RuntimeError` for an unknown context."""
    gradients = current_agent().contexts.existing(context_id).gradients
    gradients_by_tensor = {role.owner(): grad for role, grad in list(gradients.items())}
    return {tensor: wrap(grad) for tensor, grad in gradients_by_tensor.items() if tensor is not None}


def debug_info() -> dict[str, str]:
    """The numbers of running backward passes on this worker and of contexts, as texts."""
    return {name: str(figure) for name, figure in current_agent().contexts.figures().items()}


def is_available() -> bool:
    """True: distributed autograd is always available."""
    return True


# PyTorch has it under this name
_get_debug_info = debug_info
