"""Segments: a long graph that repeats itself, such as the layers of a network, is cut between repetitions.

XLA compiles each call of a function anew, so the time for a whole program grows with its length. Equal segments share
one program, so the time grows only with what differs, even between graphs. The second step of a training loop, which
differs from the first by the optimizer's new state, reuses the layers of the first.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import accumulate, chain, pairwise
from typing import NamedTuple

import numpy as np

from weft._base.interrupts import uninterrupted
from weft._lazy.form import Application, Form
from weft._lazy.signature import Signature

_CALL = 0.01  # seconds of compiling that are worth one more call in each run
_LEAST_SAVED = 0.1  # seconds of compiling for which a stretch is cut
_LEAST_APPLICATIONS = 8


class Segment(NamedTuple):
    """Consecutive applications of a graph.

    leaves   the graph's numbers of the form's leaves
    wanted   the graph's numbers of what the form gives, which later segments or the caller need
    ending   the graph's numbers of what no later segment needs
    """

    form: Form
    leaves: Sequence[int]
    wanted: Sequence[int]
    ending: Sequence[int]


def segments_of(
    applications: Sequence[Application], wanted: Sequence[int], compiling: Callable[[Signature], float]
) -> list[Segment]:
    """The segments of a graph; none if it does not repeat. `compiling`: seconds to compile an application."""
    if len(applications) < 2 * _LEAST_APPLICATIONS:
        return []
    seconds = [compiling(signature) for signature, _, _ in applications]
    if sum(seconds) < 2 * _LEAST_SAVED:
        return []
    cuts = _cuts(applications, seconds)
    return _segments_between(cuts, applications, wanted) if len(cuts) > 2 else []


def segments_around_collectives(applications: Sequence[Application], wanted: Sequence[int]) -> list[Segment]:
    """The segments of a graph in which each application with collectives is a segment of its own."""
    places = [at for at, (signature, _, _) in enumerate(applications) if signature.collective]
    cuts = {0, len(applications), *chain.from_iterable((at, at + 1) for at in places)}
    return _segments_between(sorted(cuts), applications, wanted)


def _segments_between(cuts: Sequence[int], applications: Sequence[Application], wanted: Sequence[int]) -> list[Segment]:
    bounds = list(pairwise(cuts))
    last_use = dict.fromkeys(wanted, len(bounds))
    for at, (start, end) in enumerate(bounds):
        for _, inputs, _ in applications[start:end]:
            for number in inputs:
                last_use[number] = max(at, last_use.get(number, at))
    return [_segment(applications[start:end], at, last_use) for at, (start, end) in enumerate(bounds)]


def _segment(applications: Sequence[Application], at: int, last_use: dict[int, int]) -> Segment:
    """The segment at this position in a graph."""
    numbers: dict[int, int] = {}  # the form's, by the graph's
    leaves: list[int] = []
    renumbered: list[Application] = []
    for signature, inputs, values in applications:
        leaves += [number for number in dict.fromkeys(inputs) if number not in numbers]
        for number in (*inputs, *[number for number, _ in values]):
            numbers.setdefault(number, len(numbers))
        outputs = tuple([(numbers[number], index) for number, index in values])
        renumbered.append((signature, tuple([numbers[number] for number in inputs]), outputs))
    products = [number for _, _, values in applications for number, _ in values]
    wanted = [number for number in products if last_use.get(number, at) > at]
    form = Form(tuple(renumbered), tuple([numbers[n] for n in leaves]), tuple([numbers[n] for n in wanted]))
    return Segment(form, leaves, wanted, [number for number in leaves if last_use[number] == at])


def _cuts(applications: Sequence[Application], compiling: Sequence[float]) -> list[int]:
    """The positions at which segments begin and end."""
    seconds = np.array([0.0, *accumulate(compiling)])
    kinds: dict[Signature, int] = {}
    sequence = np.array([kinds.setdefault(signature, len(kinds)) for signature, _, _ in applications])
    cuts = {0, len(applications)}
    stretches = [(0, len(applications))]
    alive = _alive(applications)
    while stretches:
        uninterrupted.poll()  # a graph of ten thousand operators takes a second
        start, end = stretches.pop()
        repetition = _repetition(sequence[start:end], seconds[start : end + 1])
        if repetition is None:
            continue
        first, last, period = repetition[0] + start, repetition[1] + start, repetition[2]
        # Of the places where a period may begin, the one that cuts off the least.
        inside = min(
            (range(at, last + 1, period) for at in range(first, first + period)),
            key=lambda cuts: sum([alive[at] for at in cuts]) / len(cuts),
        )
        cuts.update(inside)
        stretches += [(start, inside[0]), (inside[-1], end)]
    return sorted(cuts)


def _repetition(sequence: np.ndarray, seconds: np.ndarray) -> tuple[int, int, int] | None:
    """(start, end, period) of the stretch that is best cut into equal segments, if one is worth it.

    `seconds`: what compiling takes up to each position.
    """
    best, most = None, _LEAST_SAVED
    for period in range(_LEAST_APPLICATIONS, len(sequence) // 2 + 1):
        # Runs of positions whose application comes again a period later.
        edges = np.flatnonzero(np.diff(sequence[period:] == sequence[:-period], prepend=False, append=False))
        starts, ends = edges[::2], edges[1::2]
        for at in np.flatnonzero(ends - starts >= period).tolist():
            start, end = int(starts[at]), int(ends[at])
            repetitions = (end - start) // period
            saved = (seconds[start + period] - seconds[start]) * repetitions - _CALL * (repetitions + 1)
            if saved > most:
                best, most = (start, end + period, period), saved
    return best


def bytes_at_once(applications: Sequence[Application], wanted: Sequence[int]) -> int:
    """The most bytes of results at one time, if each is kept until its last use. XLA may keep fewer of them."""
    fresh = [sum([s.outputs[index].aval.nbytes for _, index in values]) for s, _, values in applications]
    return max([kept + new for kept, new in zip(_alive(applications, wanted), fresh, strict=False)])


def _alive(applications: Sequence[Application], wanted: Sequence[int] = ()) -> list[int]:
    """For each position to cut at: bytes that are computed before, and used after it or wanted."""
    last_use = {number: at for at, (_, inputs, _) in enumerate(applications) for number in inputs}
    last_use.update(dict.fromkeys(wanted, len(applications)))
    changes = [0] * (len(applications) + 1)
    for at, (signature, _, values) in enumerate(applications):
        for number, index in values:
            aval = signature.outputs[index].aval
            changes[at + 1] += aval.nbytes
            if (end := last_use.get(number, at)) < len(applications):
                changes[end + 1] -= aval.nbytes
    return list(accumulate(changes))
