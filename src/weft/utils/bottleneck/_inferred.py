"""The lines that types were inferred for: where shapes change, each new one costs it again."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import NamedTuple

from weft._base.timeline import Phase
from weft.profiler._collector import Collector, Operator
from weft.profiler._nesting import nested

_PROGRAMS = (Phase.PLANNING, Phase.INTERPRETING, Phase.RUNNING)


class Inferred(NamedTuple):
    """What was inferred at a line of the user.

    seconds    an estimate: inference counts for the operator that is recorded next, or for the last one of the program
               that is computed next
    operator   the one with the most different inputs at this line
    inputs     how many these are
    changes    the types of an input that is not always the same, at first and later; without inputs, of a result
    """

    line: str
    seconds: float
    operator: str
    inputs: int
    changes: tuple[str, ...]


def inferred_at(notes: Collector, most: int) -> list[Inferred]:
    """The lines at which inference took longest."""
    operators = sorted([o for o in notes.operators if o.thread == notes.thread and o.stack], key=lambda o: o.at)
    by_line: dict[str, dict[str, list[Operator]]] = defaultdict(lambda: defaultdict(list))
    for operator in operators:
        by_line[operator.stack[0]][operator.signature.name].append(operator)
    result: list[Inferred] = []
    for line, nanoseconds in sorted(_by_line(notes, operators).items(), key=lambda pair: -pair[1])[:most]:
        named = {name: list({o.signature: _types(o) for o in each}.values()) for name, each in by_line[line].items()}
        operator, types = max(named.items(), key=lambda pair: len(pair[1]))
        result.append(Inferred(line, 1e-9 * nanoseconds, operator, len(types), _changes(types)))
    return result


def _by_line(notes: Collector, operators: Sequence[Operator]) -> dict[str, int]:
    """Nanoseconds of inference by line."""
    spans = [
        (entry.span.end, entry.own if entry.phase is Phase.INFERENCE else None)
        for entry in nested(notes.all_spans(), notes.thread)
        if entry.phase is Phase.INFERENCE or entry.phase in _PROGRAMS
    ]
    sums: dict[str, int] = defaultdict(int)
    after = iter(operators)
    last, coming, pending = None, next(after, None), 0
    for end, own in sorted(spans, key=lambda pair: pair[0]):
        while coming is not None and coming.at < end:
            sums[coming.stack[0]] += pending
            last, coming, pending = coming, next(after, None), 0
        # Inference is noted before the operator that it was for, whose line it belongs to.
        if own is not None:
            pending += own
        elif last is not None:
            sums[last.stack[0]] += pending
            pending = 0
    if coming is not None:
        sums[coming.stack[0]] += pending
    return {line: nanoseconds for line, nanoseconds in sums.items() if nanoseconds}


def _types(operator: Operator) -> list[str]:
    signature = operator.signature
    return [str(aval) for aval in signature.avals or [output.aval for output in signature.outputs]]


def _changes(types: Sequence[Sequence[str]]) -> tuple[str, ...]:
    """The first types, and the last ones of those that differ least: the others may be of another use at this line."""
    pairs = [[(a, b) for a, b in zip(types[0], other, strict=False) if a != b] for other in reversed(types)]
    return min(filter(None, pairs), key=len, default=[()])[0]
