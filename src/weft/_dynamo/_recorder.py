"""Records what a program does as graphs, while it runs.

The program runs as always, on its own tensors, and what it computes is recorded besides as pending values. Whoever
gets the graph may compute it in another way; its results then take the place of the pending ones, which nobody
computes. Where the program reads a value, or does what no graph can hold, one graph ends, and the next begins behind
it. So nothing is repeated, and a part of the program of which there can be no graph has run already.
"""

from __future__ import annotations

import sys
import traceback
import weakref
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from weft._base.capture import Capture
from weft._base.pending import Pending
from weft._base.site import user_frame
from weft._base.state import ambient, enter, leave, using
from weft._base.types import AnyCallable, Arg, Args, Kwargs, Result
from weft._dynamo._calls import Call, Input, NotInGraphs, referring
from weft._dynamo._calls import Result as ResultOfCall
from weft._lazy.aval import Aval
from weft._lazy.value import Value
from weft._tensor.alias import owner_of
from weft._tensor.base import TensorBase
from weft._tensor.compile.kinds import kind_of
from weft._tensor.generator import Generator
from weft._tensor.overriding import name_of
from weft._tensor.scalar import number
from weft._tensor.tensor import Tensor
from weft._tensor.view import set_value
from weft.autograd.grad_mode import set_grad_enabled
from weft.nn._module import Module

_NOT_IN_GRAPHS = frozenset(
    {
        "backward", "data.__set__", "grad.__set__", "register_hook", "register_post_accumulate_grad_hook",
        "requires_grad.__set__", "requires_grad_", "retain_grad", "set_", "share_memory_", "pin_memory",
    }
)  # fmt: skip
"""Methods that change what is no element of a tensor, or run the program's own functions."""


class _NeedsValue(BaseException):
    """Ends a public function that needs a value, which is called again once there is one."""


@dataclass(frozen=True)
class GraphBreak:
    """Why and where a graph ended before the program did."""

    reason: str
    user_stack: list[traceback.FrameSummary]


@dataclass
class Recording:
    """Calls without a break between them.

    inputs    the tensors from before that they use, with the kinds that these had
    calls     the calls
    references  by identity, the tensors that the calls use and return, and what these are in the graph
    written   by identity, tensors that the calls have written, and their values before
    drawn     generators from which the calls have drawn, with their states before
    spoilt    why the calls are not all that has happened, or ""
    """

    inputs: list[tuple[Tensor, Aval, Hashable]] = field(default_factory=list[Any])
    calls: list[Call] = field(default_factory=list[Call])
    references: dict[int, tuple[weakref.ref[Tensor], Input | ResultOfCall]] = field(default_factory=dict[int, Any])
    written: dict[int, tuple[weakref.ref[TensorBase], Value]] = field(default_factory=dict[int, Any])
    drawn: dict[Generator, tuple[int, int]] = field(default_factory=dict[Generator, Any])
    spoilt: str = ""

    def living(self) -> list[tuple[Tensor, ResultOfCall]]:
        """The tensors that the calls have made, and that somebody still holds."""
        entries = [(ref(), at) for ref, at in self.references.values() if isinstance(at, ResultOfCall)]
        return [(tensor, at) for tensor, at in entries if tensor is not None]

    def uses_storage_of(self, tensor: TensorBase) -> bool:
        """Whether a tensor is one that the calls use or return, or shares elements with one."""
        owner = owner_of(tensor)
        living = [one for ref, _ in self.references.values() if (one := ref()) is not None]
        return any(one is tensor or owner_of(one) is owner for one in living)


