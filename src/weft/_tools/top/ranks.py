"""What each rank does, worked out from reports of a job over some seconds. Nothing here asks or prints."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from statistics import median_low

from weft._base.activity import CALLS, COLLECTIVES, WAITS
from weft.distributed.elastic._job_report import JobReport, NodeReport, WorkerReport

WINDOW_SECONDS = 10.0
"""The time over which rates and shares are means."""

_STUCK_SECONDS, _STUCK_STEPS = 10.0, 10.0  # without progress; the longer one counts, in steps of the last duration
_SLOWER, _LEAST_DELAY = 1.25, 0.1  # times the median of what steps take besides waiting; in parts of a step
_WORTH_TELLING = 1.0  # seconds of a wait or a compilation


@dataclass(frozen=True)
class Rank:
    """A line of the view; None stands for what is not known.

    state             "ok"; "slow": others wait for it; "waits": no progress, since it waits for others; "stuck": no
                      progress for another reason; "stopped" or "ended": its process; "silent": its node
    step_seconds      between the ends of optimizer steps
    shares            of the time that it waits, by what for: "data", "collectives" and "calls"
    seconds_since_step  None before the first step
    doing             what it is in for more than a second: a wait, or a compilation
    """

    rank: int
    node: int
    host: str
    pid: int
    state: str
    steps: int | None = None
    step_seconds: float | None = None
    seconds_since_step: float | None = None
    tokens_per_second: float | None = None
    samples_per_second: float | None = None
    compilations: int | None = None
    compile_seconds: float | None = None
    shares: dict[str, float] = field(default_factory=dict[str, float])
    calls_served_per_second: float | None = None
    resident_bytes: int = 0
    device_bytes: int | None = None
    device_limit: int | None = None
    doing: str = ""
    reported: dict[str, float] = field(default_factory=dict[str, float])


class Window:
    """The reports of the last seconds."""

    def __init__(self) -> None:
        self._reports: deque[JobReport] = deque()

    def add(self, report: JobReport) -> None:
        """Take in a new report, and drop those that are too old."""
        self._reports.append(report)
        while len(self._reports) > 2 and self._reports[1].seconds < report.seconds - WINDOW_SECONDS:
            self._reports.popleft()

    @property
    def last(self) -> JobReport:
        """The newest report."""
        return self._reports[-1]

    def ranks(self) -> list[Rank]:
        """The ranks of the newest report, in order."""
        ranks = [
            _rank(node, worker, self._earlier(node.node, worker)) for node in self.last.nodes for worker in node.workers
        ]
        return sorted(_with_stragglers(ranks), key=lambda rank: (rank.rank, rank.node))

    def _earlier(self, node: int, worker: WorkerReport) -> WorkerReport | None:
        """The oldest report of the same process."""
        for report in self._reports:
            for other in report.nodes:
                for earlier in other.workers:
                    if other.node == node and earlier.pid == worker.pid and earlier.time < worker.time:
                        return earlier if earlier.numbers else None
        return None


def _rank(node: NodeReport, worker: WorkerReport, before: WorkerReport | None) -> Rank:
    state = worker.process if worker.process != "running" else "ok"
    basis = Rank(
        worker.rank,
        node.node,
        node.host,
        worker.pid,
        state if node.answers else "silent",
        resident_bytes=worker.resident_bytes,
    )
    if not worker.numbers:
        return replace(basis, doing="tells nothing of what it does")
    now = worker.numbers
    rank = replace(
        basis,
        steps=int(now["steps"]),
        step_seconds=_step_seconds(now, before),
        seconds_since_step=worker.time - now["step_ended"] if now["steps"] else None,
        tokens_per_second=_rate("tokens", worker, before),
        samples_per_second=_rate("samples", worker, before),
        compilations=int(now["compilations"]),
        compile_seconds=now["compile_seconds"],
        shares=_shares(worker, before),
        calls_served_per_second=_calls_served(worker, before),
        device_bytes=int(now["device_bytes"]) if now["device_bytes"] else None,
        device_limit=int(now["device_limit"]) if now["device_limit"] else None,
        doing=_doing(worker),
        reported=worker.reported,
    )
    if rank.state == "ok" and _is_stuck(worker, rank.step_seconds):
        rank = replace(rank, state="waits" if worker.waits_for in (COLLECTIVES, CALLS) else "stuck")
    if rank.state != "ok":
        rank = replace(rank, tokens_per_second=None, samples_per_second=None, calls_served_per_second=None)
    return rank


def _step_seconds(now: dict[str, float], before: WorkerReport | None) -> float | None:
    if before is not None and 0 < before.numbers["steps"] < now["steps"]:
        return (now["step_ended"] - before.numbers["step_ended"]) / (now["steps"] - before.numbers["steps"])
    return now["step_seconds"] or None


def _rate(kind: str, worker: WorkerReport, before: WorkerReport | None) -> float | None:
    """Tokens or samples per second, from the first report in the window to the last, or to now if that is long ago."""
    now, ended = worker.numbers, worker.numbers[f"{kind}_ended"]
    if before is None or not 0 < (begun := before.numbers[f"{kind}_ended"]) < ended:
        return now[f"{kind}_rate"] or None
    is_late = worker.time - ended > max(_WORTH_TELLING, ended - begun)
    return (now[kind] - before.numbers[kind]) / ((worker.time if is_late else ended) - begun)


def _shares(worker: WorkerReport, before: WorkerReport | None) -> dict[str, float]:
    if before is None:
        return {}
    waited = {kind: worker.numbers[f"{kind}_seconds"] - before.numbers[f"{kind}_seconds"] for kind in WAITS}
    seconds = worker.time - before.time
    return {kind: min(1.0, max(0.0, share / seconds)) for kind, share in waited.items()}


def _calls_served(worker: WorkerReport, before: WorkerReport | None) -> float | None:
    if before is None or not worker.numbers["calls_served"]:
        return None
    return (worker.numbers["calls_served"] - before.numbers["calls_served"]) / (worker.time - before.time)


def _doing(worker: WorkerReport) -> str:
    if worker.compilation is not None and worker.compilation[1] > _WORTH_TELLING:
        return f"compiling {worker.compilation[0]} for {duration(worker.compilation[1])}"
    if worker.wait is not None and worker.wait[1] > _WORTH_TELLING:
        return f"in {worker.wait[0]} for {duration(worker.wait[1])}"
    return ""


def _is_stuck(worker: WorkerReport, step_seconds: float | None) -> bool:
    """Whether a rank makes no progress any more. Before the first, it may load a model: only a wait counts then."""
    progress = worker.numbers["progress"]
    allowed = max(_STUCK_SECONDS, _STUCK_STEPS * (step_seconds or 0.0))
    without = worker.time - progress if progress else worker.wait[1] if worker.wait is not None else 0.0
    return worker.compilation is None and without > allowed


def _with_stragglers(ranks: Sequence[Rank]) -> list[Rank]:
    """Mark the ranks for which the others wait: what their steps take besides waiting for others is longest."""
    own = {
        rank.rank: rank.step_seconds * (1 - rank.shares.get("collectives", 0.0))
        for rank in ranks
        if rank.state == "ok" and rank.step_seconds is not None and rank.shares
    }
    if len(own) < 2:
        return list(ranks)
    usual = median_low(own.values())
    return [
        replace(rank, state="slow")
        if rank.rank in own
        and own[rank.rank] > _SLOWER * usual
        and own[rank.rank] - usual > _LEAST_DELAY * (rank.step_seconds or 0.0)
        else rank
        for rank in ranks
    ]


def duration(seconds: float) -> str:
    """A time, as a short text."""
    if seconds < 1e-3:
        return f"{1e6 * seconds:.0f} µs"
    if seconds < 1:
        return f"{1e3 * seconds:.{0 if seconds >= 0.1 else 1}f} ms"
    if seconds < 120:
        return f"{seconds:.{0 if seconds >= 10 else 1}f} s"
    minutes, hours = int(seconds // 60), int(seconds // 3600)
    return f"{minutes} min" if minutes < 120 else f"{hours} h {minutes % 60} min"
