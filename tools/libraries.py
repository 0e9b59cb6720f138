"""`make libraries`: run programs of libraries that are written for PyTorch, and write the table of `docs/libraries.md`.

The libraries are installed in an environment of their own under `build/`, without PyTorch. Each program of
`tests/libraries/` runs by `weft PROGRAM` and prints results, which are compared with those that PyTorch gives, in
`tests/libraries/expected.json`. With `--record`, the programs run by this Python, or by the one that `--python` names,
which must have PyTorch and the libraries, and that file is written.
"""

from __future__ import annotations

import argparse
import ast
import json
import math
import os
import re
import subprocess
import sys
import venv
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PROGRAMS = ROOT / "tests" / "libraries"
ENVIRONMENT = ROOT / "build" / "libraries"
EXPECTED = PROGRAMS / "expected.json"
PAGE = ROOT / "docs" / "libraries.md"
TABLE = re.compile(r"(?<=<!-- table -->\n).*(?=<!-- end of table -->)", re.DOTALL)
LIMIT = 600
Results = dict[str, list[float]]


@dataclass
class Outcome:
    """How a program has ended: the names of results that differ, or the last line of its errors."""

    program: Path
    differing: list[str]
    error: str

    @property
    def text(self) -> str:
        """The outcome in a cell of the table."""
        if self.error:
            return f"fails: {self.error}"
        return f"other numbers: {', '.join(self.differing)}" if self.differing else "agrees with PyTorch"


def main() -> None:
    options = argparse.ArgumentParser(description="Run programs of libraries that are written for PyTorch.")
    options.add_argument("names", nargs="*", help="programs, by the names of their files; by default all")
    options.add_argument("--record", action="store_true", help="write PyTorch's results")
    options.add_argument("--python", help="the Python that runs the programs, instead of that under build/")
    chosen = options.parse_args()
    programs = [path for path in sorted(PROGRAMS.glob("*_*.py")) if not chosen.names or path.stem in chosen.names]
    expected: dict[str, Results] = json.loads(EXPECTED.read_text()) if EXPECTED.exists() else {}
    if chosen.record:
        for path in programs:
            expected[path.stem] = recorded(path, chosen.python or sys.executable)
        EXPECTED.write_text(json.dumps(expected, indent=1, sort_keys=True) + "\n")
        return
    python = chosen.python or installed()
    outcomes = [outcome_of(path, python, expected.get(path.stem, {})) for path in programs]
    if not chosen.names:
        PAGE.write_text(TABLE.sub(lambda _: table(outcomes, python), PAGE.read_text()))
    sys.exit(any(outcome.error or outcome.differing for outcome in outcomes))


def installed() -> str:
    """The Python of the environment, which is made if its requirements are not there."""
    python, done = ENVIRONMENT / "bin" / "python", ENVIRONMENT / "requirements.txt"
    wanted = (PROGRAMS / "requirements.txt").read_text()
    if not done.exists() or done.read_text() != wanted:
        venv.create(ENVIRONMENT, with_pip=True, clear=True)
        install = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        subprocess.run([*install, "--editable", ROOT], check=True)
        subprocess.run([*install, "--no-deps", "--requirement", PROGRAMS / "requirements.txt"], check=True)
        done.write_text(wanted)
    return str(python)


def run(command: list[str]) -> tuple[Results, str]:
    """The results that a program prints, and the last line of its errors if it fails."""
    environment = {**os.environ, "WEFT_COMPILE_CACHE": "", "TOKENIZERS_PARALLELISM": "false"}
    try:
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=LIMIT)
    except subprocess.TimeoutExpired:
        return {}, f"it has not ended after {LIMIT} seconds"
    words = [line.split() for line in done.stdout.splitlines() if line.startswith("result ")]
    results = {name: [float(ast.literal_eval(number)) for number in numbers] for _, name, *numbers in words}
    lines = done.stderr.strip().splitlines()
    return results, (lines[-1] if lines else f"exit code {done.returncode}") if done.returncode else ""


def recorded(path: Path, python: str) -> Results:
    """PyTorch's results of a program."""
    results, error = run([python, str(path)])
    if error:
        raise SystemExit(f"{path.stem} fails under PyTorch: {error}")
    print(f"{path.stem}: {len(results)} results", flush=True)
    return results


def outcome_of(path: Path, python: str, expected: Results) -> Outcome:
    """How a program runs on Weft."""
    results, error = run([python, "-m", "weft", str(path)])
    if not error and not expected:
        error = "there are no results of PyTorch's to compare with; see tools/libraries.py --record"
    differing = [name for name, numbers in expected.items() if not agree(results.get(name, []), numbers)]
    outcome = Outcome(path, differing, error)
    print(f"{path.stem}: {outcome.text}", flush=True)
    return outcome


def agree(results: list[float], expected: list[float]) -> bool:
    """Whether numbers are close, as float32 in another order of sums is."""
    return len(results) == len(expected) and all(
        math.isclose(number, other, rel_tol=1e-3, abs_tol=1e-4) for number, other in zip(results, expected, strict=True)
    )


def table(outcomes: list[Outcome], python: str) -> str:
    """The rows of the page."""
    listed = subprocess.run([python, "-m", "pip", "list", "--format=json"], capture_output=True, text=True, check=True)
    versions = {entry["name"].lower(): entry["version"] for entry in json.loads(listed.stdout)}
    lines = ["| library | program | what it does | outcome |", "|---|---|---|---|"]
    for outcome in outcomes:
        library = outcome.program.stem.partition("_")[0]
        what = ast.get_docstring(ast.parse(outcome.program.read_text())) or ""
        cells = (
            f"{library} {versions.get(library, '')}",
            f"`{outcome.program.stem}`",
            what,
            outcome.text.replace("|", "/"),
        )
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join([*lines, ""])


if __name__ == "__main__":
    main()
