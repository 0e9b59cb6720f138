"""What a replay computes: one operator, or several, with calls between them that no program can make.

Such a call exchanges arrays with other processes. A capture defers it (`Capture.defer`), and a replay repeats it: each
operator computes what was recorded between two calls. So calls are made in the order in which the function made them,
in the caller's thread, whether or not somebody uses their results; what they raise reaches the caller. XLA could call
them from within one program, but in any order, and from threads of its own, of which it has as many as there are cores:
these would wait for other ranks, and with several ranks in a process for each other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Protocol

from weft._base.state import ambient
from weft._base.types import Arg
from weft._lazy.aval import Aval
from weft._lazy.interpreted import COMPILED_AT_ONCE
from weft._lazy.outline import outline_later
from weft._lazy.record import record
from weft._lazy.role import FREED, Interior, custom_of
from weft._lazy.signature import Signature
from weft._lazy.value import Absent, Value, is_taped, tick

Values = Sequence[Value]


@dataclass(frozen=True, slots=True)
class DeferredCall:
    """A call that a capture has deferred.

    position  how many values had been recorded before
    function  gives the arrays of the results for the values of the arguments
    inputs    the arguments
    outputs   leaves that take the place of the results
    """

    position: int
    function: Callable[[Values], Sequence[Arg]]
    inputs: tuple[Value, ...]
    outputs: tuple[Value, ...]

    def make(self) -> None:
        """Make the call, and give the results their arrays."""
        for value, array in zip(self.outputs, self.function(self.inputs), strict=True):
            value.content = array

    def fail(self, error: BaseException) -> None:
        """Let the results raise an error that came before they were there."""
        for value in self.outputs:
            value.content = Absent(partial(_raise, error))


def _raise(error: BaseException) -> None:
    raise error


class LinkedDerivative(Protocol):
    """A derivative in Python, as `Interior.custom`, that depends on no tensor of the call that it belongs to."""

    def link(self, values: Values) -> None:
        """Make it the derivative of the results of another such call."""
        ...


def is_linked(value: Value) -> bool:
    """Whether a value has a derivative in Python that a replay can give to its own value."""
    role = value.role
    return is_taped(value) and role is not None and not role.hooks and hasattr(custom_of(role), "link")


# --- steps ------------------------------------------------------------------------------------------------------


class _Operator:
    """Records one operator, which computes what was recorded between two calls."""

    def __init__(self, wanted: Values, region: Values, name: str) -> None:
        self._make, leaves = outline_later(wanted, region, name)
        self._signature: Signature | None = None
        self.inputs, self.outputs = tuple(leaves), tuple(wanted)
        self._untaped = [n for n, value in enumerate(wanted) if not isinstance(value.role, Interior)]
        on_tape = ((n, value) for n, value in enumerate(wanted) if isinstance(value.role, Interior))
        self._freed = [n for n, value in on_tape if not is_taped(value)]

    def run(self, inputs: tuple[Value, ...]) -> Values:
        outputs = record(self._signature or self._outlined(), inputs, ambient())
        for at in self._untaped:
            outputs[at].role = None
        for at in self._freed:
            outputs[at].role = FREED
        return outputs

    def _outlined(self) -> Signature:
        """The operator, made when the call comes back: most calls of a function with changing shapes do not."""
        signature = self._signature = self._make()
        signature.execution.costs = COMPILED_AT_ONCE
        return signature


class _Repetition:
    """Makes a deferred call once more."""

    def __init__(self, call: DeferredCall) -> None:
        self.inputs, self.outputs = call.inputs, call.outputs
        self._function = call.function
        self._avals: list[Aval] = [value.aval for value in call.outputs]

    def run(self, inputs: tuple[Value, ...]) -> Values:
        results = [Value(aval, a) for aval, a in zip(self._avals, self._function(inputs), strict=True)]
        for value in results:
            value.time = tick()
        return results


class _Link:
    """Records an application whose derivative is in Python, and which an operator would lose."""

    def __init__(self, outputs: tuple[Value, ...]) -> None:
        first = outputs[0]
        assert first.origin is not None, "it was recorded"
        self.inputs, self.outputs = tuple(first.inputs), outputs
        self._signature = first.origin.signature
        self._avals = [value.aval for value in outputs]
        derivative: Arg = custom_of(first.role)
        self._derivative: LinkedDerivative = derivative

    def run(self, inputs: tuple[Value, ...]) -> Values:
        results = record(self._signature, inputs, ambient())
        for value, aval in zip(results, self._avals, strict=True):
            value.aval = aval  # with its names
        if results[0].role is not None:
            self._derivative.link(results)
        return results


_Step = _Operator | _Repetition | _Link


@dataclass(slots=True)
class _Places:
    """The numbers of a step's inputs and outputs, and of what no later step reads."""

    inputs: list[int]
    outputs: list[int]
    ending: list[int] = field(default_factory=list[int])


