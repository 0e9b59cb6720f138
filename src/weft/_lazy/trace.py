"""Traces: functions traced by jax for some input types, reduced to what some of their results need.

A trace can be general: some sizes are symbols (`jax.export.symbolic_shape`), for which numbers are substituted.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache
from operator import floordiv, mod  # pyright: ignore[reportUnknownVariableType]
from types import CodeType
from typing import Any, cast

import jax
import jax.numpy as jnp
from jax.export import is_symbolic_dim
from jax.extend.core import ClosedJaxpr

from weft._base.types import AnyCallable, Arg, Kwargs
from weft.ops._replicas import jaxpr_of

SymbolicSize = Any
"""A number, or an expression of symbols."""

_PLAIN = frozenset({int, float, bool, str, type(None)})
_RESHAPING = ("reshape", "squeeze", "transpose")
# no cell: the empty dict keeps `eval` from the builtins; nobody changes it
SIZE_FUNCTIONS: Kwargs = {"floordiv": floordiv, "mod": mod, "max": max, "min": min, "__builtins__": {}}
"""The functions in expressions, in the notation in which they print and which `symbolic_shape` reads."""


@lru_cache(maxsize=4096)
def _compiled(text: str) -> CodeType:
    return compile(text.replace("^", "**"), "<size>", "eval")


class SizeValues:
    """The numbers of the symbols, by name; evaluates sizes.

    All of one trace share `codes`: the compiled code of each expression, by its identity.
    """

    __slots__ = ("_codes", "letters")

    def __init__(self, letters: dict[str, int], codes: dict[int, tuple[SymbolicSize, CodeType]]) -> None:
        self.letters = letters
        self._codes = codes

    def number(self, size: SymbolicSize) -> int:
        """The number that a size stands for."""
        if type(size) is int:
            return size
        entry = self._codes.get(id(size))
        if entry is None:
            entry = self._codes[id(size)] = (size, _compiled(str(size)))  # which keeps the identity in use
        return eval(entry[1], SIZE_FUNCTIONS, self.letters)

    def shape(self, shape: Sequence[SymbolicSize]) -> tuple[int, ...]:
        """A shape as numbers."""
        return tuple([size if type(size) is int else self.number(size) for size in shape])

    def parameter(self, value: Arg) -> Arg:
        """A parameter of an equation, with numbers for symbols; a jaxpr becomes a trace with these sizes."""
        if type(value) in _PLAIN:
            return value
        if isinstance(value, tuple):
            old = cast("tuple[Any, ...]", value)
            parts = [self.parameter(part) for part in old]
            if all(a is b for a, b in zip(parts, old, strict=True)):
                return old
            return tuple(parts) if type(old) is tuple else type(old)(*parts)
        if is_symbolic_dim(value):
            return self.number(value)
        return Trace(value, sizes=self) if isinstance(value, ClosedJaxpr) else value


class Trace:
    """A function for inputs of given types, as traced by jax.

    closed   the closed jaxpr
    inputs   positions of the arguments that it takes, in order: the results depend only on these
    results  positions of the results that it returns, in order
    sizes    the numbers for the symbols of a general trace, or None
    """

    __slots__ = ("closed", "inputs", "results", "sizes")

    def __init__(
        self,
        closed: ClosedJaxpr,
        inputs: Sequence[int] | None = None,
        results: Sequence[int] | None = None,
        sizes: SizeValues | None = None,
    ) -> None:
        self.closed = closed
        self.inputs = range(len(closed.in_avals)) if inputs is None else inputs
        self.results = range(len(closed.out_avals)) if results is None else results
        self.sizes = sizes

    def with_sizes(self, sizes: SizeValues) -> Trace:
        """This trace with numbers for the symbols."""
        return Trace(self.closed, self.inputs, self.results, sizes)

    def types(self) -> list[tuple[tuple[int, ...], Arg]]:
        """(shape, dtype) of each result."""
        shape = tuple if self.sizes is None else self.sizes.shape
        return [(shape(aval.shape), aval.dtype) for aval in self.result_avals()]

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
    return Trace(trace.closed, sorted(_read_by(trace.closed.jaxpr, results)), results, trace.sizes)


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
