"""The figures of one process, from which a report is made."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Self

from weft._base.timeline import Phase
from weft._base.types import Json
from weft._lazy import explain
from weft._lazy.signature import operators_of
from weft.profiler._collector import Collector
from weft.profiler._events import EventList
from weft.profiler._phases import PYTHON, Phases, phases_of
from weft.utils.bottleneck._inferred import Inferred, inferred_at

_ROWS = 5


@dataclass
class Figures:
    """What a report says of one process; all of it can be written as JSON.

    seconds        by phase (`Phases`), of which the sum is `wall`
    computing      seconds in which programs were computed
    operators      how many were recorded
    compilations   how many programs were compiled
    compiled_at    the lines that compiled most often: (line, how often, why the last time)
    inferred_at    the lines at which inference took longest (`Inferred`)
    interpreted    how many operators were computed without a compiled program
    computed       the operators with the largest shares of the time of programs: (name, milliseconds, how often)
    recorded_at    the lines that recorded most operators: (line, how many)
    devices        the types of devices that programs ran on
    """

    rank: int
    wall: float
    seconds: dict[str, float]
    computing: float
    operators: int
    compilations: int
    compiled_at: list[tuple[str, int, str]] = field(default_factory=list)
    computed: list[tuple[str, float, int]] = field(default_factory=list)
    recorded_at: list[tuple[str, int]] = field(default_factory=list)
    devices: list[str] = field(default_factory=list)
    inferred_at: list[Inferred] = field(default_factory=list)
    interpreted: int = 0

    def __post_init__(self) -> None:
        self.inferred_at = [Inferred(*entry) for entry in self.inferred_at]  # in JSON they are lists

    def as_dict(self) -> dict[str, Json]:
        """For JSON."""
        return asdict(self)

    @classmethod
    def of(cls, notes: Collector, sums: EventList, rank: int, compilations: Sequence[explain.Compilation]) -> Self:
        """The figures of a profile, of which `sums` are the events by name, and of the compilations during it."""
        phases = phases_of(notes)
        largest = sorted(sums, key=lambda event: -event.computed_time_total)[:_ROWS]
        lines = Counter(operator.stack[0] for operator in notes.operators if operator.stack)
        sites = Counter(entry.site for entry in compilations)
        causes = {entry.site: entry.cause for entry in compilations}
        devices = {str(output.aval.device) for o in notes.operators for output in o.signature.outputs}
        return cls(
            rank,
            phases.wall,
            dict(phases),
            phases.computing,
            phases.operators,
            len(compilations),
            [(site, count, causes[site]) for site, count in sites.most_common(_ROWS)],
            [(e.key, 1e-3 * e.computed_time_total, e.count) for e in largest if e.computed_time_total],
            lines.most_common(_ROWS),
            sorted(devices),
            inferred_at(notes, _ROWS),
            _interpreted(notes),
        )

    @property
    def phases(self) -> Phases:
        """The times by phase."""
        return Phases({PYTHON: 0.0, **self.seconds}, self.wall, self.computing, self.operators)


def _interpreted(notes: Collector) -> int:
    ends = {span.end for span in notes.spans if span.phase is Phase.INTERPRETING}
    return sum(operators_of([signature for signature, _ in c.applications])[0] for c in notes.computed if c.end in ends)
