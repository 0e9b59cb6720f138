"""Splitting a model into stages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias, TypeVar

import jax

from weft._base.device import DeviceLike
from weft._base.state import ambient, using
from weft._base.types import Arg, Args, Kwargs, PyTree, Result
from weft._tensor.tensor import Tensor
from weft.distributed._world import AnyGroup
from weft.distributed.pipelining._tracing import (
    SplitPoint,
    StageCall,
    StageRecording,
    TracedSlot,
    TracingState,
    own_tensors,
    recorded,
)
from weft.distributed.pipelining._transfers import map_tensors
from weft.distributed.pipelining.stage import PipelineStage
from weft.errors import LacksAttributeError, ProgramError, ValueRangeError
from weft.nn import Module, ModuleList

L = TypeVar("L")


StageInputs: TypeAlias = tuple[PyTree, Kwargs | None]
"""What a stage takes: the model's arguments, for the first one, or slots and None."""


@dataclass(frozen=True)
class PipeInfo:
    """What a stage needs to know of its pipeline."""

    num_stages: int


class _Part(Module):
    """A stage: calls of submodules, which have the names that they have in the model, and of functions between them.

    The first one takes the arguments of the model, the last one returns its results. Otherwise a part takes and
    returns the tensors that later ones need: one, or a tuple of several.
    """

    def __init__(
        self,
        calls: Sequence[StageCall],
        inputs: StageInputs,
        results: PyTree,
        modules: Mapping[str, Module],
    ) -> None:
        super().__init__()
        self._calls, self._inputs, self._results = calls, inputs, results
        for call in calls:
            if isinstance(call.target, str):
                _place(self, call.target, modules[call.target])
        for state in _leaves_of(([(call.args, call.kwargs) for call in calls], results), TracingState):
            _place_state(self, state.name, modules)

    def forward(self, *args: Arg, **kwargs: Arg) -> Result:
        """Call the submodules. Keyword arguments are for the first part, and ignored by others."""
        values: dict[TracedSlot, Tensor] = {}
        positional, named = self._inputs
        _bind(values, "the model's arguments", (positional, named), (args, None if named is None else kwargs))
        for call in self._calls:
            positional_values, named_values = self._filled(values, (call.args, call.kwargs))
            target = self.get_submodule(call.target) if isinstance(call.target, str) else call.target
            with using(grad=ambient().grad and call.grad):
                results = target(*positional_values, **named_values)
            _bind(values, f"the results of {call.name!r}", call.results, results)
        return self._filled(values, self._results)

    def _filled(self, values: Mapping[TracedSlot, Tensor], structure: PyTree) -> PyTree:
        """The structure with tensors in place of slots and of states."""

        def tensor(leaf: object) -> object:
            if isinstance(leaf, TracingState):
                owner, _, name = leaf.name.rpartition(".")
                return getattr(self.get_submodule(owner), name)
            return values[leaf] if isinstance(leaf, TracedSlot) else leaf

        return jax.tree.map(tensor, structure)

    def extra_repr(self) -> str:
        """Its calls, in order."""
        return "calls: " + ", ".join(call.name for call in self._calls)


def _place(root: Module, name: str, module: Module) -> None:
    """Make a module a submodule of this name, within others where the name has dots."""
    parents, _, last = name.rpartition(".")
    _owner(root, parents).add_module(last, module)


def _place_state(root: Module, name: str, modules: Mapping[str, Module]) -> None:
    """Give a part a tensor of the model: a parameter, a buffer, or an attribute, as it is there."""
    parents, _, last = name.rpartition(".")
    owner, origin = _owner(root, parents), modules[parents]
    if last in own_tensors(owner):
        return
    tensor = getattr(origin, last)
    if last in dict(origin.named_buffers(recurse=False, remove_duplicate=False)):
        owner.register_buffer(last, tensor, persistent=last not in vars(origin)["_non_persistent_buffers_set"])
    else:
        setattr(owner, last, tensor)


def _owner(root: Module, name: str) -> Module:
    """The submodule of this name; those that are not there are made, empty."""
    for word in filter(None, name.split(".")):
        if word not in vars(root)["_modules"]:
            root.add_module(word, Module())
        root = root.get_submodule(word)
    return root


def _bind(values: dict[TracedSlot, Tensor], what: str, expected: PyTree, actual: PyTree) -> None:
    """Keep the tensors of a structure by their slots; `RuntimeError` if it is another one than was recorded."""
    slots, tree = jax.tree.flatten(expected)
    leaves, own_tree = jax.tree.flatten(actual)
    constants = [(slot, leaf) for slot, leaf in zip(slots, leaves, strict=False) if not isinstance(slot, TracedSlot)]
    if tree != own_tree or any(isinstance(leaf, Tensor) or leaf != constant for constant, leaf in constants):
        raise ProgramError(
            f"{what} must be like those that pipeline() has recorded, but for the elements of tensors: they were "
            f"{expected}, where slots are tensors, and are {map_tensors(lambda x: TracedSlot(-1), actual)}"
        )
    values.update({slot: leaf for slot, leaf in zip(slots, leaves, strict=True) if isinstance(slot, TracedSlot)})


