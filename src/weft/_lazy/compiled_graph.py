"""Graphs in the second tier: XLA compiles one program for each distinct form of a graph's segments."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from functools import cached_property
from weakref import WeakValueDictionary

import jax

from weft._base.device import device
from weft._base.interrupts import uninterrupted
from weft._lazy.aval import Aval
from weft._lazy.compiled import compiled
from weft._lazy.form import Application, Form
from weft._lazy.interpreted import PROGRAM_SECONDS, costs_of
from weft._lazy.packs import PACKS, PackSlot, unpacked
from weft._lazy.replicated import replicated
from weft._lazy.runtime import on_fork
from weft._lazy.segments import Segment, bytes_at_once, segments_around_collectives, segments_of
from weft._lazy.signature import Signature

Executable = Callable[..., Sequence[jax.Array]]


class CompiledGraph:
    """A graph that XLA compiles, segment by segment, at its first run.

    leaves, wanted   numbers of entries
    slots            places of the leaves among the arguments of the compiled graph
    donated          positions, among leaves that are arrays, whose buffers may be overwritten
    """

    def __init__(
        self,
        applications: Sequence[Application],
        leaves: Sequence[int],
        slots: Sequence[PackSlot],
        wanted: Sequence[int],
        donated: Sequence[int],
        target: device,
    ) -> None:
        self._form = Form(tuple(applications), tuple(leaves), tuple(wanted))
        self._slots = slots
        self._donated = [PACKS + position for position in donated]
        self._device = target

    @cached_property
    def seconds(self) -> float:
        """The estimated time to compile it. It does not depend on what other graphs have compiled."""
        signatures = [signature for form in self._forms for signature, _, _ in form.applications]
        return PROGRAM_SECONDS * len(self._forms) + sum([costs_of(signature).compiling for signature in signatures])

    @cached_property
    def bytes_at_once(self) -> int:
        """The most bytes that its results take at one time, if each is kept until its last use."""
        return bytes_at_once(self._form.applications, self._form.wanted)

    @property
    def parts(self) -> tuple[int, int]:
        """The number of its segments, and how many of them differ."""
        return max(1, len(self._segments)), len(self._forms)

    @cached_property
    def collectives(self) -> list[Signature]:
        """Its applications that exchange data with the other replicas. Then it is one segment."""
        return self._form.collectives

    @cached_property
    def _segments(self) -> list[Segment]:
        if self.collectives:
            return []
        return segments_of(self._form.applications, self._form.wanted, lambda signature: costs_of(signature).compiling)

    @cached_property
    def _forms(self) -> list[Form]:
        return list(dict.fromkeys([segment.form for segment in self._segments])) or [self._form]

    def run(self) -> Executable:
        """The graph as a function of the packs of numbers and the arrays; the first call compiles it."""
        if self._segments:
            return self._in(self._segments)
        function = self._form.function()

        def body(*args: object) -> list[jax.Array]:
            return function(*unpacked(args, self._slots))

        if self.collectives:
            return replicated(body, self._donated, self.collectives, self._around_collectives)
        return compiled(body, self._device, self._donated)

    def _around_collectives(self) -> Executable:
        return self._in(segments_around_collectives(self._form.applications, self._form.wanted))

    def _in(self, segments: Sequence[Segment]) -> Executable:
        """The graph as a function that runs these segments of it."""
        donated = {n for n, (at, _) in zip(self._form.leaves, self._slots, strict=True) if at in self._donated}
        steps, wanted = _steps(segments, donated, self._device), self._form.wanted

        def run(*args: object) -> list[jax.Array]:
            entries = dict(zip(self._form.leaves, unpacked(args, self._slots), strict=True))
            for program, inputs, results, ending in steps:
                uninterrupted.poll()  # only the last segment overwrites leaves
                arrays = program(*[entries[number] for number in inputs])
                entries.update(zip(results, arrays, strict=True))
                for number in ending:
                    del entries[number]
            return [entries[number] for number in wanted]

        return run


# no cell: a cache, keyed by all that its entries depend on
_programs: WeakValueDictionary[Hashable, Executable] = WeakValueDictionary()
"""The programs of segments that are in use, by form, device and donated leaves."""
on_fork(_programs.clear)


def _steps(
    segments: Sequence[Segment], donated: set[int], target: device
) -> list[tuple[Executable, Sequence[int], Sequence[int], Sequence[int]]]:
    """For each segment: its program, its inputs, its results, and the entries that are not needed afterwards.

    Only the last segment overwrites leaves, so nothing is lost if a compilation is interrupted.
    """
    last = segments[-1]
    overwritten = _overwritten(last, donated)
    return [(_program(s.form, target, overwritten if s is last else ()), *s[1:]) for s in segments]


def _overwritten(segment: Segment, donated: set[int]) -> tuple[int, ...]:
    """Positions of a segment's leaves that may be overwritten and whose buffers fit one of its results."""
    types: dict[int, Aval] = {}
    for signature, inputs, values in segment.form.applications:
        types.update(zip(inputs, signature.avals, strict=True))
        types.update((number, signature.outputs[index].aval) for number, index in values)
    spare = Counter(types[number] for number in segment.form.wanted)
    positions: list[int] = []
    for position, (number, within) in enumerate(zip(segment.leaves, segment.form.leaves, strict=True)):
        if number in donated and number in segment.ending and spare[types[within]]:
            spare[types[within]] -= 1
            positions.append(position)
    return tuple(positions)


def _program(form: Form, target: device, donated: tuple[int, ...]) -> Executable:
    """The program of a form: that of an earlier segment if there is one."""
    key = form, target, donated
    program = _programs.get(key)
    if program is None:
        function, collectives = form.function(), form.collectives
        program = replicated(function, donated, collectives) if collectives else compiled(function, target, donated)
        _programs[key] = program
    return program