class Stages:
    """The steps that compute the values `wanted` of what a capture has recorded; `inputs` are those from outside."""

    def __init__(self, wanted: Values, region: Values, calls: Sequence[DeferredCall], name: str) -> None:
        steps = _steps(wanted, region, calls, name)
        inner = {value for step in steps[:-1] for value in step.outputs}
        self.inputs = list(dict.fromkeys([x for step in steps for x in step.inputs if x not in inner]))
        self._only = steps[0] if len(steps) == 1 else None
        numbers = {value: at for at, value in enumerate(self.inputs)}
        self._steps: list[tuple[_Step, _Places]] = []
        for step in steps:
            inputs = [numbers[x] for x in step.inputs]
            # the last operator returns a value from outside as a new one, so outputs may be known already
            outputs = [len(numbers) + at for at in range(len(step.outputs))]
            numbers.update(zip(step.outputs, outputs, strict=True))
            self._steps.append((step, _Places(inputs, outputs)))
        self._size = max([len(self.inputs), *[at + 1 for _, places in self._steps for at in places.outputs]])
        needed: set[int] = set()
        for _, places in reversed(self._steps):
            places.ending = [at for at in {*places.inputs, *places.outputs} if at not in needed]
            needed.update(places.inputs)

    def run(self, inputs: list[Value]) -> Values:
        """The values that are wanted, given those from outside, of which the list is emptied.

        What only an operator refers to may be overwritten by its results.
        """
        if self._only is not None:
            operands = tuple(inputs)
            inputs.clear()
            return self._only.run(operands)
        entries: list[Arg] = [*inputs, *[None] * (self._size - len(inputs))]
        inputs.clear()
        results: Values = ()
        for step, places in self._steps:
            operands = tuple([entries[at] for at in places.inputs])
            for at in places.ending:
                entries[at] = None
            results = step.run(operands)
            del operands
            for at, value in zip(places.outputs, results, strict=True):
                if at not in places.ending:
                    entries[at] = value
        return results


def _steps(wanted: Values, region: Values, calls: Sequence[DeferredCall], name: str) -> list[_Step]:
    """The steps, found from the last to the first, since each computes what later ones need.

    Calls are all made. The last step is an operator that gives the values `wanted`.
    """
    cuts = list(_cuts(region, calls))
    starts = [0, *[stop for _, stop, _ in cuts]]
    steps: list[_Step] = [_Operator(wanted, region[starts.pop() :], name)]
    needed = dict.fromkeys(steps[0].inputs)
    for start, _, step in reversed(cuts):
        if isinstance(step, _Repetition) or any(value in needed for value in step.outputs):
            steps.append(step)
            for value in step.outputs:
                needed.pop(value, None)
            needed.update(dict.fromkeys(step.inputs))
        stretch = region[starts.pop() : start]
        inside = {id(value) for value in stretch}
        own = [value for value in needed if id(value) in inside]
        if own:
            steps.append(_Operator(own, stretch, name))
            for value in own:
                del needed[value]
            needed.update(dict.fromkeys(steps[-1].inputs))
    return steps[::-1]


def _cuts(region: Values, calls: Sequence[DeferredCall]) -> Iterator[tuple[int, int, _Repetition | _Link]]:
    """Where operators end: at calls, and at applications that they would lose the derivative of (start, stop, step)."""
    waiting = list(calls)[::-1]
    at = 0
    while at < len(region):
        while waiting and waiting[-1].position <= at:
            yield at, at, _Repetition(waiting.pop())
        value, stop = region[at], at + 1
        if is_linked(value):
            assert value.origin is not None, "it was recorded"
            stop = at + len(value.origin.signature.outputs)
            yield at, stop, _Link(tuple(region[at:stop]))
        at = stop
    for call in reversed(waiting):
        yield at, at, _Repetition(call)
