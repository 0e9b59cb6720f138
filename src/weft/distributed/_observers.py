"""Observers of what a thread exchanges with other processes."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from functools import wraps
from typing import Concatenate, ParamSpec, Protocol, TypeVar

from weft._base.cell import LocalCell
from weft._lazy.value import Value
from weft._tensor.tensor import Tensor

P = ParamSpec("P")
R = TypeVar("R")

NAMES = {
    "all_reduce": "allreduce_",
    "all_reduce_coalesced": "allreduce_coalesced_",
    "broadcast": "broadcast_",
    "all_gather": "allgather_",
    "all_gather_coalesced": "allgather_coalesced_",
    "all_gather_into_tensor": "_allgather_base_",
    "all_gather_into_tensor_coalesced": "allgather_into_tensor_coalesced_",
    "reduce": "reduce_",
    "gather": "gather_",
    "scatter": "scatter_",
    "reduce_scatter": "reduce_scatter_",
    "reduce_scatter_tensor": "_reduce_scatter_base_",
    "reduce_scatter_tensor_coalesced": "reduce_scatter_tensor_coalesced_",
    "all_to_all": "alltoall_",
    "all_to_all_single": "alltoall_base_",
}
"""PyTorch's names of the collectives of process groups. Those that return new tensors have other names there."""


class Observer(Protocol):
    """Is told of what its thread exchanges, in forward and backward passes; it may raise before anything is sent."""

    def on_collective(self, name: str, values: Sequence[Value], *, requested: bool) -> None:
        """These values are about to be sent by a collective, under PyTorch's name.

        requested   False where a backward pass on distributed tensors needs it: neither has the program called for it,
                    nor is it a part of a redistribution
        """
        ...

    def on_redistribution(self, text: str, *, sends: bool) -> None:
        """An operator is about to move a distributed tensor, for which the program has not called.

        text    which tensor, from where to where
        sends   whether something is sent for it
        """
        ...


class _Thread(threading.local):
    def __init__(self) -> None:
        self.requested = False
        self.within = False  # a collective, of which others are a part


# no cell: blocks that end within the call that they begin in
_thread = _Thread()


_observers = LocalCell[tuple[Observer, ...]]("the observers of collectives", ())


def observers() -> tuple[Observer, ...]:
    """Those of this thread, the innermost last."""
    return _observers.get()


def observe(observer: Observer) -> None:
    """Tell an observer of what this thread sends from now on."""
    _observers.set((*_observers.get(), observer))


def stop_observing(observer: Observer) -> None:
    """Tell an observer of nothing more."""
    _observers.set(tuple([other for other in _observers.get() if other is not observer]))


def _announce(name: str, values: Sequence[Value], requested: bool) -> None:
    """Tell the observers of this thread of a collective, unless it is a part of another one."""
    if not _thread.within:
        for observer in _observers.get():
            observer.on_collective(name, values, requested=requested or _thread.requested)


class collective:
    """A block that is one collective, whatever it calls.

    With `apart`, it is no part of the collective within which it runs, and which only needs values that have to be sent
    first.
    """

    __slots__ = ("_apart", "_before", "_name", "_requested", "_values")

    def __init__(self, name: str, values: Sequence[Value], *, requested: bool = True, apart: bool = False) -> None:
        self._name, self._values, self._requested, self._apart = name, values, requested, apart

    def __enter__(self) -> None:
        self._before = _thread.within
        _thread.within = self._before and not self._apart
        _announce(self._name, self._values, self._requested)
        _thread.within = True

    def __exit__(self, *_: object) -> None:
        _thread.within = self._before


def is_collective(
    name: str,
) -> Callable[[Callable[Concatenate[Tensor, P], R]], Callable[Concatenate[Tensor, P], R]]:
    """Mark a function of a tensor as one collective, whatever it calls."""

    def mark(function: Callable[Concatenate[Tensor, P], R]) -> Callable[Concatenate[Tensor, P], R]:
        @wraps(function)
        def call(self: Tensor, *args: P.args, **kwargs: P.kwargs) -> R:
            with collective(name, (self._read(),)):
                return function(self, *args, **kwargs)

        return call

    return mark


def note_collective(operation: str, tensors: Sequence[Tensor]) -> None:
    """Tell the observers of a collective of a process group."""
    if _observers.get() and operation in NAMES:
        _announce(NAMES[operation], [tensor._read() for tensor in tensors], requested=True)


def note_redistribution(text: str, *, sends: bool) -> None:
    """Tell the observers that an operator is about to move a distributed tensor, if the program has not called for it.

    What is sent for it is sent within `requested`, since they know of it.
    """
    if not _thread.requested:
        for observer in _observers.get():
            observer.on_redistribution(text, sends=sends)


class requested:
    """A block in which what is moved is called for by the program, or observers know of it."""

    __slots__ = ("_before",)

    def __enter__(self) -> None:
        self._before, _thread.requested = _thread.requested, True

    def __exit__(self, *_: object) -> None:
        _thread.requested = self._before
