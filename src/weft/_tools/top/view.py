"""The view of a job: a line for each rank, and what they do together."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from statistics import median_low

from rich.console import Group
from rich.text import Text

from weft._tools.tables import amount, table
from weft._tools.top.ranks import Rank, Window, duration
from weft.distributed.elastic._job_report import JobReport

_STATES = {"HEALTHY": "running", "STOPPED": "restarting", "SUCCEEDED": "finishing", "FAILED": "failing"}
_STYLES = {
    "ok": "green",
    "slow": "yellow",
    "ended": "red",
    "silent": "red",
    "stopped": "bold red",
    "stuck": "bold red",
    "waits": "yellow",
}
_HALTED = ("stuck", "stopped", "waits")
_NOTHING = "-"

_Cell = Callable[[Rank], str]
_COLUMNS: tuple[tuple[str, _Cell], ...] = (
    (" rank", lambda rank: str(rank.rank)),
    ("node", lambda rank: f"{rank.node} {rank.host}".rstrip()),
    (" process", lambda rank: str(rank.pid)),
    ("state", lambda rank: rank.state),
    (" step", lambda rank: _NOTHING if rank.steps is None else str(rank.steps)),
    (" step time", lambda rank: _NOTHING if rank.step_seconds is None else duration(rank.step_seconds)),
    (" tokens/s", lambda rank: _count(rank.tokens_per_second)),
    (" samples/s", lambda rank: _count(rank.samples_per_second)),
    (" compiled", lambda rank: _compiled(rank.compilations, rank.compile_seconds)),
    (" data", lambda rank: _share(rank, "data")),
    (" collectives", lambda rank: _share(rank, "collectives")),
    (" calls", lambda rank: _share(rank, "calls")),
    (" served/s", lambda rank: _count(rank.calls_served_per_second)),
    (" memory", lambda rank: amount(rank.resident_bytes) if rank.resident_bytes else _NOTHING),
    (" device", lambda rank: _device(rank)),
    ("", lambda rank: _note(rank)),
)
_ALWAYS = {" rank", " process", "state", " step", " step time", " compiled", " data", " collectives", " memory"}
"""The columns that are shown even if they are empty."""


def render(window: Window) -> Group:
    """The view of the newest report."""
    ranks, job = window.ranks(), window.last
    columns = [
        (name, cell)
        for name, cell in _COLUMNS
        if name in _ALWAYS or (len(job.nodes) > 1 if name == "node" else any(_is_told(cell(rank)) for rank in ranks))
    ]
    rows = [[_styled(name, cell(rank)) for name, cell in columns] for rank in ranks]
    if len(ranks) > 1:
        rows.append([Text(_together(name, ranks), "bold") for name, _ in columns])
    silent = [f"node {node.node} {node.host}".rstrip() for node in job.nodes if not node.answers]
    notes = [f"no answer from {', '.join(silent)}"] if silent else []
    return Group(Text(_head(job, len(ranks)), "bold"), table([name for name, _ in columns], rows), *map(Text, notes))


def _head(job: JobReport, ranks: int) -> str:
    nodes = f"{len(job.nodes)} node{'s' if len(job.nodes) > 1 else ''}"
    restarts = f", restart {job.restarts} of {job.max_restarts}" if job.restarts else ""
    state = _STATES.get(job.state, job.state.lower())
    return f"{job.program}, job {job.job}: {state} for {duration(job.seconds)}, {_ranks(ranks)} on {nodes}{restarts}"


def _ranks(count: int) -> str:
    return f"{count} rank{'' if count == 1 else 's'}"


def _styled(column: str, cell: str) -> Text:
    return Text(cell, _STYLES.get(cell, "") if column == "state" else "")


def _is_told(cell: str) -> bool:
    return cell not in ("", _NOTHING, "0 %")


def _together(column: str, ranks: Sequence[Rank]) -> str:
    """The cell of the last line: sums, and the median of step times."""
    match column:
        case " rank":
            return "all"
        case " step time" if times := [rank.step_seconds for rank in ranks if rank.step_seconds is not None]:
            return duration(median_low(times))
        case " tokens/s":
            return _count(sum(rank.tokens_per_second or 0.0 for rank in ranks))
        case " samples/s":
            return _count(sum(rank.samples_per_second or 0.0 for rank in ranks))
        case " served/s":
            return _count(sum(rank.calls_served_per_second or 0.0 for rank in ranks))
        case " memory":
            return amount(sum(rank.resident_bytes for rank in ranks))
        case _:
            return ""


def _share(rank: Rank, kind: str) -> str:
    return f"{100 * rank.shares[kind]:.0f} %" if kind in rank.shares else _NOTHING


def _count(number: float | None) -> str:
    """A rate, with three digits."""
    if number is None:
        return _NOTHING
    for unit in ("", " k", " M", " G"):
        if number < 1000 or unit == " G":
            return f"{number:.3g}{unit}" if number < 1000 else f"{number:.0f}{unit}"
        number /= 1000
    raise AssertionError("the last unit takes every number")


def _compiled(count: int | None, seconds: float | None) -> str:
    if count is None or seconds is None:
        return _NOTHING
    return f"{count} in {duration(seconds)}" if count else "0"


def _device(rank: Rank) -> str:
    if rank.device_bytes is None:
        return _NOTHING
    return amount(rank.device_bytes) + (f" of {amount(rank.device_limit)}" if rank.device_limit else "")


def _note(rank: Rank) -> str:
    since = rank.seconds_since_step
    notes = [f"no step for {duration(since)}"] if rank.state in _HALTED and since is not None else []
    notes += [rank.doing] if rank.doing else []
    notes += [f"{name} {value:.4g}" for name, value in rank.reported.items()]
    return ", ".join(notes)
