"""The command `python -m weft.utils.bottleneck`."""

from __future__ import annotations

import argparse
import cProfile
import io
import pstats
import runpy
import sys
from collections.abc import Sequence
from pathlib import Path

from weft._base.leaving import leave_all
from weft._lazy.explain import explain
from weft._lazy.flushing import flush_pending
from weft.profiler._collector import Collector
from weft.profiler._events import EventList, events_of
from weft.utils.bottleneck._figures import Figures
from weft.utils.bottleneck._ranks import gathered, rank, world_size
from weft.utils.bottleneck._verdict import verdict
from weft.utils.collect_env import get_pretty_env_info

_ROWS = 15
_RULE = "-" * 80


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a script, and print what it is bound by; returns the status of the process."""
    parser = argparse.ArgumentParser(
        prog="python -m weft.utils.bottleneck",
        description="Run a script, and print what its time goes to: the environment, Weft's phases and operators, the "
        "Python profile (of a second run, unless a launcher has started this), and what the program is bound by. The "
        "script has to end by itself.",
    )
    parser.add_argument("--once", action="store_true", help="run the script once only, without the Python profile")
    parser.add_argument("script", help="the script to be run")
    parser.add_argument("args", nargs=argparse.REMAINDER, help="arguments of the script")
    options = parser.parse_args(arguments)
    script = Path(options.script)
    if not script.is_file():
        parser.error(f"there is no script {options.script}")
    sys.path[0] = str(script.resolve().parent)
    sys.argv = [options.script, *options.args]

    notes = Collector(stacks=True)
    compiled = len(explain())
    notes.start()
    failure: Exception | None = None
    try:
        status = _run(script)
        flush_pending()
    except Exception as error:  # what was noted until then is worth a report
        status, failure = 1, error
    finally:
        notes.stop()
        leave_all()  # nobody waits for a script that is over
    if failure is not None and world_size() > 1:
        print(f"rank {rank()}: the script has failed: {type(failure).__name__}: {failure}", file=sys.stderr, flush=True)
    sums = events_of([notes], shapes=False, stack=False, memory=False, flops=False).key_averages()
    figures = Figures.of(notes, sums, rank(), explain()[compiled:])
    python = None if options.once or world_size() > 1 or status else _python_profile(script)
    with gathered(figures, failed=status != 0) as (everyone, missing):
        if figures.rank == 0:
            print(_report(sums, everyone, missing, python), flush=True)
    if failure is not None:
        raise failure
    return status


def _run(script: Path) -> int:
    """Run the script as `__main__`; the status that it ends with."""
    try:
        runpy.run_path(str(script), run_name="__main__")
    except SystemExit as end:
        if isinstance(end.code, str):
            print(end.code, file=sys.stderr)
        return end.code if isinstance(end.code, int) else int(end.code is not None)
    return 0


def _python_profile(script: Path) -> str:
    """The functions of a second run that take the most time themselves."""
    profile = cProfile.Profile()
    profile.enable()
    try:
        _run(script)
        flush_pending()
    finally:
        profile.disable()
    text = io.StringIO()
    pstats.Stats(profile, stream=text).sort_stats("tottime").print_stats(_ROWS)
    return text.getvalue().strip()


def _section(title: str, text: str) -> list[str]:
    return [_RULE, f"  {title}", _RULE, text, ""]


def _report(sums: EventList, figures: Sequence[Figures], missing: Sequence[int], python: str | None) -> str:
    lines = _section("Environment Summary", get_pretty_env_info())
    if python is not None:
        lines += _section("cProfile output", python)
    lines += _section(
        f"autograd profiler output\n        top {_ROWS} events sorted by cpu_time_total",
        sums.table(sort_by="cpu_time_total", row_limit=_ROWS),
    )
    for entry in figures:
        title = f"Time by phase, rank {entry.rank}" if len(figures) > 1 else "Time by phase"
        lines += _section(title, str(entry.phases))
    if missing:
        lines += [f"No figures from ranks {', '.join(map(str, missing))}: they have not ended, or failed.", ""]
    return "\n".join([*lines, *_section("Bottleneck", verdict(figures))])


if __name__ == "__main__":
    sys.exit(main())
