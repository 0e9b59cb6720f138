"""The time of programs, shared out among the operators that they computed.

XLA fuses operators, so what one of them takes is known only as an estimate: the cost of its primitives, in proportion.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from weft._lazy.interpreter.costs import running_of
from weft._lazy.interpreter.flatten import flattened
from weft._lazy.signature import Signature
from weft._profile.collector import Computed


def shares_of(computed: Iterable[Computed]) -> dict[int, float]:
    """The nanoseconds of each operator, by the number of its recording."""
    shares: dict[int, float] = {}
    for start, end, applications in computed:
        parts = shared(end - start, [signature for signature, _ in applications])
        for (_, number), share in zip(applications, parts, strict=True):
            shares[number] = shares.get(number, 0.0) + share
    return shares


def shared(time: float, signatures: Sequence[Signature]) -> list[float]:
    """The parts of a time that some applications have."""
    costs = {s: running_of(flattened(s.trace)) for s in dict.fromkeys(signatures)}
    whole = sum(costs[signature] for signature in signatures)
    return [time * costs[signature] / whole if whole else 0.0 for signature in signatures]
