"""Execution of a jaxpr over NumPy arrays: once prepared, its equations are steps that read and write numbered slots."""

from __future__ import annotations

from collections.abc import Sequence
from operator import itemgetter
from typing import Any, NamedTuple

import numpy as np
from jax.extend.core import ClosedJaxpr

from weft._base.types import Arg
from weft._lazy.interpreter.costs import costs_of
from weft._lazy.interpreter.flatten import Equation, FlatTrace, flattened
from weft._lazy.interpreter.layout import Shape
from weft._lazy.interpreter.table import PRIMITIVES, Array, Function, MissingPrimitive, Type, read_only
from weft._lazy.trace import Trace

_FOLDED_BYTES = 65_536  # results up to this size that depend only on constants are computed once, for all runs

SlotStep = tuple[Function, int, int | None, Any, int, Any]
"""(function, slot of the first input, slot of the second or None, getter or None, slot of the result, extra or None).

The getter, for three or more inputs, takes all of them from the slots. Extra is (slots of the results if the function
returns a sequence, else None; slots to empty afterwards).
"""


class Bound(NamedTuple):
    """An equation with the function of its entry in the table, and that which the interpreter calls."""

    equation: Equation
    bound: Function
    function: Function


def quiet() -> np.errstate:
    """The context for `Interpreted.run`: no warnings of infinities and NaN. Entering takes as long as a step or two."""
    return np.errstate(all="ignore")


class Interpreted:
    """A jaxpr, ready to run over NumPy arrays.

    Inputs are never written to. Results are NumPy arrays of the jaxpr's types, never NumPy scalars. They may be views
    of inputs, constants or each other; those that may share memory with an input or a constant are read-only.
    """

    __slots__ = ("_results", "_slots", "_steps", "_views", "bound", "costs", "flat")

    def __init__(self, flat: FlatTrace, bound: Sequence[Bound]) -> None:
        self.flat = flat
        self.bound = bound
        self.costs = costs_of(flat)
        self._steps: list[SlotStep] | None = None  # made at the first run
        self._slots: list[Array | None] = []
        self._results: Sequence[int] = ()
        self._views: Sequence[int] = ()

    def __call__(self, *arrays: Array) -> list[Array]:
        """The results for these inputs."""
        with quiet():
            return self.run(arrays)

    def run(self, arrays: Sequence[Array]) -> list[Array]:
        """The results, computed within `quiet()`, which the caller enters once for several calls."""
        if self._steps is None:
            steps, self._slots, self._results = _assembled(self.flat, self.bound)
            self._views = _shared_outputs(self.flat, self.bound)
            self._steps = steps  # last, since it tells other threads that all is there
        slots: list[Arg] = self._slots.copy()
        slots[: len(arrays)] = arrays
        for apply, first, second, rest, out, more in self._steps:
            if rest is not None:
                result = apply(*rest(slots))
            elif second is None:
                result = apply(slots[first])
            else:
                result = apply(slots[first], slots[second])
            if more is None:
                slots[out] = result
                continue
            outs, dead = more
            if outs is None:
                slots[out] = result
            else:
                for at, array in zip(outs, result, strict=True):
                    slots[at] = array
            for at in dead:
                slots[at] = None
        results = [slots[at] for at in self._results]
        for at in self._views:
            results[at] = read_only(results[at])
        return results


def prepare(program: Trace | ClosedJaxpr | FlatTrace) -> Interpreted | None:
    """A trace or a jaxpr as steps, or None if the interpreter lacks one of its primitives."""
    try:
        return interpreted(program)
    except MissingPrimitive:
        return None


def missing(program: Trace | ClosedJaxpr | FlatTrace) -> set[str]:
    """The names of those primitives of a program that the interpreter lacks."""
    try:
        interpreted(program)
    except MissingPrimitive as error:
        return error.names
    return set()


def interpreted(program: Trace | ClosedJaxpr | FlatTrace) -> Interpreted:
    """A trace or a jaxpr as steps; `MissingPrimitive` names all of its primitives that the interpreter lacks."""
    flat = flattened(program)
    bound: list[Bound] = []
    names: set[str] = set()
    bindings: dict[tuple[str, int], Binding] = {}
    with quiet():
        for at, equation in enumerate(flat.equations):
            equation = flat.equations[at] = _with_place(flat, equation)
            try:
                entry = _bind(flat, equation, bindings)
            except MissingPrimitive as error:
                names |= error.names
                continue
            if not names and not _fold(flat, equation, entry.function):
                bound.append(entry)
    if names:
        raise MissingPrimitive(*names)
    return Interpreted(flat, bound)


def _with_place(flat: FlatTrace, equation: Equation) -> Equation:
    """A gather at a place that is known as a slice, and such a sum into zeros as a pad.

    jax writes slices as gathers where sizes have symbols, which took a GRU cell 2.5 times as long: a slice is a view.
    """
    if equation.name not in ("gather", "scatter-add"):
        return equation
    source, index, *updates = equation.ins  # a sum has updates, a gather has none
    dims, place, sizes = equation.params["dimension_numbers"], flat.constants.get(index), flat.types[source].shape
    if place is None or place.ndim != 1 or dims.operand_batching_dims:
        return equation
    starts = [0] * len(sizes)
    for dim, start in zip(
        getattr(dims, "start_index_map", None) or dims.scatter_dims_to_operand_dims, place, strict=True
    ):
        starts[dim] = int(start)
    part: Shape = equation.params["slice_sizes"] if not updates else flat.types[updates[0]].shape
    if len(part) != len(sizes) or any(s < 0 or s + n > size for s, n, size in zip(starts, part, sizes, strict=True)):
        return equation
    # Where the part lies within the array, nothing is clamped or dropped, as gathers and scatters do beyond its ends.
    ends = tuple([start + size for start, size in zip(starts, part, strict=True)])
    if not updates:
        if dims.collapsed_slice_dims:
            return equation
        params = {"start_indices": tuple(starts), "limit_indices": ends, "strides": None}
        return Equation("slice", params, (source,), equation.outs)
    # A pad writes its elements: it is the sum only where all others, and those below, are zero.
    zero = next((e.ins[0] for e in flat.equations if e.outs == (source,) and e.name == "broadcast_in_dim"), None)
    if dims.inserted_window_dims or zero is None or flat.types[zero].shape or flat.constants.get(zero, 1) != 0:
        return equation
    margins = [(start, size - end, 0) for start, end, size in zip(starts, ends, sizes, strict=True)]
    return Equation("pad", {"padding_config": tuple(margins)}, (updates[0], zero), equation.outs)


