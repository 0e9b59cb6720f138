"""The first tier: a graph is computed application by application, without compiling it as a whole.

On the CPU, NumPy computes an application; on other devices, a compiled program of this one application, which all
graphs share. A graph is compiled when interpreting it has cost as much as compiling it would ("rent or buy"). So no
graph costs more than twice the better choice.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import inf
from sys import getrefcount

import jax
import numpy as np

from weft._base.collector import collector_paused
from weft._base.device import CPU, device
from weft._base.interrupts import received, uninterrupted
from weft._base.types import AnyArray, Arg
from weft._lazy import refcounts
from weft._lazy.compiled import compiled
from weft._lazy.form import Application
from weft._lazy.interpreter import Costs, Interpreted, prepare, quiet
from weft._lazy.interpreter.layout import Layout, dense_layout
from weft._lazy.interpreter.machine import Form, form_of, form_of_call, machine_of
from weft._lazy.interpreter.steps import OVERWRITES, SEVERAL
from weft._lazy.interpreter.table import Array, read_only
from weft._lazy.native import native
from weft._lazy.signature import Output, Signature
from weft._lazy.value import Value

Run = Callable[[Sequence[Array]], Sequence[Array]]
InterpreterStep = tuple[Run, tuple[int, ...], Sequence[tuple[int, int]], tuple[int, ...]]
"""(function of an application, numbers of its inputs, (number, output) of its values that are needed, inputs of which
this is the last use)."""


LEAST_PROGRAM = 6e-5
"""The shortest time, in seconds, of running a compiled program. Interpreting in less time is never slower."""

PROGRAM_SECONDS = 0.02
"""The time, in seconds, to compile an empty program."""

_DISPATCH = 5e-5  # seconds to start the program of an application
_LEAF = 4e-6  # seconds to hand an array to a program
_UNUSED: Layout = ((), (), np.dtype(bool))  # of a leaf that no application takes
_COMPILED = Costs(PROGRAM_SECONDS, 2 * LEAST_PROGRAM)  # what the interpreter lacks: a program for each application

COMPILED_AT_ONCE = Costs(0.0, inf)
"""Costs with which a program is compiled at its first run."""


class InterpretedGraph:
    """A graph for the first tier. Call it with the leaves; it returns one array for each wanted entry.

    Entries are numbered as in the graph; `leaves` are the numbers of the given ones: NumPy arrays on the CPU, jax
    arrays on other devices, and Python numbers.
    """

    __slots__ = ("_applications", "_device", "_leaves", "_run", "_seconds", "_wanted")

    def __init__(
        self,
        applications: Sequence[Application],
        leaves: Sequence[int],
        wanted: Sequence[int],
        device: device,
    ) -> None:
        self._seconds: float | None = None
        self._device = device
        self._applications = applications
        self._leaves = tuple(leaves)
        self._wanted = wanted
        self._run: Run | None = None

    def __call__(self, leaves: Sequence[Array]) -> Sequence[Array]:
        return self.run(leaves)

    @property
    def run(self) -> Run:
        """What a call runs, made at its first use: a machine, on the CPU where the extension is there."""
        if self._run is None:
            by_machine = native is not None and self._device is CPU
            make = machine_of_graph if by_machine else _Steps
            with collector_paused:  # it would go through all of jax's objects several times meanwhile
                self._run = make(self._applications, self._leaves, self._wanted)
        return self._run

    @property
    def seconds(self) -> float:
        """The estimated extra cost, in seconds, of interpreting the graph once instead of running it compiled."""
        seconds = self._seconds
        if seconds is None:
            seconds = self._estimate()
            if self._device is CPU:
                self._seconds = seconds
        return seconds

    def _estimate(self) -> float:
        seconds = -LEAST_PROGRAM - _LEAF * len(self._leaves)
        new: set[Signature] = set()
        for signature, _, _ in self._applications:
            costs = costs_of(signature)
            seconds += costs.interpreting - costs.running
            if self._device is CPU or signature.execution.plain_run is not None:
                continue
            if signature not in new:  # its program is still to be compiled
                new.add(signature)
                seconds += PROGRAM_SECONDS + costs.compiling
        return max(0.0, seconds)


def machine_of_graph(applications: Sequence[Application], leaves: Sequence[int], wanted: Sequence[int]) -> Run:
    """The machine of a graph: the forms of its applications, joined."""
    layouts: list[Layout | None] = [None] * len(leaves)
    entries = {number: at for at, number in enumerate(leaves)}
    parts: list[tuple[Form, list[int]]] = []
    for signature, inputs, values in applications:
        operands = [entries[number] for number in inputs]
        types = _input_types(signature)
        for at, (shape, dtype) in zip(operands, types, strict=True):
            if layouts[at] is None:  # a leaf
                layouts[at] = dense_layout(shape, dtype)
        form = form_of_signature(signature, [layout for at in operands if (layout := layouts[at])])
        for number, index in values:
            entries[number] = len(layouts) + index
        layouts += form.layouts
        parts.append((form, operands))
    used = [layout or _UNUSED for layout in layouts[: len(leaves)]]
    return machine_of(used, parts, [entries[number] for number in wanted])


class _Steps:
    """A graph as functions of its applications, which are called one after the other."""

    __slots__ = ("_applications", "_leaves", "_size", "_steps", "_wanted")

    def __init__(self, applications: Sequence[Application], leaves: Sequence[int], wanted: Sequence[int]) -> None:
        self._leaves = leaves
        self._size = len(leaves) + sum(len(values) for _, _, values in applications)
        self._wanted = wanted
        needed = set(wanted)
        steps: list[InterpreterStep] = []
        for signature, inputs, values in reversed(applications):
            ending = set(inputs) - needed
            kept = [(number, index) for number, index in values if number in needed]
            needed |= ending
            steps.append((plain_run_of(signature), inputs, kept, tuple(ending)))
        self._steps = steps[::-1]

    def __call__(self, leaves: Sequence[Array]) -> list[Array]:
        entries: list[Arg] = [None] * self._size
        for number, leaf in zip(self._leaves, leaves, strict=True):
            entries[number] = dense_array(leaf)
        with quiet():
            for run, inputs, values, ending in self._steps:
                if received:  # nothing is overwritten here, so the graph can be computed again
                    uninterrupted.poll()
                arrays = [entries[i] for i in inputs]
                for number in ending:
                    entries[number] = None
                results = run(arrays)
                for number, index in values:
                    entries[number] = results[index]
                arrays = results = None  # so that the next step finds whether an array is referred to by it alone
        return [compact(entries[number]) for number in self._wanted]


def dense_array(array: AnyArray) -> AnyArray:
    """A leaf on the CPU with elements that follow each other, as programs expect it: how they lie rounds sums."""
    return array if isinstance(array, jax.Array) else np.asarray(array, order="C")


def compact(array: AnyArray) -> AnyArray:
    """A result whose elements are dense, and which keeps no larger array alive; those on other devices are so."""
    if isinstance(array, jax.Array):
        return array
    base = array.base
    if not array.flags.c_contiguous or (isinstance(base, np.ndarray) and base.nbytes > 2 * array.nbytes):
        return array.copy()
    return array


def interpreted_of(signature: Signature) -> Interpreted | None:
    """The trace of a signature, prepared for the interpreter; None if that lacks a primitive."""
    execution = signature.execution
    if execution.interpreted is None:
        with collector_paused:
            execution.interpreted = (prepare(signature.trace),)
    return execution.interpreted[0]


def run_of(signature: Signature) -> Run:
    """What computes a signature on NumPy arrays, made at its first use. Its results are compact."""
    execution = signature.execution
    if execution.run is None:
        if native is not None and device_of(signature) is CPU:
            types, count = _input_types(signature), len(signature.avals)
            form = form_of_signature(signature, [dense_layout(*t) for t in types])
            outputs = range(count, count + len(form.layouts))
            execution.run = machine_of([dense_layout(*t) for t in types], [(form, range(count))], outputs)
        else:
            plain = plain_run_of(signature)
            execution.run = lambda arrays: [compact(result) for result in plain([dense_array(x) for x in arrays])]
    return execution.run


def form_of_signature(signature: Signature, layouts: Sequence[Layout]) -> Form:
    """The form of a signature, for inputs that lie in this way."""
    forms = signature.execution.forms
    key = tuple([strides for _, strides, _ in layouts])
    form = forms.get(key)
    if form is None:
        program = interpreted_of(signature)
        if signature.execution.host is None and program is not None:
            form = form_of(program, layouts)
        else:
            form = _called(signature, layouts)
        forms[key] = form
    return form


def _called(signature: Signature, layouts: Sequence[Layout]) -> Form:
    """The form of a signature that a function computes as a whole."""
    host = signature.execution.host
    if host is None:
        function, flags = _Spread(plain_run_of(signature)), SEVERAL
    else:
        function, flags = host, OVERWRITES if signature.execution.overwrites else 0
    results = [dense_layout(output.aval.shape, output.aval.dtype.numpy) for output in signature.outputs]
    return form_of_call(function, flags, layouts, results)


class _Spread:
    """A function of a sequence as one of its items."""

    __slots__ = ("_run",)

    def __init__(self, run: Run) -> None:
        self._run = run

    def __call__(self, *arrays: Array) -> Sequence[Array]:
        return self._run(arrays)


def _input_types(signature: Signature) -> Sequence[tuple[tuple[int, ...], np.dtype]]:
    """Shape and element type of each input."""
    return [(aval.shape, aval.dtype.numpy) for aval in signature.avals]


def plain_run_of(signature: Signature) -> Run:
    """The function of a signature without the machine: on the CPU, steps of the interpreter on NumPy arrays.

    If the interpreter lacks a primitive, and on other devices, it is a compiled program of this one application.
    """
    execution = signature.execution
    if execution.plain_run is None:
        device = device_of(signature)
        program = interpreted_of(signature) if device is CPU else None
        if device is CPU and execution.host is not None:
            execution.plain_run = _on_host(signature, execution.host)
        else:
            execution.plain_run = _compiled(signature, device) if program is None else program.run
    return execution.plain_run


def _on_host(signature: Signature, host: Callable[..., Array]) -> Run:
    """The function of a signature whose row has one for NumPy arrays."""
    if not signature.execution.overwrites:
        return lambda arrays: [dense_array(read_only(host(*arrays)))]

    def overwrite(arrays: Sequence[Array]) -> list[Array]:
        base, *rest = arrays[0] if _is_alone(arrays) else arrays[0].copy(), *arrays[1:]
        return [host(base, *rest)]

    return overwrite


def _references(arrays: Sequence[Array]) -> int:
    return getrefcount(arrays[0])


_OF_LIST = refcounts.UNKNOWN if refcounts.IN_A_LOCAL == refcounts.UNKNOWN else _references([np.zeros(1)])


def _is_alone(arrays: Sequence[Array]) -> bool:
    """Whether nothing but this list refers to its first array, or to any part of it, so that it may be overwritten.

    A loop that writes one element after the other would copy the whole for each. What a graph is given is never
    overwritten, as its value refers to it: a run that is interrupted can be repeated.
    """
    if _references(arrays) != _OF_LIST:
        return False
    flags = arrays[0].flags  # which refers to the array
    return flags.owndata and flags.writeable


def costs_of(signature: Signature) -> Costs:
    """The cost of compiling a signature, of interpreting it once its program exists, and of its part in a program."""
    execution = signature.execution
    if execution.costs is None:
        if signature.collective:
            execution.costs = COMPILED_AT_ONCE
        else:
            interpreted = interpreted_of(signature)
            costs = _COMPILED if interpreted is None else interpreted.costs
            on_host = device_of(signature) is CPU
            execution.costs = costs if on_host else Costs(costs.compiling, _DISPATCH)
    return execution.costs


def device_of(signature: Signature) -> device:
    """Where a signature is computed."""
    return signature.outputs[0].aval.device


def evaluated(origin: Output, inputs: Sequence[Value]) -> Array | None:
    """The result of an application with one output, computed within `quiet()`; None if an input is not in memory."""
    arrays: list[Array] = []
    for x in inputs:
        array = x.at_hand()
        if array is None:
            return None
        arrays.append(array)
    return run_of(origin.signature)(arrays)[0]


def _compiled(signature: Signature, target: device) -> Run:
    program = compiled(signature.compiled_fn, target)  # which is refused where XLA cannot run
    if target is CPU:
        return lambda arrays: [np.asarray(result) for result in program(*arrays)]
    return lambda arrays: program(*arrays)
