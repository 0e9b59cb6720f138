"""Recording which submodules a model calls, and which tensors they pass on, so that it can be cut between them.

The model is called once. Tensors are known by identity: the inputs of the model, what submodules return, and what
functions return that are called between submodules; parameters, buffers and tensors among a module's attributes by the
module's name. A tensor from elsewhere is an error.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from enum import Enum
from itertools import count
from operator import attrgetter

import jax

from weft._base.state import ambient, using
from weft._base.types import AnyCallable, Args, Kwargs, PyTree, Result
from weft._tensor.tensor import Tensor
from weft.distributed.pipelining.microbatch import Arguments
from weft.errors import ProgramError
from weft.nn import Module
from weft.overrides import TorchFunctionMode
from weft.random import fork_rng


class SplitPoint(Enum):
    """Where a model is split: before the call of a submodule, or after it."""

    BEGINNING = 1
    END = 2


@dataclass(frozen=True)
class TracedSlot:
    """A tensor that goes from one call to others, by its number."""

    number: int


@dataclass(frozen=True)
class TracingState:
    """A parameter, a buffer or another tensor of a module, by its name in the model."""

    name: str


_version: Callable[[Tensor], int] = attrgetter("_version")  # PyTorch's name


def own_tensors(module: Module) -> dict[str, Tensor]:
    """A module's parameters, buffers and other tensors by name, without those of its submodules."""
    parameters = module.named_parameters(recurse=False, remove_duplicate=False)
    buffers = module.named_buffers(recurse=False, remove_duplicate=False)
    others = {name: x for name, x in vars(module).items() if isinstance(x, Tensor)}
    return {**dict(parameters), **dict(buffers), **others}


@dataclass(frozen=True)
class StageCall:
    """A call of a submodule, by name, or of a function: its arguments and results, with slots in place of tensors.

    grad   whether it records gradients, if the call of the model does
    """

    target: str | AnyCallable
    args: Args
    kwargs: Kwargs
    results: PyTree
    grad: bool

    @property
    def name(self) -> str:
        """The submodule's name, or the function's."""
        return self.target if isinstance(self.target, str) else getattr(self.target, "__name__", repr(self.target))


@dataclass
class StageRecording:
    """The calls of a model, in order, in groups between split points; its arguments and its results.

    splitting   the names of the modules in which `pipe_split` was called
    """

    arguments: Arguments
    stages: list[list[StageCall]]
    results: PyTree
    splitting: set[str]


class _Running(threading.local):
    """The recorder of this thread, while a model is recorded."""

    recorder: _Recorder | None = None


# no cell: set only while a model is traced
_running = _Running()


def pipe_split() -> None:
    """Mark a boundary between stages in a model's `forward`, for `pipeline`. Elsewhere it does nothing."""
    if _running.recorder is not None:
        _running.recorder.split_here()


