"""Modes that see every operator of PyTorch's, and what subclasses with `__torch_dispatch__` are written with."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Self

from weft._base.types import AnyCallable, Args, Kwargs, Result
from weft._interop.aten.functions import modes, set_modes


class TorchDispatchMode:
    """Is asked before each operator in a block, `with Mode():`, whatever its arguments are.

    A subclass defines `__torch_dispatch__(self, func, types, args=(), kwargs=None)`. `func` is an operator, such as
    `torch.ops.aten.add.Tensor`, and not the function that was called. While it runs, the mode is off, and the next
    outer mode is on.
    """

    @classmethod
    def is_infra_mode(cls) -> bool:
        """False: modes of PyTorch's own machinery come first in its stack."""
        return False

    def __torch_dispatch__(
        self, func: AnyCallable, types: Iterable[type], args: Args = (), kwargs: Kwargs | None = None
    ) -> Result:
        """What is called in place of `func(*args, **kwargs)`; `types` are the classes of arguments that dispatch."""
        raise NotImplementedError(f"{type(self).__name__} must define __torch_dispatch__")

    def __enter__(self) -> Self:
        set_modes((*modes(), self))
        return self

    def __exit__(self, *_: object) -> None:
        set_modes(modes()[:-1])


class BaseTorchDispatchMode(TorchDispatchMode):
    """A mode that calls every operator."""

    def __torch_dispatch__(
        self, func: AnyCallable, types: Iterable[type], args: Args = (), kwargs: Kwargs | None = None
    ) -> Result:
        """The result of `func`."""
        return func(*args, **(kwargs or {}))


def _get_current_dispatch_mode() -> TorchDispatchMode | None:
    stack = modes()
    return stack[-1] if stack else None


def _get_current_dispatch_mode_stack() -> list[TorchDispatchMode]:
    return list(modes())


def is_in_torch_dispatch_mode(include_infra_modes: bool = True) -> bool:
    """Whether a mode is on."""
    return bool(modes())


@contextmanager
def _disable_current_modes() -> Iterator[list[TorchDispatchMode]]:
    stack = modes()
    set_modes(())
    try:
        yield list(stack)
    finally:
        set_modes(stack)


@contextmanager
def _pop_mode_temporarily(k: object = None) -> Iterator[TorchDispatchMode]:
    stack = modes()
    set_modes(stack[:-1])
    try:
        yield stack[-1]
    finally:
        set_modes(stack)
