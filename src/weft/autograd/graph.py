"""The graph that backward passes run on: its nodes and edges, hooks on these, and hooks on what they save."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial, wraps
from typing import Any

from weft._autograd.engine import BackwardPass, current_pass
from weft._base.cell import LocalCell
from weft._base.device import device
from weft._base.handles import RemovableHandle
from weft._base.state import ambient, enter, leave, using
from weft._base.types import Arg
from weft._lazy.role import custom_of
from weft._tensor.alias import owner_of
from weft._tensor.node import GradientEdge as GradientEdge
from weft._tensor.node import Node as Node
from weft._tensor.node import grad_fn_of, node_of
from weft._tensor.saved import Packing
from weft._tensor.tensor import Tensor
from weft.errors import GradientError, PreconditionError, ValueRangeError

# --- saved tensors ----------------------------------------------------------------------------------------------

_disabled = LocalCell[str | None]("the error of hooks on saved tensors", None)


class saved_tensors_hooks:
    """A block in which tensors that derivatives will read are packed, and are unpacked when they are read.

    `pack_hook(tensor)` is called, without gradients, for each tensor that an operator or `save_for_backward` saves.
    What it returns is kept instead of the tensor. `unpack_hook(packed)` is called wherever a backward pass, or
    `grad_fn._saved_...`, reads it, and must return a tensor of the same shape, type and device. In nested blocks, the
    hooks of the innermost one are called. Numbers are not packed.

    A backward pass raises `TypeError` if `unpack_hook` returns anything but a tensor. `pack_hook` must not write to the
    tensor: `RuntimeError`.
    """

    def __init__(self, pack_hook: Callable[[Tensor], Arg], unpack_hook: Callable[[Arg], Tensor]) -> None:
        self.pack_hook = pack_hook
        self.unpack_hook = unpack_hook
        self._tokens: list[Any] = []

    def __enter__(self) -> None:
        message = _disabled.get()
        if message is not None:
            raise GradientError(message)
        others = [observe for observe in ambient().watchers.observers if not isinstance(observe, Packing)]
        self._tokens.append(enter(observers=(*others, Packing(self.pack_hook, self.unpack_hook))))

    def __exit__(self, *_: object) -> None:
        leave(self._tokens.pop())


class save_on_cpu(saved_tensors_hooks):
    """A block in which tensors that derivatives will read are kept on the CPU, and moved back when they are read.

    `pin_memory` and `device_type` are accepted for compatibility.
    """

    def __init__(self, pin_memory: bool = False, device_type: str = "cuda") -> None:
        del pin_memory, device_type
        super().__init__(_to_cpu, _from_cpu)


def _to_cpu(tensor: Tensor) -> tuple[device, Tensor]:
    return tensor.device, tensor.cpu()


def _from_cpu(packed: tuple[device, Tensor]) -> Tensor:
    return packed[1].to(packed[0])


@contextmanager
def disable_saved_tensors_hooks(error_message: str) -> Iterator[None]:
    """A block in which `saved_tensors_hooks` raises `RuntimeError` with this message."""
    if any(isinstance(observe, Packing) for observe in ambient().watchers.observers):
        raise GradientError(error_message)
    with _disabled.within(error_message):
        yield


@contextmanager
def allow_mutation_on_saved_tensors() -> Iterator[None]:
    """A block in which tensors that derivatives will read may be written: they may be everywhere.

    Values are immutable here, and a write gives a tensor another one. `RuntimeError` if such blocks are nested.
    """
    if _mutation_allowed.get():
        raise GradientError("allow_mutation_on_saved_tensors contexts cannot be nested")
    with _mutation_allowed.within(True):
        yield


_mutation_allowed = LocalCell("whether saved tensors may be written", False)


def increment_version(tensor: Tensor | Iterable[Tensor]) -> None:
    """Count a write to a tensor, or to several, in `_version`."""
    for x in [tensor] if isinstance(tensor, Tensor) else tensor:
        owner_of(x)._writes += 1


# --- nodes and edges --------------------------------------------------------------------------------------------


def get_gradient_edge(tensor: Tensor) -> GradientEdge:
    """The place in the graph where the gradient of a tensor is computed; `grad` and `backward` take it for the tensor.

    Unlike the tensor, it holds no elements. `RuntimeError` for a tensor that requires no gradient.
    """
    if not tensor.requires_grad:
        raise GradientError("It is not possible to get the gradient edge for a Tensor that does not require gradients")
    value = tensor._read()
    node = node_of(value)
    role = value.role
    is_users = custom_of(role) is not None
    with using(grad=True):
        token = grad_fn_of(tensor.view_as(tensor)) if is_users else None
    return GradientEdge(node, tensor.output_nr, token)


class _Handles:
    """Removes several hooks."""

    def __init__(self, handles: Sequence[RemovableHandle]) -> None:
        self.handles = tuple(handles)

    def remove(self) -> None:
        """Remove the hooks."""
        for handle in self.handles:
            handle.remove()

    def __enter__(self) -> _Handles:
        return self

    def __exit__(self, *_: object) -> None:
        self.remove()


def register_multi_grad_hook(tensors: Sequence[Tensor], fn: Callable[..., None], *, mode: str = "all") -> _Handles:
    """Call `fn` once in each backward pass that computes gradients of `tensors`; the handle's `remove()` ends it.

    With mode "all", `fn(gradients)` is called when all are computed that this pass will compute; None stands for the
    others. With mode "any", `fn(gradient)` is called for the first one. `ValueError` for another mode.
    """
    if mode not in ("all", "any"):
        raise ValueRangeError(f"Expects mode to be one of ('all', 'any') but got {mode}")
    if mode == "all":
        gathered = _Gathered(list(tensors), fn)
        return _Handles([x.register_hook(partial(gathered.arrived, at)) for at, x in enumerate(tensors)])
    last: list[BackwardPass | None] = [None]
    lock = threading.Lock()

    @wraps(fn)
    def first(grad: Tensor) -> None:
        running = current_pass()
        with lock:
            before, last[0] = last[0], running
        if before is not running:
            fn(grad)

    return _Handles([x.register_hook(first) for x in tensors if x.requires_grad])


class _Gathered:
    """The gradients of several tensors in the passes that are running."""

    def __init__(self, tensors: list[Tensor], fn: Callable[[Sequence[Tensor | None]], None]) -> None:
        if not all(x.requires_grad for x in tensors):
            raise PreconditionError(
                "Expected gradient function to be set: register_multi_grad_hook(mode='all') takes only tensors that "
                f"require gradients, and the one at index {[x.requires_grad for x in tensors].index(False)} does not"
            )
        self._edges = [get_gradient_edge(x) for x in tensors]
        self._fn = fn
        self._lock = threading.Lock()
        self._arrived: dict[BackwardPass, tuple[int, dict[int, Tensor]]] = {}

    def arrived(self, at: int, grad: Tensor) -> None:
        """The hook of the tensor at a position."""
        running = current_pass()
        assert running is not None, "hooks are called by passes"
        with self._lock:
            expected, grads = self._arrived.setdefault(
                running, (sum(running.will_reach(edge.place) for edge in self._edges), {})
            )
            grads[at] = grad
            complete = len(grads) == expected
            if complete:
                del self._arrived[running]
        if complete:
            self._fn([grads.get(index) for index in range(len(self._edges))])


def set_warn_on_accumulate_grad_stream_mismatch(enabled: bool) -> None:
    """Accepted for compatibility: XLA orders what it computes by what it reads, so streams cannot differ."""
    del enabled


def set_override_stale_capture_stream(enabled: bool) -> None:
    """Accepted for compatibility, as `set_warn_on_accumulate_grad_stream_mismatch` is."""
    del enabled
