"""`make libraries`: run programs of libraries that are written for PyTorch, and write the table of `docs/libraries.md`.

The libraries are installed in an environment of their own under `build/`, without PyTorch. Each program of
`tests/libraries/` runs by `weft PROGRAM` and prints results, which are compared with those that PyTorch gives, in
`tests/libraries/expected.json`. Its times are shown beside PyTorch's, in `tests/libraries/times.json`. With `--record`,
the programs run by this Python, or by the one that `--python` names, which must have PyTorch and the libraries, and
those two files are written. `--runs` runs each program several times, and keeps the shortest times.

Each line of `tests/libraries/imports.txt` is a library, and code that imports it and makes or calls what it is about.
The name `imports` stands for them among the names of programs.
"""

from __future__ import annotations

import argparse
import ast
import json
import math
import os
import re
import resource
import subprocess
import sys
import textwrap
import venv
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PROGRAMS = ROOT / "tests" / "libraries"
ENVIRONMENT = ROOT / "build" / "libraries"
EXPECTED = PROGRAMS / "expected.json"
TIMES = PROGRAMS / "times.json"
IMPORTS = PROGRAMS / "imports.txt"
REQUIREMENTS = PROGRAMS / "requirements.txt"
PAGE = ROOT / "docs" / "libraries.md"
TABLE = re.compile(r"(?<=<!-- table -->\n).*(?=<!-- end of table -->)", re.DOTALL)
IMPORTED = re.compile(r"(?<=<!-- imports -->\n).*(?=<!-- end of imports -->)", re.DOTALL)
ROW = re.compile(r"^\|[^|`]*\| `(\w+)` \|.*$", re.MULTILINE)
LIMIT = 600
VERSIONS = """
import importlib.metadata, json
packages = importlib.metadata.packages_distributions()
print(json.dumps({package: importlib.metadata.version(names[0]) for package, names in packages.items()}))
"""
Results = dict[str, list[float]]
Times = dict[str, float]


@dataclass
class Run:
    """What a program has printed, its processor seconds, and the last line of its errors if it has failed."""

    results: Results
    times: Times
    error: str


@dataclass
class Outcome:
    """How a program has ended: the names of results that differ, or the last line of its errors; its times."""

    program: Path
    differing: list[str]
    error: str
    times: Times

    @property
    def text(self) -> str:
        """The outcome in a cell of the table."""
        if self.error:
            return f"fails: {self.error}"
        return f"other numbers: {', '.join(self.differing)}" if self.differing else "agrees with PyTorch"


def main() -> None:
    options = argparse.ArgumentParser(description="Run programs of libraries that are written for PyTorch.")
    options.add_argument("names", nargs="*", help="programs, by the names of their files, or imports; by default all")
    options.add_argument("--record", action="store_true", help="write PyTorch's results")
    options.add_argument("--python", help="the Python that runs the programs, instead of that under build/")
    options.add_argument("--runs", type=int, default=1, help="how often each program runs, for its shortest times")
    chosen = options.parse_args()
    programs = [path for path in sorted(PROGRAMS.glob("*_*.py")) if not chosen.names or path.stem in chosen.names]
    expected: dict[str, Results] = json.loads(EXPECTED.read_text())
    times: dict[str, Times] = json.loads(TIMES.read_text())
    if chosen.record:
        for path in programs:
            expected[path.stem], times[path.stem] = recorded(path, chosen.python or sys.executable, chosen.runs)
        for file, entries in (EXPECTED, expected), (TIMES, times):
            file.write_text(json.dumps(entries, indent=1, sort_keys=True) + "\n")
        return
    python = chosen.python or installed()
    outcomes = [outcome_of(path, python, expected.get(path.stem, {}), chosen.runs) for path in programs]
    PAGE.write_text(TABLE.sub(lambda found: table(found[0], outcomes, times, python), PAGE.read_text()))
    failed = any(outcome.error or outcome.differing for outcome in outcomes)
    if not chosen.names or "imports" in chosen.names:
        errors = import_errors(python)
        PAGE.write_text(IMPORTED.sub(lambda _: imported(errors), PAGE.read_text()))
        failed |= any(errors.values())
    sys.exit(failed)


def installed() -> str:
    """The Python of the environment, which is made if its requirements are not there."""
    python, done = ENVIRONMENT / "bin" / "python", ENVIRONMENT / "requirements.txt"
    wanted = REQUIREMENTS.read_text()
    if not done.exists() or done.read_text() != wanted:
        venv.create(ENVIRONMENT, with_pip=True, clear=True)
        install = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        subprocess.run([*install, "--editable", ROOT], check=True)
        subprocess.run([*install, "--no-deps", "--requirement", REQUIREMENTS], check=True)
        done.write_text(wanted)
    return str(python)


def import_errors(python: str) -> dict[str, str]:
    """By library of `imports.txt`: the last line of the errors of its code, which is empty if it runs."""
    entries = dict(line.split(" | ", maxsplit=1) for line in IMPORTS.read_text().splitlines())
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        runs = pool.map(lambda code: run([python, "-m", "weft", "-c", code]), entries.values())
        errors = {name: done.error for name, done in zip(entries, runs, strict=True)}
    for name, error in errors.items():
        print(f"{name}: {f'fails: {error}' if error else 'imports'}", flush=True)
    return errors


