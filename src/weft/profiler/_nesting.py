"""Spans within spans: the time of each without that of others within."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from weft._base.timeline import Phase, Span

_WHOLE = frozenset({Phase.DATA, Phase.COLLECTIVE, Phase.CALL})
_OF_PROGRAMS = frozenset({Phase.INFERENCE, Phase.TRACING, Phase.LOWERING, Phase.COMPILING, Phase.LOADING})


class NestedSpan(NamedTuple):
    """A span with its own time.

    phase   what its own time counts as: of waiting for data, it is that, whatever is done within
    own     nanoseconds, without spans within
    outer   the position of the span around it, or -1
    """

    span: Span
    phase: Phase
    own: int
    outer: int


def nested(spans: Sequence[Span], thread: int) -> list[NestedSpan]:
    """The spans of a thread in order of their start, outer ones first."""
    ordered = sorted([s for s in spans if s.thread == thread], key=lambda span: (span.start, -span.end))
    result: list[NestedSpan] = []
    around: list[int] = []
    for span in ordered:
        while around and result[around[-1]].span.end <= span.start:
            around.pop()
        outer = around[-1] if around else -1
        phase = span.phase
        if outer >= 0:
            over = result[outer]
            span = span._replace(end=min(span.end, over.span.end))
            result[outer] = over._replace(own=over.own - (span.end - span.start))
            if phase is not Phase.BLOCK:
                phase = _counted(phase, over.phase)
            elif over.phase in _WHOLE:
                phase = over.phase
        result.append(NestedSpan(span, phase, span.end - span.start, outer))
        around.append(len(result) - 1)
    return result


def _counted(inner: Phase, outer: Phase) -> Phase:
    if outer is Phase.INFERENCE and inner in _OF_PROGRAMS:
        return outer
    return outer if outer in _WHOLE and inner not in _OF_PROGRAMS else inner
