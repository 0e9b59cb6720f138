"""Recording which submodules a model calls, and which tensors they pass on, so that it can be cut between them.

The model is called once. Tensors are known by identity: the inputs of the model, and what submodules return. What is
computed between submodules is not recorded, so a tensor from there is an error.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from enum import Enum
from itertools import count
from typing import Any

import jax

from weft._base.state import using
from weft._tensor.tensor import Tensor
from weft.errors import ProgramError
from weft.nn import Module
from weft.random import fork_rng


class SplitPoint(Enum):
    """Where a model is split: before the call of a submodule, or after it."""

    BEGINNING = 1
    END = 2


@dataclass(frozen=True)
class Slot:
    """A tensor that goes from one call to others, by its number."""

    number: int


@dataclass(frozen=True)
class Call:
    """A call of a submodule: its arguments and results, with slots in place of tensors."""

    name: str
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    results: Any


@dataclass
class Recording:
    """The calls of a model, in order, in groups between split points; its arguments and its results.

    splitting   the names of the modules in which `pipe_split` was called
    """

    arguments: tuple[Any, dict[str, Any]]
    stages: list[list[Call]]
    results: Any
    splitting: set[str]


class _Running(threading.local):
    """The recorder of this thread, while a model is recorded."""

    recorder: _Recorder | None = None


_running = _Running()


def pipe_split() -> None:
    """Mark a boundary between stages in a model's `forward`, for `pipeline`. Elsewhere it does nothing."""
    if _running.recorder is not None:
        _running.recorder.split_here()


def recorded(
    module: Module, args: tuple[Any, ...], kwargs: dict[str, Any], split_spec: Mapping[str, SplitPoint]
) -> Recording:
    """What a model calls. `RuntimeError` if it passes on tensors that are computed outside of its submodules.

    Random numbers and buffers are as before.
    """
    opened = {""} | {parent for name in split_spec for parent in _parents(name)}
    while True:
        recording = _Recorder(module, opened, split_spec).run(args, kwargs)
        if recording.splitting <= opened:
            return recording
        opened |= {parent for name in recording.splitting for parent in (name, *_parents(name))}


def _parents(name: str) -> list[str]:
    """The names of the modules in which a submodule is."""
    words = name.split(".")
    return [".".join(words[:count]) for count in range(len(words))]


class _Recorder:
    """Watches one call of a model.

    opened  the modules whose own calls are recorded; those of others are recorded as a whole
    """

    def __init__(self, module: Module, opened: set[str], split_spec: Mapping[str, SplitPoint]) -> None:
        self._module = module
        self._opened = opened
        self._spec = split_spec
        self._slots_by_id: dict[int, tuple[Slot, int, Tensor]] = {}  # by identity: slot, version, and a reference to it
        self._numbers = count()
        self._stack: list[str] = []
        self._stages: list[list[Call]] = [[]]
        self._arguments: list[tuple[tuple[Any, ...], dict[str, Any]]] = []  # those of the call that is recorded
        self._splitting: set[str] = set()

    def run(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Recording:
        arguments = self._new_slots((args, kwargs))
        with ExitStack() as stack:
            stack.enter_context(_untouched(self._module))
            for name, submodule in self._module.named_modules():
                before = submodule.register_forward_pre_hook(self._before(name), prepend=True, with_kwargs=True)
                after = submodule.register_forward_hook(self._after(name), with_kwargs=True)
                stack.callback(before.remove)
                stack.callback(after.remove)
            stack.callback(setattr, _running, "recorder", _running.recorder)
            _running.recorder = self
            results = self._module(*args, **kwargs)
        return Recording(arguments, self._stages, self._slots_of(results, "the model returns"), self._splitting)

    def split_here(self) -> None:
        self._splitting.update(self._stack)
        self._stages.append([])

    def _is_recorded(self) -> bool:
        """Whether the innermost module is one whose call is recorded as a whole, and is in no other such one."""
        *parents, name = self._stack
        return name not in self._opened and all(parent in self._opened for parent in parents)

    def _before(self, name: str) -> Callable[..., None]:
        def hook(_: Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
            if self._spec.get(name) is SplitPoint.BEGINNING:
                self._stages.append([])
            self._stack.append(name)
            if self._is_recorded():
                self._arguments.append(self._slots_of((args, kwargs), f"{name!r} takes"))

        return hook

    def _after(self, name: str) -> Callable[..., None]:
        def hook(_: Module, args: tuple[Any, ...], kwargs: dict[str, Any], results: Any) -> None:
            if self._is_recorded():
                positional, named = self._arguments.pop()
                self._stages[-1].append(Call(name, positional, named, self._new_slots(results)))
            self._stack.pop()
            if self._spec.get(name) is SplitPoint.END:
                self._stages.append([])

        return hook

    def _new_slots(self, structure: Any) -> Any:
        """The structure with slots in place of its tensors: new ones, unless they are known and unchanged."""

        def slot(leaf: Any) -> Any:
            if not isinstance(leaf, Tensor):
                return leaf
            if not self._is_known(leaf):
                self._slots_by_id[id(leaf)] = Slot(next(self._numbers)), leaf._version, leaf
            return self._slots_by_id[id(leaf)][0]

        return jax.tree.map(slot, structure)

    def _is_known(self, tensor: Tensor) -> bool:
        entry = self._slots_by_id.get(id(tensor))
        return entry is not None and entry[1] == tensor._version

    def _slots_of(self, structure: Any, what: str) -> Any:
        """The structure with the slots of its tensors; `RuntimeError` for one that no submodule has returned."""

        def slot(leaf: Any) -> Any:
            if not isinstance(leaf, Tensor):
                return leaf
            if not self._is_known(leaf):
                raise ProgramError(
                    f"pipeline(): {what} a tensor of shape {list(leaf.shape)} that is computed outside of the "
                    "submodules between which the model is split; move that computation into a submodule, or write the "
                    "stages as modules and make each a PipelineStage"
                )
            return self._slots_by_id[id(leaf)][0]

        return jax.tree.map(slot, structure)


@contextmanager
def _untouched(module: Module) -> Iterator[None]:
    """Keep random numbers and buffers as they are, and record no gradients."""
    buffers: Sequence[tuple[Tensor, Tensor]] = [(buffer, buffer.detach().clone()) for buffer in module.buffers()]
    with using(grad=False), fork_rng():
        try:
            yield
        finally:
            for buffer, before in buffers:
                buffer.copy_(before)
