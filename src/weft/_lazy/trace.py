"""Traces: functions traced by jax for some input types, reduced to what some of their results need.

A trace can be general: some sizes are symbols (`jax.export.symbolic_shape`), for which numbers are substituted.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from copy import copy
from functools import lru_cache
from operator import floordiv, mod  # pyright: ignore[reportUnknownVariableType]
from types import CodeType
from typing import Any

import jax
import jax.numpy as jnp
from jax.extend.core import ClosedJaxpr

from weft._base.types import AnyCallable, Arg, Kwargs
from weft.ops._replicas import jaxpr_of

SymbolicSize = Any
"""A number, or an expression of symbols."""

_RESHAPING = ("reshape", "squeeze", "transpose")
# no cell: the empty dict keeps `eval` from the builtins; nobody changes it
SIZE_FUNCTIONS: Kwargs = {"floordiv": floordiv, "mod": mod, "max": max, "min": min, "__builtins__": {}}
"""The functions in expressions, in the notation in which they print and which `symbolic_shape` reads."""


@lru_cache(maxsize=4096)
def _compiled(text: str) -> CodeType:
    return compile(text.replace("^", "**"), "<size>", "eval")


class Size(str):
    """A size of a general trace: an expression of symbols, as text."""

    __slots__ = ()


def as_text(shape: Sequence[SymbolicSize]) -> tuple[int | Size, ...]:
    """A shape of jax's, with text for expressions."""
    return tuple([size if type(size) is int else Size(size) for size in shape])


class SizeValues:
    """The numbers of the symbols, by name; evaluates sizes."""

    __slots__ = ("_numbers", "letters")

    def __init__(self, letters: dict[str, int]) -> None:
        self.letters = letters
        self._numbers: dict[str, int] = letters.copy()

    def number(self, size: int | Size) -> int:
        """The number that a size stands for."""
        if not isinstance(size, Size):
            return size
        number = self._numbers.get(size)
        if number is None:
            number = self._numbers[size] = eval(_compiled(size), SIZE_FUNCTIONS, self.letters)
        return number

    def shape(self, shape: Sequence[int | Size]) -> tuple[int, ...]:
        """A shape as numbers."""
        return tuple([size if type(size) is int else self.number(size) for size in shape])


class Trace:
    """A function for inputs of given types, as traced by jax.

    closed   the closed jaxpr
    inputs   positions of the arguments that it takes, in order: the results depend only on these
    results  positions of the results that it returns, in order
    sizes    the numbers for the symbols of a general trace, or None
    general  that trace, or None
    flat     its equations (`interpreter/flatten.py`), once they are needed
    """

    __slots__ = ("_types", "closed", "flat", "general", "inputs", "results", "sizes")

    def __init__(
        self, closed: ClosedJaxpr, inputs: Sequence[int] | None = None, results: Sequence[int] | None = None
    ) -> None:
        self.closed = closed
        self.inputs = range(len(closed.in_avals)) if inputs is None else inputs
        self.results = range(len(closed.out_avals)) if results is None else results
        self.sizes: SizeValues | None = None
        self.general: Trace | None = None
        self.flat: Arg = None
        self._types: list[tuple[tuple[int | Size, ...], Arg]] | None = None

    def with_sizes(self, sizes: SizeValues) -> Trace:
        """This trace with numbers for the symbols."""
        trace = copy(self)
        trace.sizes, trace.general, trace.flat = sizes, self, None
        trace._types = [(sizes.shape(shape), dtype) for shape, dtype in self.types()]
        return trace

    def types(self) -> list[tuple[tuple[Any, ...], Arg]]:
        """(shape, dtype) of each result."""
        if self._types is None:
            self._types = [(as_text(aval.shape), aval.dtype) for aval in self.result_avals()]
        return self._types

    def kernel_results(self) -> set[int]:
        """Positions of the results that a kernel outside of XLA computes; at most their shape is changed after it."""
        makers = {id(var): eqn for eqn in self.closed.jaxpr.eqns for var in eqn.outvars}
        positions: set[int] = set()
        for at in self.results:
            eqn = makers.get(id(self.closed.jaxpr.outvars[at]))
            while eqn is not None and eqn.primitive.name in _RESHAPING:
                eqn = makers.get(id(eqn.invars[0]))
            if eqn is not None and eqn.primitive.name == "ffi_call":
                positions.add(at)
        return positions

    def result_avals(self) -> list[Arg]:
        """jax's types of the results, with symbols in a general trace."""
        avals = self.closed.out_avals
        return [avals[at] for at in self.results]


def traced(function: AnyCallable, structs: Sequence[jax.ShapeDtypeStruct]) -> Trace:
    """The trace of a function on inputs of these types."""
    return Trace(jaxpr_of(function, *structs))


def restricted(trace: Trace, results: Sequence[int]) -> Trace:
    """The trace of some of the results, which takes only what these depend on."""
    result = Trace(trace.closed, sorted(_read_by(trace.closed.jaxpr, results)), results)
    return result if trace.sizes is None else result.with_sizes(trace.sizes)


def _read_by(jaxpr: Arg, results: Sequence[int]) -> set[int]:
    """Positions of the arguments that these results depend on."""
    live = {id(jaxpr.outvars[at]) for at in results}
    for eqn in reversed(jaxpr.eqns):
        if eqn.effects or any(id(var) in live for var in eqn.outvars):
            inner = eqn.params.get("jaxpr") if eqn.primitive.name in ("jit", "pjit") else None
            if eqn.primitive.name == "optimization_barrier":
                live.update(id(i) for i, o in zip(eqn.invars, eqn.outvars, strict=True) if id(o) in live)
            elif inner is None:
                live.update(id(var) for var in eqn.invars)
            else:
                outs = [at for at, var in enumerate(eqn.outvars) if id(var) in live]
                live.update(id(eqn.invars[at]) for at in _read_by(inner.jaxpr, outs))
    return {at for at, var in enumerate(jaxpr.invars) if id(var) in live}


def with_unread(
    arrays: Iterable[jax.Array], structs: Sequence[jax.ShapeDtypeStruct], read: Sequence[int]
) -> list[jax.Array]:
    """The arguments of a function that reads only those at the positions `read`, which are given; zeros for others."""
    rest = iter(arrays)
    return [next(rest) if i in read else jnp.zeros(s.shape, s.dtype) for i, s in enumerate(structs)]
