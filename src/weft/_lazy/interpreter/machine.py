"""Programs for the machine of `weft._native`, which computes what `Interpreted` does, to the last bit, in less time.

A trace becomes a fragment: its equations as steps over registers. Most functions of the table are traced to NumPy's
inner loops (`probe.py`); others are called.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

import numpy as np
from jax.extend.core import ClosedJaxpr

from weft._base.types import Arg
from weft._lazy.interpreter import traced as traced  # which fills probe's table
from weft._lazy.interpreter.evaluate import Bound, Interpreted, interpreted
from weft._lazy.interpreter.flatten import FlatTrace
from weft._lazy.interpreter.layout import Layout, dense_layout
from weft._lazy.interpreter.probe import Probe, Tracing
from weft._lazy.interpreter.steps import SEVERAL
from weft._lazy.interpreter.table import PRIMITIVES, Array, Function, Opaque, Primitive
from weft._lazy.native import native
from weft._lazy.trace import Trace

Run = Callable[[Sequence[Array]], Sequence[Array]]


class Form(NamedTuple):
    """A fragment, and how its results lie."""

    fragment: Arg
    layouts: Sequence[Layout]


def form_of(program: Interpreted, layouts: Sequence[Layout]) -> Form:
    """A program as a fragment, for inputs that lie in this way."""
    tracing = Tracing(layouts)
    flat = program.flat
    place: dict[int, Probe] = dict(zip(flat.inputs, tracing.inputs, strict=True))

    def probe_of(number: int) -> Probe:
        probe = place.get(number)
        if probe is None:
            probe = place[number] = tracing.constant(flat.constants[number], flat.types[number].dtype)
        return probe

    for bound in program.bound:
        ins = [probe_of(number) for number in bound.equation.ins]
        place.update(zip(bound.equation.outs, _traced_or_called(tracing, flat, bound, ins), strict=True))
    return form(tracing, [probe_of(number) for number in flat.outputs])


def form_of_call(function: Function, flags: int, layouts: Sequence[Layout], results: Sequence[Layout]) -> Form:
    """A function of arrays as a fragment."""
    tracing = Tracing(layouts)
    outs = [tracing.new(shape, dtype) for shape, _, dtype in results]
    return form(tracing, tracing.call(function, flags, tracing.inputs, outs))


def form(tracing: Tracing, outputs: Sequence[Probe]) -> Form:
    """What has been traced as a fragment with these results."""
    assert native is not None, "nothing is traced without the extension"
    tracing.forget_shadows()
    numbers = [probe.number for probe in outputs]
    fragment = native.Fragment(tracing.buffers, tracing.registers, len(tracing.inputs), numbers, tracing.steps)
    return Form(fragment, [(probe.shape, probe.strides, probe.dtype) for probe in outputs])


def _traced_or_called(tracing: Tracing, flat: FlatTrace, bound: Bound, ins: list[Probe]) -> Sequence[Probe]:
    """The results of an equation."""
    equation = bound.equation
    entry = PRIMITIVES[equation.name]
    mark = tracing.mark()
    types = flat.types_of(equation.outs)
    try:
        results = _traced(tracing, entry, bound, ins)
        if [x.dtype for x in results] == [t.dtype for t in types]:
            lies_as_computed = not entry.dynamic and (entry.view or entry.broadcasts)
            return results if lies_as_computed else [x if x.is_dense else x.copy() for x in results]
    except (Opaque, TypeError, ValueError, AttributeError, IndexError, MemoryError):  # what is no array lacks something
        pass
    tracing.return_to(mark)
    dtypes = [t.dtype for t in types]
    if entry.broadcasts and not all(x.is_dense for x in ins):
        results = tracing.results(ins, dtypes)
    else:
        results = [tracing.new(t.shape, t.dtype) for t in types]
    return tracing.call(bound.function, SEVERAL * equation.several, ins, results)


def _traced(tracing: Tracing, entry: Primitive, bound: Bound, ins: list[Probe]) -> Sequence[Probe]:
    function, several = bound.bound, bound.equation.several
    value: Arg
    if isinstance(function, np.ufunc):
        value = tracing.loop(function, ins)
    elif entry.dynamic or not entry.view:
        value = function(*ins)
    else:
        (x,) = ins
        value = _views(x, function, several=several)
    results: Sequence[Probe] = value if several else [value]
    for result in results:
        if type(result) is not Probe:
            raise Opaque(bound.equation.name)
    return results


def _views(x: Probe, function: Callable[[Array], Arg], *, several: bool) -> Probe | Sequence[Probe]:
    """What a function shows of an array; if it copies an array that is not dense, of a dense copy."""

    def views_of(source: Probe) -> Probe | Sequence[Probe]:
        views = function(source.shadow)
        return [source.register_of(view) for view in views] if several else source.register_of(views)

    try:
        return views_of(x)
    except Opaque:
        if x.is_dense:
            raise
    return views_of(x.copy())


def machine_of(layouts: Iterable[Layout], parts: Sequence[tuple[Form, Sequence[int]]], outputs: Sequence[int]) -> Run:
    """The machine for inputs of these types, which lie densely; parts and outputs say which entries they take."""
    assert native is not None, "the extension is there"
    inputs = [(0, 0, *layout) for layout in layouts]
    return native.Machine(inputs, [(form.fragment, entries) for form, entries in parts], outputs)


def machine_for(program: Interpreted) -> Run:
    """The machine of one program."""
    flat = program.flat
    layouts = [dense_layout(*flat.types[number]) for number in flat.inputs]
    count = len(layouts)
    outputs = range(count, count + len(flat.outputs))
    return machine_of(layouts, [(form_of(program, layouts), range(count))], outputs)


def runner(program: Trace | ClosedJaxpr) -> Run:
    """What runs a program: a machine, made when it is first used, or the interpreter."""
    prepared = interpreted(program)
    return prepared.run if native is None else _Lazy(prepared)


class _Lazy:
    """A machine that is made when it is first used: a branch may never be taken."""

    __slots__ = ("_program", "_run")

    def __init__(self, program: Interpreted) -> None:
        self._program = program
        self._run: Run | None = None

    def __call__(self, arrays: Sequence[Array]) -> Sequence[Array]:
        if self._run is None:
            self._run = machine_for(self._program)
        return self._run(arrays)
