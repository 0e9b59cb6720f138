"""The first tier: a graph is computed application by application, without compiling it as a whole.

On the CPU, NumPy computes an application; on other devices, a compiled program of this one application, which all
graphs share. A graph is compiled when interpreting it has cost as much as compiling it would ("rent or buy"). So no
graph costs more than twice the better choice.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import inf
from sys import getrefcount

import numpy as np

from weft._base.device import CPU, device
from weft._base.interrupts import received, uninterrupted
from weft._base.types import Arg
from weft._lazy import refcounts
from weft._lazy.compiled import compiled
from weft._lazy.form import Application
from weft._lazy.interpreter import Costs, prepare, quiet
from weft._lazy.interpreter.table import Array, read_only
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
_COMPILED = Costs(PROGRAM_SECONDS, 2 * LEAST_PROGRAM)  # what the interpreter lacks: a program for each application

COMPILED_AT_ONCE = Costs(0.0, inf)
"""Costs with which a program is compiled at its first run."""


class InterpretedGraph:
    """A graph as steps of an interpreter. Call it with the leaves; it returns one array for each wanted entry.

    Entries are numbered as in the graph; `leaves` are the numbers of the given ones: NumPy arrays on the CPU, jax
    arrays on other devices, and Python numbers.
    """

    __slots__ = ("_applications", "_device", "_leaves", "_seconds", "_size", "_steps", "_wanted")

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
        self._size = len(leaves) + sum(len(values) for _, _, values in applications)
        self._wanted = wanted
        self._steps: list[InterpreterStep] | None = None

    def __call__(self, leaves: Sequence[Array]) -> list[Array]:
        entries: list[Arg] = [None] * self._size
        for number, leaf in zip(self._leaves, leaves, strict=True):
            entries[number] = leaf
        if self._steps is None:
            self._steps = self._prepared()
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
        results = [entries[number] for number in self._wanted]
        return [compact(result) for result in results] if self._device is CPU else results

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
            seconds += costs.interpreting
            if signature.execution.run is None and signature not in new:  # its program is still to be compiled
                new.add(signature)
                seconds += PROGRAM_SECONDS + costs.compiling
        return max(0.0, seconds)

    def _prepared(self) -> list[InterpreterStep]:
        needed = set(self._wanted)
        steps: list[InterpreterStep] = []
        for signature, inputs, values in reversed(self._applications):
            ending = set(inputs) - needed
            kept = [(number, index) for number, index in values if number in needed]
            needed |= ending
            steps.append((run_of(signature), inputs, kept, tuple(ending)))
        return steps[::-1]


def compact(array: Array) -> Array:
    """A result whose elements are dense, and which keeps no larger array alive."""
    base = array.base
    if not array.flags.c_contiguous or (isinstance(base, np.ndarray) and base.nbytes > 2 * array.nbytes):
        return array.copy()
    return array


def run_of(signature: Signature) -> Run:
    """The function of a signature, made at its first use: on the CPU, steps of the interpreter on NumPy arrays.

    If the interpreter lacks a primitive, and on other devices, it is a compiled program of this one application.
    """
    execution = signature.execution
    if execution.run is None:
        device = device_of(signature)
        interpreted = prepare(signature.trace) if device is CPU else None
        if device is CPU and execution.costs is None:
            execution.costs = _COMPILED if interpreted is None else interpreted.costs
        if device is CPU and execution.host is not None:
            execution.run = _on_host(signature, execution.host)
        else:
            execution.run = _compiled(signature, device) if interpreted is None else interpreted.run
    return execution.run


def _on_host(signature: Signature, host: Callable[..., Array]) -> Run:
    """The function of a signature whose row has one for NumPy arrays."""
    if not signature.execution.overwrites:
        return lambda arrays: [read_only(host(*arrays))]

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
    """The cost of compiling a signature, and of interpreting it once its program exists."""
    execution = signature.execution
    if execution.costs is None:
        if signature.collective:
            execution.costs = COMPILED_AT_ONCE
        elif device_of(signature) is CPU:
            run_of(signature)
        else:
            interpreted = prepare(signature.trace)
            execution.costs = Costs((_COMPILED if interpreted is None else interpreted.costs).compiling, _DISPATCH)
    assert execution.costs is not None, "on the CPU they are known when `run` is"
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
    return compact(run_of(origin.signature)(arrays)[0])


def _compiled(signature: Signature, target: device) -> Run:
    program = compiled(signature.compiled_fn, target)  # which is refused where XLA cannot run
    if target is CPU:
        return lambda arrays: [np.asarray(result) for result in program(*arrays)]
    return lambda arrays: program(*arrays)
