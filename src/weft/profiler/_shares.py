"""The time of programs, shared out among the operators that they computed.

XLA fuses operators, so what one of them takes is known only as an estimate: the cost of its primitives, in proportion.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Sequence

from weft._lazy.interpreter.costs import costs_of
from weft._lazy.interpreter.flatten import flattened
from weft._lazy.signature import Signature
from weft.profiler._collector import Computed


def shares_of(computed: Iterable[Computed]) -> dict[int, float]:
    """The nanoseconds of each operator that was computed, by the number of its recording."""
    shares: dict[int, float] = {}
    for program in computed:
        for number, share in _shares(program):
            shares[number] = shares.get(number, 0.0) + share
    return shares


def rest_of(program: Computed, numbers: Container[int]) -> float:
    """The nanoseconds of a program that other operators have than those of these recordings."""
    if all(number in numbers for _, number in program.applications):
        return 0.0
    return sum(share for number, share in _shares(program) if number not in numbers)


def _shares(program: Computed) -> Iterable[tuple[int, float]]:
    """The number of each recording that a program has computed, with its share."""
    start, end, applications = program
    parts = shared(end - start, [signature for signature, _ in applications])
    return zip([number for _, number in applications], parts, strict=True)


def shared(time: float, signatures: Sequence[Signature]) -> list[float]:
    """The parts of a time that some applications have; equal ones if none costs anything."""
    costs = {s: costs_of(flattened(s.trace)).running for s in dict.fromkeys(signatures)}
    whole = sum(costs[signature] for signature in signatures)
    return [time * costs[s] / whole if whole else time / len(signatures) for s in signatures]
