"""Where a thread's time went, by phase."""

from __future__ import annotations

from weft._base.timeline import Phase
from weft.profiler._collector import Collector
from weft.profiler._cover import Cover
from weft.profiler._nesting import nested

PYTHON = "Python"
_ORDER = (PYTHON, *[str(phase) for phase in Phase if phase is not Phase.BLOCK])
_TEXTS = {
    PYTHON: "the program itself, and what is not told apart",
    Phase.RECORDING: "operators, backward passes, optimizer steps",
    Phase.INFERENCE: "types of results, at an operator's first use with some types",
    Phase.PLANNING: "what programs have to compute",
    Phase.TRACING: "programs, by jax",
    Phase.LOWERING: "programs, to what XLA takes",
    Phase.COMPILING: "programs, by XLA",
    Phase.LOADING: "compiled programs, from their folder",
    Phase.INTERPRETING: "programs that are not compiled",
    Phase.RUNNING: "compiled programs: their start, and what XLA computes in this thread",
    Phase.WAITING: "for what devices compute",
    Phase.TRANSFER: "to and from devices",
    Phase.DATA: "waiting for batches, or making them",
    Phase.COLLECTIVE: "with other ranks",
    Phase.CALL: "waiting for other workers",
    Phase.PROFILING: "the profile itself",
}


class Phases(dict[str, float]):
    """Seconds of one thread by phase, of which the sum is `wall`.

    wall        seconds from the begin of the profile to its end
    computing   seconds in which programs were computed, in whatever thread
    operators   the number of operators that were recorded
    """

    def __init__(self, seconds: dict[str, float], wall: float, computing: float, operators: int) -> None:
        super().__init__(seconds)
        self.wall, self.computing, self.operators = wall, computing, operators

    def __str__(self) -> str:
        lines = [f"{'Phase':14}{'ms':>12}{'%':>7}"]
        for name, seconds in self.items():
            share = seconds / self.wall if self.wall else 0.0
            lines.append(f"{name:14}{1e3 * seconds:12.3f}{100 * share:7.1f}  {_TEXTS[name]}")
        lines.append(
            f"{1e3 * self.wall:.3f} ms in all; {self.operators} operators; programs were computed for "
            f"{1e3 * self.computing:.3f} ms"
        )
        return "\n".join(lines)


def phases_of(notes: Collector) -> Phases:
    """The phases of the thread that was profiled.

    Recording is measured where it is a whole backward pass or optimizer step; other operators are counted with the
    time that one took when the profile began.
    """
    wall = notes.end_ns - notes.start_ns
    sums: dict[str, float] = dict.fromkeys(_ORDER, 0.0)
    for entry in nested(notes.all_spans(), notes.thread):
        if entry.phase is not Phase.BLOCK:
            sums[entry.phase] += entry.own
    sums[PYTHON] = wall - sum(sums.values())
    seconds = {name: 1e-9 * time for name, time in sums.items() if time or name == PYTHON}
    computing = Cover((start, end) for start, end, _ in notes.computed).length()
    operators = sum(operator.thread == notes.thread for operator in notes.operators)
    return Phases(seconds, 1e-9 * wall, 1e-9 * computing, operators)