class Pipe(Module):
    """A model as a sequence of stages. Called, it computes all, and returns the tensors of the last as a tuple."""

    def __init__(self, parts: Sequence[Module]) -> None:
        super().__init__()
        self.stages = ModuleList(parts)

    @property
    def num_stages(self) -> int:
        """The number of stages."""
        return len(self.stages)

    def forward(self, *args: Arg, **kwargs: Arg) -> Result:
        """The tensors that the model returns, in a tuple also if it is one."""
        values = self.stages[0](*args, **kwargs)
        for part in list(self.stages)[1:]:
            values = part(*values) if isinstance(values, tuple) else part(values)
        return tuple(jax.tree.leaves(values))

    def get_stage_module(self, stage_idx: int) -> Module:
        """The module of a stage. Its submodules are those of the model; `ValueError` for a stage that there is not."""
        if not 0 <= stage_idx < self.num_stages:
            raise ValueRangeError(f"Invalid stage index {stage_idx}: there are {self.num_stages} stages")
        return self.stages[stage_idx]

    def info(self) -> PipeInfo:
        """What `build_stage` needs to know."""
        return PipeInfo(self.num_stages)

    def build_stage(self, stage_index: int, device: DeviceLike, group: AnyGroup = None) -> PipelineStage:
        """A stage of this model, for a schedule."""
        return build_stage(self.get_stage_module(stage_index), stage_index, self.info(), device, group)


def build_stage(
    stage_module: Module, stage_index: int, pipe_info: PipeInfo, device: DeviceLike, group: AnyGroup = None
) -> PipelineStage:
    """A stage for a schedule from a module, such as a changed `pipe.get_stage_module(stage_index)`."""
    return PipelineStage(stage_module, stage_index, pipe_info.num_stages, device, group=group)


def pipeline(
    module: Module,
    mb_args: Args,
    mb_kwargs: Kwargs | None = None,
    split_spec: Mapping[str, SplitPoint] | None = None,
) -> Pipe:
    """Split a model before or after submodules, given by name, and wherever its `forward` calls `pipe_split()`.

    The model is called once, with the arguments of a microbatch, to see which submodules and functions it calls and
    what it passes on from one to another; numbers that it computes from sizes or elements are those of this call.
    Tensors that are needed later go through the stages in between. Stages have the model's own submodules and
    parameters, under their names.

    `RuntimeError` if a tensor comes from elsewhere, or if two stages share a parameter or are empty.
    """
    spec = dict(split_spec or {})
    modules = dict(module.named_modules())
    for name, point in spec.items():
        if not name or name not in modules:
            raise LacksAttributeError(f"split_spec: {type(module).__name__} has no submodule {name!r}")
        _require_point(point, name)
    recording = recorded(module, tuple(mb_args), dict(mb_kwargs or {}), spec)
    if empty := [at for at, calls in enumerate(recording.stages) if not calls]:
        raise ProgramError(
            f"pipeline(): the stages {empty} call no submodule; a split point stands at an end of the model"
        )
    parts = _parts(recording, modules)
    # A parameter in two stages would get half of its gradient on each rank.
    _require_apart(parts)
    return Pipe(parts)


def _require_point(point: object, name: str) -> None:
    if not isinstance(point, SplitPoint):
        raise ValueRangeError(f"Unknown split point type: split_spec has {point!r} for {name!r}, not a SplitPoint")


def _parts(recording: StageRecording, modules: Mapping[str, Module]) -> list[_Part]:
    count = len(recording.stages)
    crossing = [_crossing(recording, at) for at in range(1, count)]
    inputs: list[StageInputs] = [recording.arguments, *((slots, None) for slots in crossing)]
    results = [*[slots[0] if len(slots) == 1 else slots for slots in crossing], recording.results]
    return [_Part(*part, modules) for part in zip(recording.stages, inputs, results, strict=True)]


def _crossing(recording: StageRecording, at: int) -> tuple[TracedSlot, ...]:
    """The tensors that stages from `at` on need from those before it."""
    later = recording.stages[at:]
    used = {slot for calls in later for call in calls for slot in _slots((call.args, call.kwargs))}
    before = {slot for calls in recording.stages[:at] for call in calls for slot in _slots(call.results)}
    before |= set(_slots(recording.arguments))
    return tuple(sorted((used | set(_slots(recording.results))) & before, key=lambda slot: slot.number))


def _slots(structure: PyTree) -> list[TracedSlot]:
    return _leaves_of(structure, TracedSlot)


def _leaves_of(structure: PyTree, kind: type[L]) -> list[L]:
    return [leaf for leaf in jax.tree.leaves(structure) if isinstance(leaf, kind)]


def _require_apart(parts: Sequence[_Part]) -> None:
    """Raise if two parts have a parameter in common, whose gradient would be in parts."""
    places: dict[int, tuple[int, str]] = {}
    for at, part in enumerate(parts):
        for name, tensor in part.named_parameters():
            other, other_name = places.setdefault(id(tensor), (at, name))
            if other != at:
                raise ProgramError(
                    f"pipeline(): stage {at} has {name!r}, which is {other_name!r} of stage {other}; stages cannot "
                    "share parameters, so split the model elsewhere or give each its own"
                )