def imported(errors: dict[str, str]) -> str:
    """The page's list of the libraries that are imported, with their versions and what goes wrong, if anything does."""
    pinned = dict(line.split("==") for line in REQUIREMENTS.read_text().splitlines() if not line.startswith("#"))
    listed = [f"{name} {pinned[name]}" + (f" (fails: {error})" if error else "") for name, error in errors.items()]
    text = f"{list(errors.values()).count('')} libraries: {', '.join(listed)}."
    return textwrap.fill(text, 144, break_on_hyphens=False) + "\n"


def shortest(command: list[str], runs: int) -> Run:
    """Run a program several times: its results, and the shortest of its times."""
    done = run(command)
    for _ in range(runs - 1):
        for what, seconds in run(command).times.items():
            done.times[what] = min(done.times.get(what, math.inf), seconds)
    return done


def run(command: list[str]) -> Run:
    """Run a program."""
    settings = {"WEFT_COMPILE_CACHE": "", "TOKENIZERS_PARALLELISM": "false", "OMP_NUM_THREADS": "1"}
    before = children_seconds()
    try:
        done = subprocess.run(command, env=os.environ | settings, capture_output=True, text=True, timeout=LIMIT)
    except subprocess.TimeoutExpired:
        return Run({}, {}, f"it has not ended after {LIMIT} seconds")
    times = {"program": children_seconds() - before}
    results: Results = {}
    for line in done.stdout.splitlines():
        match line.split():
            case ["result", name, *numbers]:
                results[name] = [float(ast.literal_eval(number)) for number in numbers]
            case ["time", name, seconds]:
                times[name] = float(seconds)
            case _:
                pass
    if done.returncode:
        return Run({}, {}, (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1])
    return Run(results, times, "")


def children_seconds() -> float:
    """Processor seconds of the child processes that have ended, and of theirs."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def recorded(path: Path, python: str, runs: int) -> tuple[Results, Times]:
    """PyTorch's results of a program, and its times."""
    done = shortest([python, str(path)], runs)
    if done.error:
        raise SystemExit(f"{path.stem} fails under PyTorch: {done.error}")
    print(f"{path.stem}: {len(done.results)} results", flush=True)
    return done.results, {name: float(f"{seconds:.3g}") for name, seconds in done.times.items()}


def outcome_of(path: Path, python: str, expected: Results, runs: int) -> Outcome:
    """How a program runs on Weft."""
    done = shortest([python, "-m", "weft", str(path)], runs)
    if not done.error and not expected:
        done.error = "there are no results of PyTorch's to compare with; see tools/libraries.py --record"
    differing = [name for name, numbers in expected.items() if not agree(done.results.get(name, []), numbers)]
    outcome = Outcome(path, differing, done.error, done.times)
    print(f"{path.stem}: {outcome.text}", flush=True)
    return outcome


def agree(results: list[float], expected: list[float]) -> bool:
    """Whether numbers are close, as float32 in another order of sums is."""
    return len(results) == len(expected) and all(
        math.isclose(number, other, rel_tol=1e-3, abs_tol=1e-4) for number, other in zip(results, expected, strict=True)
    )


def table(present: str, outcomes: list[Outcome], times: dict[str, Times], python: str) -> str:
    """The page's table, where the rows of these programs are new and those of programs that are gone are left out."""
    listed = subprocess.run([python, "-c", VERSIONS], capture_output=True, text=True, check=True)
    versions: dict[str, str] = json.loads(listed.stdout)
    rows = {found[1]: found[0] for found in ROW.finditer(present) if (PROGRAMS / f"{found[1]}.py").exists()}
    for outcome in outcomes:
        rows[outcome.program.stem] = row(outcome, times.get(outcome.program.stem, {}), versions)
    head = ["| library | program | what it does | outcome | whole program | a step |", "|---|---|---|---|---|---|"]
    return "\n".join([*head, *(rows[name] for name in sorted(rows)), ""])


def row(outcome: Outcome, times: Times, versions: dict[str, str]) -> str:
    """A program's row. A program's name begins with that of the package that it is about."""
    name = outcome.program.stem
    library = max((package for package in versions if name.startswith(f"{package}_")), key=len, default=name)
    cells = [
        f"{library} {versions.get(library, '')}",
        f"`{name}`",
        ast.get_docstring(ast.parse(outcome.program.read_text())) or "",
        outcome.text.replace("|", "/"),
        *(beside(outcome.times.get(what), times.get(what)) for what in ("program", "step")),
    ]
    return f"| {' | '.join(cells)} |"


def beside(seconds: float | None, others: float | None) -> str:
    """A time beside PyTorch's; nothing where one is not known."""
    return "" if seconds is None or others is None else f"{shown(seconds)} / {shown(others)}"


def shown(seconds: float) -> str:
    """A time to two digits."""
    return f"{float(f'{seconds:.2g}'):g} s" if seconds >= 1 else f"{float(f'{seconds * 1e3:.2g}'):g} ms"


if __name__ == "__main__":
    main()