Binding = tuple[list[Type], list[Type], Function, Function]
"""The types of inputs and results of an equation that has been bound, and its two functions."""


def _bind(flat: FlatTrace, equation: Equation, bindings: dict[tuple[str, int], Binding]) -> Bound:
    """The function of an equation. It returns arrays, also where NumPy's function would return a scalar.

    How a sum is rounded depends on how the terms lie. Where that does not follow from types, results are dense. What is
    inlined several times has the same parameters, by which `bindings` has its functions: an optimizer's step has 49
    equations for each parameter.
    """
    entry = PRIMITIVES.get(equation.name)
    if entry is None:
        raise MissingPrimitive(equation.name)
    ins, outs = flat.types_of(equation.ins), flat.types_of(equation.outs)
    before = bindings.get((equation.name, id(equation.params)))
    if before is not None and before[0] == ins and before[1] == outs:
        return Bound(equation, before[2], before[3])
    function = entry.bind(equation.params, ins, outs)
    if entry.dynamic or not (entry.view or entry.broadcasts):
        as_called = _dense_each(function) if equation.several else _dense(function)
    elif entry.view or equation.several or outs[0].shape:
        as_called = function
    else:
        as_called = _as_array(function)
    bindings[equation.name, id(equation.params)] = ins, outs, function, as_called
    return Bound(equation, function, as_called)


def _as_array(function: Function) -> Function:
    as_array = np.asarray
    return lambda *arrays: as_array(function(*arrays))


def _dense(function: Function) -> Function:
    as_array = np.asarray
    return lambda *arrays: as_array(function(*arrays), order="C")


def _dense_each(function: Function) -> Function:
    as_array = np.asarray
    return lambda *arrays: [as_array(array, order="C") for array in function(*arrays)]


def _fold(flat: FlatTrace, equation: Equation, function: Function) -> bool:
    """Compute an equation whose inputs are constants, unless its results are large; returns whether it is computed."""
    for number in equation.ins:
        if number not in flat.constants:
            return False
    size = sum(int(np.prod(t.shape)) * t.dtype.itemsize for t in flat.types_of(equation.outs))
    if equation.ins and size > _FOLDED_BYTES:
        return False
    result = function(*[flat.constants[number] for number in equation.ins])
    for number, array in zip(equation.outs, result if equation.several else [result], strict=True):
        flat.constants[number] = read_only(array)
    return True


def _assembled(flat: FlatTrace, bound: Sequence[Bound]) -> tuple[list[SlotStep], list[Array | None], list[int]]:
    """The equations as (steps, slots, slots of the results).

    A slot is reused or emptied once its array is no longer needed, which frees the array.
    """
    last = {number: at for at, (equation, _, _) in enumerate(bound) for number in (*equation.outs, *equation.ins)}
    needed = {number for equation, _, _ in bound for number in equation.ins}.union(flat.outputs)
    constants = [number for number in flat.constants if number in needed]
    slot = {number: at for at, number in enumerate((*flat.inputs, *constants))}
    slots: list[Array | None] = [*[None] * len(flat.inputs), *[flat.constants[number] for number in constants]]
    lasting = {*constants, *flat.outputs}
    free: list[int] = []
    steps: list[SlotStep] = []
    for at, (equation, _, function) in enumerate(bound):
        ins = [slot[number] for number in equation.ins]
        ending = {n for n in (*equation.outs, *equation.ins) if last[n] == at and n not in lasting}
        free += {slot[number] for number in ending.intersection(equation.ins)}
        for number in equation.outs:
            if not free:
                free.append(len(slots))
                slots.append(None)
            slot[number] = free.pop()
        free += (slot[number] for number in ending.intersection(equation.outs))
        outs = [slot[number] for number in equation.outs]
        dead = {slot[number] for number in ending}.intersection(free)
        steps.append(_step(function, ins, outs, sorted(dead), equation.several))
    return steps, slots, [slot[number] for number in flat.outputs]


def _step(function: Function, ins: list[int], outs: list[int], dead: list[int], several: bool) -> SlotStep:
    first, second, rest = ins[0], ins[1] if len(ins) == 2 else None, itemgetter(*ins) if len(ins) > 2 else None
    more = (outs if several else None, dead) if several or dead else None
    return function, first, second, rest, -1 if several else outs[0], more


def _shared_outputs(flat: FlatTrace, bound: Sequence[Bound]) -> list[int]:
    """The positions of outputs that may share memory with an input or a constant, except constants themselves.

    Those are read-only already.
    """
    shared = {*flat.inputs, *flat.constants}
    for equation, _, _ in bound:
        if PRIMITIVES[equation.name].view and not shared.isdisjoint(equation.ins):
            shared.update(equation.outs)
    return [at for at, number in enumerate(flat.outputs) if number in shared and number not in flat.constants]
