"""The first tier: a graph is computed application by application, with NumPy, and nothing is compiled for it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np
from jax.extend.core import jaxpr_as_fun

from weft._base.device import CPU
from weft._lazy.interpreter import prepare, quiet
from weft._lazy.interpreter.table import Array
from weft._lazy.precision import compiler_options
from weft._lazy.runtime import jax_device
from weft._lazy.signature import Output, Signature

Run = Callable[[Sequence[Array]], Sequence[Array]]
Step = tuple[Run, tuple[int, ...], tuple[tuple[int, int], ...], tuple[int, ...]]
"""(what computes an application, numbers of its inputs, (number, output) of each of its values, numbers to forget)."""


class InterpretedGraph:
    """A graph as the steps of an interpreter. Call it with the leaves; the result is one array per wanted entry.

    Entries are numbered as in the graph; `leaves` are the numbers of those that are given.
    """

    __slots__ = ("_applications", "_leaves", "_steps", "_wanted")

    def __init__(
        self,
        applications: Sequence[tuple[Output, tuple[int, ...]]],
        numbers: Sequence[int],
        leaves: Sequence[int],
        wanted: Sequence[int],
    ) -> None:
        self._applications = tuple(zip(applications, numbers, strict=True))
        self._leaves = tuple(leaves)
        self._wanted = tuple(wanted)
        self._steps: list[Step] | None = None

    def __call__(self, leaves: Sequence[Array]) -> list[Array]:
        entries: list[Any] = [None] * (len(self._leaves) + len(self._applications))
        for number, leaf in zip(self._leaves, leaves, strict=True):
            entries[number] = leaf
        if self._steps is None:
            self._steps = self._prepared()
        with quiet():
            for run, inputs, values, ending in self._steps:
                results = run([entries[i] for i in inputs])
                for number, index in values:
                    entries[number] = results[index]
                for number in ending:
                    entries[number] = None
        return [_apart(entries[number]) for number in self._wanted]

    def _prepared(self) -> list[Step]:
        values: dict[tuple[Signature, tuple[int, ...]], list[tuple[int, int]]] = {}
        for (output, inputs), number in self._applications:
            values.setdefault((output.signature, inputs), []).append((number, output.index))
        needed = set(self._wanted)
        steps: list[Step] = []
        for (signature, inputs), results in reversed(values.items()):
            ending = {*inputs, *[number for number, _ in results]} - needed
            needed |= ending
            steps.append((run_of(signature), inputs, tuple(results), tuple(ending)))
        return steps[::-1]


def _apart(array: Array) -> Array:
    """A result whose elements lie side by side, and which keeps no larger array alive."""
    base = array.base
    if not array.flags.c_contiguous or (isinstance(base, np.ndarray) and base.nbytes > 2 * array.nbytes):
        return array.copy()
    return array


def run_of(signature: Signature) -> Run:
    """What computes a signature on NumPy arrays, made at its first use: steps of the interpreter.

    Where that lacks a primitive, it is a compiled program of this one application.
    """
    if signature.run is None:
        interpreted = prepare(signature.jaxpr)
        signature.run = _compiled(signature) if interpreted is None else interpreted.run
    return signature.run


def _compiled(signature: Signature) -> Run:
    options = compiler_options(jax_device(CPU).platform)  # which is refused where XLA cannot run
    program = jax.jit(jaxpr_as_fun(signature.jaxpr), compiler_options=options)
    return lambda arrays: [np.asarray(result) for result in program(*arrays)]