def recorded(module: Module, args: Args, kwargs: Kwargs, split_spec: Mapping[str, SplitPoint]) -> StageRecording:
    """What a model calls. `RuntimeError` if it passes on tensors of unknown origin.

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
        self._slots_by_id: dict[
            int, tuple[TracedSlot, int, Tensor]
        ] = {}  # by identity: slot, version, and a reference to it
        self._numbers = count()
        self._stack: list[str] = []
        self._stages: list[list[StageCall]] = [[]]
        self._arguments: list[Arguments] = []  # those of the call that is recorded
        self._splitting: set[str] = set()
        self._states = {
            id(x): TracingState(f"{prefix}.{name}" if prefix else name)
            for prefix, submodule in module.named_modules()
            for name, x in own_tensors(submodule).items()
        }

    def run(self, args: Args, kwargs: Kwargs) -> StageRecording:
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
            stack.enter_context(_FunctionMode(self))
            results = self._module(*args, **kwargs)
        return StageRecording(arguments, self._stages, self._slots_of(results, "the model returns"), self._splitting)

    def split_here(self) -> None:
        self._splitting.update(self._stack)
        self._stages.append([])

    def call_function(self, function: AnyCallable, args: Args, kwargs: Kwargs) -> Result:
        """Call a function and record it, unless that is a part of a submodule that is recorded as a whole."""
        if any(name not in self._opened for name in self._stack):
            return function(*args, **kwargs)
        tensors = [leaf for leaf in jax.tree.leaves((args, kwargs)) if isinstance(leaf, Tensor)]
        versions = [_version(tensor) for tensor in tensors]
        grad = ambient().grad
        result = function(*args, **kwargs)
        written = [tensor for tensor, before in zip(tensors, versions, strict=True) if _version(tensor) != before]
        if written or any(isinstance(leaf, Tensor) for leaf in jax.tree.leaves(result)):
            name = getattr(function, "__name__", "a function")
            positional, named = self._slots_of((args, kwargs), f"{name}() takes", written)
            for tensor in written:  # the same tensor, with other contents
                if (entry := self._slots_by_id.get(id(tensor))) is not None:
                    self._slots_by_id[id(tensor)] = entry[0], _version(tensor), tensor
            self._stages[-1].append(StageCall(function, positional, named, self._new_slots(result), grad))
        return result

    def _is_recorded(self) -> bool:
        """Whether the innermost module is one whose call is recorded as a whole, and is in no other such one."""
        *parents, name = self._stack
        return name not in self._opened and all(parent in self._opened for parent in parents)

    def _before(self, name: str) -> Callable[..., None]:
        def hook(_: Module, args: Args, kwargs: Kwargs) -> None:
            if self._spec.get(name) is SplitPoint.BEGINNING:
                self._stages.append([])
            self._stack.append(name)
            if self._is_recorded():
                self._arguments.append(self._slots_of((args, kwargs), f"{name!r} takes"))

        return hook

    def _after(self, name: str) -> Callable[..., None]:
        def hook(_: Module, args: Args, kwargs: Kwargs, results: PyTree) -> None:
            if self._is_recorded():
                positional, named = self._arguments.pop()
                self._stages[-1].append(StageCall(name, positional, named, self._new_slots(results), ambient().grad))
            self._stack.pop()
            if self._spec.get(name) is SplitPoint.END:
                self._stages.append([])

        return hook

    def _new_slots(self, structure: PyTree) -> PyTree:
        """The structure with slots in place of its tensors: new ones, unless they are known and unchanged."""

        def slot(leaf: object) -> object:
            if not isinstance(leaf, Tensor):
                return leaf
            if not self._is_known(leaf):
                self._slots_by_id[id(leaf)] = TracedSlot(next(self._numbers)), _version(leaf), leaf
            return self._slots_by_id[id(leaf)][0]

        return jax.tree.map(slot, structure)

    def _is_known(self, tensor: Tensor) -> bool:
        entry = self._slots_by_id.get(id(tensor))
        return entry is not None and entry[1] == _version(tensor)

    def _slots_of(self, structure: PyTree, what: str, written: Sequence[Tensor] = ()) -> PyTree:
        """The structure with the slots of its tensors; `RuntimeError` for one that is not known.

        Those that have just been `written` are known by what they were before.
        """
        # What was just written in place has another version than the one that `_is_known` compares.
        written_ids = {id(tensor) for tensor in written}

        def slot(leaf: object) -> object:
            if not isinstance(leaf, Tensor):
                return leaf
            if self._is_known(leaf) or (id(leaf) in written_ids and id(leaf) in self._slots_by_id):
                return self._slots_by_id[id(leaf)][0]
            if id(leaf) in self._states:
                return self._states[id(leaf)]
            raise ProgramError(
                f"pipeline(): {what} a tensor of shape {list(leaf.shape)} that no recorded call has returned, or that "
                "was written through another view of it; move that computation into a submodule, or write the stages "
                "as modules and make each a PipelineStage"
            )

        return jax.tree.map(slot, structure)


class _FunctionMode(TorchFunctionMode):
    """Shows a recorder the functions that are called."""

    def __init__(self, recorder: _Recorder) -> None:
        super().__init__()
        self._recorder = recorder

    def __torch_function__(
        self, func: AnyCallable, types: object, args: Args = (), kwargs: Kwargs | None = None
    ) -> Result:
        return self._recorder.call_function(func, args, kwargs or {})


@contextmanager
def _untouched(module: Module) -> Generator[None]:
    """Keep random numbers and buffers as they are."""
    buffers: Sequence[tuple[Tensor, Tensor]] = [(buffer, buffer.detach().clone()) for buffer in module.buffers()]
    with using(grad=True), fork_rng():  # blocks of the model without gradients differ from it
        try:
            yield
        finally:
            with using(grad=False):
                for buffer, before in buffers:
                    buffer.copy_(before)