class Recorder(Capture):
    """The ambient `capture`, and the mode that is asked before public functions, while a program is recorded.

    `take(recording)` gets each recording, when the ambient state is again as it was before the program ran. `breaks` is
    filled. With `whole`, what would end a graph early raises the error that this returns instead.
    """

    def __init__(self, take: Callable[[Recording], None], whole: Callable[[GraphBreak], Exception] | None) -> None:
        self.breaks: list[GraphBreak] = []
        self.modules: dict[int, Module] = {}
        self._take, self._whole = take, whole
        self._region = Pending(sys.maxsize)
        self._recording = Recording()
        self._within = 0  # how many recorded calls are running
        self._outer = ambient()
        self._grad, self._modes = self._outer.grad, (self._outer.inference, self._outer.autocast)

    def run(self, function: AnyCallable, args: Args, kwargs: Kwargs) -> Result:
        """The result of a function, which is recorded."""
        overrides = self._outer.overrides
        token = enter(
            pending=self._region,
            capture=self,
            autocast=self._outer.autocast.apart(),
            overrides=overrides.replaced(modes=(*overrides.modes, self)),
        )
        try:
            result = function(*args, **kwargs)
            self._end()
        finally:
            leave(token)
            self._hand_over()
        return result

    # --- public functions -----------------------------------------------------------------------------------------

    def __torch_function__(self, func: AnyCallable, types: object, args: Args = (), kwargs: Arg = None) -> Result:
        del types
        run = partial(func, *args, **(kwargs or {}))
        if self._within or ambient().capture is not self:  # within a call that is recorded, a branch, or a transform
            return run()
        name = name_of(func).rpartition("Tensor.")[2]
        if name in _NOT_IN_GRAPHS or name.endswith((".__set__", ".__delete__")):
            return self._apart(f"calls {name}", run)
        return self._call(func, args, kwargs or {}, run)

    @property
    def takes_calls(self) -> bool:
        """Whether functions that are no operators are to be handed to `call_whole` and `call_apart`."""
        return not self._within

    def call_whole(self, function: AnyCallable, args: Args, kwargs: Kwargs) -> Result:
        """The result of a function that has a derivative of its own, as one call."""
        return self._call(function, args, kwargs, partial(function, *args, **kwargs))

    def call_apart(self, function: AnyCallable, args: Args, kwargs: Kwargs, why: str) -> Result:
        """The result of a function that shall not be recorded."""
        return self._apart(why, partial(function, *args, **kwargs))

    def _call(self, function: AnyCallable, args: Args, kwargs: Kwargs, run: Callable[[], Result]) -> Result:
        self._follow_modes()
        try:
            arguments = referring((args, kwargs), self._refer)
        except NotInGraphs as error:
            return self._apart(f"passes {error} to {name_of(function)}", run)
        writes = len(self._recording.written)
        self._within += 1
        result, needs = None, ""
        try:
            result = run()
        except _NeedsValue as error:
            needs = str(error)
        finally:
            self._within -= 1
        if needs:
            return self._apart(needs, run)
        tensors = list(_tensors_in(result, ()))
        if tensors or len(self._recording.written) > writes or name_of(function).endswith("__setitem__"):
            types = [(path, tensor._read().aval) for path, tensor in tensors]
            self._note(Call(function, arguments[0], arguments[1], tuple(types)), tensors)
        return result

    def _note(self, call: Call, tensors: Iterable[tuple[tuple[int, ...], Tensor]]) -> None:
        recording = self._recording
        at = len(recording.calls)
        recording.calls.append(call)
        for path, tensor in tensors:
            references = recording.references.get(id(tensor))
            if references is None or references[0]() is not tensor or isinstance(references[1], ResultOfCall):
                recording.references[id(tensor)] = weakref.ref(tensor), ResultOfCall(at, path)

    def _refer(self, tensor: Tensor) -> Input | ResultOfCall:
        recording = self._recording
        references = recording.references.get(id(tensor))
        if references is not None and references[0]() is tensor:
            return references[1]
        at = Input(len(recording.inputs))
        recording.inputs.append((tensor, tensor._read().aval, kind_of(tensor)))
        recording.references[id(tensor)] = weakref.ref(tensor), at
        return at

    def _follow_modes(self) -> None:
        state = ambient()
        if (state.inference, state.autocast) != self._modes:
            self.break_graph("changes whether autocast or inference mode is on")
            self._modes = state.inference, state.autocast
        if state.grad is not self._grad:
            self._grad = state.grad
            self._recording.calls.append(Call(set_grad_enabled, (state.grad,), {}, ()))

    # --- where graphs end -----------------------------------------------------------------------------------------

    def _apart(self, why: str, run: Callable[[], Result]) -> Result:
        """What `run` returns, which is not recorded; the next graph begins behind it."""
        self.break_graph(why)
        with using(pending=self._outer.pending, capture=None, overrides=self._outer.overrides):
            return run()

    def break_graph(self, why: str) -> None:
        """End the graph here."""
        frame = user_frame()
        stack = [] if frame is None else traceback.extract_stack(frame, limit=1)
        one = GraphBreak(why, list(stack))
        if self._whole is not None:
            raise self._whole(one)
        self.breaks.append(one)
        self._end()

    def _end(self) -> None:
        recording, self._recording = self._recording, Recording()
        if self._grad is not self._outer.grad:
            recording.calls.append(Call(set_grad_enabled, (self._outer.grad,), {}, ()))
        self._hand_over()
        inference, autocast = self._modes
        outer = self._outer
        modes = {"grad": outer.grad, "inference": inference, "autocast": autocast, "overrides": outer.overrides}
        if any(call.function is not set_grad_enabled for call in recording.calls):
            with using(pending=outer.pending, capture=None, **modes):
                self._take(recording)
        self._grad = outer.grad  # the next graph begins so

    def _hand_over(self) -> None:
        """Let what was recorded as pending values be computed when it is needed."""
        region = self._region
        count = len(region)
        self._outer.pending.absorb(region)
        for recorded in (region, region.checks, region.unread, region.when_computed):
            recorded.clear()
        region.moved(-count)

    # --- what the capture is told ---------------------------------------------------------------------------------

    def wrote(self, tensor: TensorBase, old: Value) -> None:
        """A tensor was written in place."""
        recording = self._recording
        if self._within:
            recording.written.setdefault(id(tensor), (weakref.ref(tensor), old))
        elif recording.uses_storage_of(tensor):
            recording.spoilt = "it is written to by what is no public function"

    def draws(self, generator: Generator) -> tuple[Value, Value]:
        """The seed and the number of a random draw."""
        seed, offset = generator.draw()
        recording = self._recording
        if self._within:
            recording.drawn.setdefault(generator, (seed, offset))
        elif generator in recording.drawn:
            recording.spoilt = "random numbers are drawn by what is no public function"
        return number(seed), number(offset)

    def called(self, *things: object) -> None:
        """A module runs."""
        if isinstance(things[0], Module):
            self.modules.setdefault(id(things[0]), things[0])

    def needs_elements(self, value: Value, *, decides: bool = False) -> None:
        """The program reads a value."""
        del value
        self.needs_value("decides by a tensor's value" if decides else "reads a tensor's value")

    def needs_value(self, what: str = "reads a tensor's value", advice: str = "") -> None:
        """The program needs something that a graph cannot know."""
        del advice
        if self._within:
            raise _NeedsValue(what)
        self.break_graph(what)

    def prevent(self, why: str) -> None:
        """The program does what no graph can hold."""
        self.needs_value(why)


def _tensors_in(result: Arg, path: tuple[int, ...]) -> Iterable[tuple[tuple[int, ...], Tensor]]:
    if isinstance(result, Tensor):
        yield path, result
    elif isinstance(result, (list, tuple)):
        for at, part in enumerate(result):
            yield from _tensors_in(part, (*path, at))


class Undone:
    """What some calls have written and drawn is undone within a block; `redo` leaves it done behind the block."""

    def __init__(self, recording: Recording) -> None:
        entries = [(ref(), old) for ref, old in recording.written.values()]
        self._written = [(tensor, old, tensor._read()) for tensor, old in entries if tensor is not None]
        self._drawn = [(generator, before, generator.state()) for generator, before in recording.drawn.items()]
        for tensor, old, _ in reversed(self._written):
            set_value(tensor, old)
        for generator, before, _ in self._drawn:
            generator.restore(before)

    def redo(self) -> None:
        """Let everything be as the calls left it."""
        for tensor, _, new in self._written:
            set_value(tensor, new)
        for generator, _, after in self._drawn:
            generator.restore(after)
