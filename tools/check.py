"""`make check`: lint, types, and the tests of what differs from main, in about two minutes for a small change.

What differs is found by `git`: commits since the branch left main, changes that are not committed, and new files.
Types are checked in the files that changed, and tests are those of the same folder under `tests/`, without its
subfolders. `make lint` and `make test` check everything.
"""

from __future__ import annotations

import shlex
import subprocess
import sys
import time
from collections.abc import Iterable
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LINTED = ("src", "tests", "bench", "examples", "tools", "as_torch")
WHOLE = ("tests/test_layers.py", "tests/_base/test_words.py", "tests/_tensor/test_stubs.py")
"""Tests that read all sources, and take seconds."""
PAGES = ("tests/test_docs.py", "tests/test_way_in.py")


def main() -> int:
    base = sys.argv[1] if len(sys.argv) > 1 else "main"
    changed = changed_since(base)
    if not changed:
        print(f"Nothing differs from {base}. For commits on {base} itself: make check BASE=origin/{base}")
        return 0
    print(f"{len(changed)} files differ from {base}.")
    return max((run(command) for command in commands(changed)), default=0)


def changed_since(base: str) -> list[str]:
    """Files that differ from where this branch left `base`, without those that were removed."""
    fork = git("merge-base", base, "HEAD")[0]
    named = git("diff", "--name-only", fork) + git("ls-files", "--others", "--exclude-standard")
    return sorted({name for name in named if (ROOT / name).is_file()})


def git(*arguments: str) -> list[str]:
    found = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=True)
    return found.stdout.splitlines()


def commands(changed: list[str]) -> list[list[str]]:
    """What has to be run for these files, the quick first."""
    tools = Path(sys.executable).parent
    ruff = str(tools / "ruff")
    needed = [[ruff, "format", "--check", *LINTED], [ruff, "check", *LINTED]]
    if kernels := [name for name in changed if name.startswith("native/src/")]:
        needed.append([str(tools / "clang-format"), "--dry-run", "--Werror", *kernels])
    if sources := [name for name in changed if name.startswith("src/") and name.endswith(".py")]:
        needed.append([str(tools / "pyright"), "--pythonpath", sys.executable, *sources])
    if tests := tests_of(changed):
        needed.append([sys.executable, "-m", "pytest", "-n", "2", "--durations", "3", *tests])
    return needed


def tests_of(changed: Iterable[str]) -> list[str]:
    """The test files for these files."""
    found: set[str] = set()
    for name in changed:
        path = Path(name)
        if path.suffix == ".md" or path.parts[0] == "docs" or name in ("mkdocs.yml", "pyproject.toml", "Makefile"):
            found.update(PAGES)
        elif path.parts[0] == "src":
            found.update(WHOLE)
            found.update(tests_of_source(Path(*path.parts[2:])) if path.suffix == ".py" else [])
        elif path.parts[0] == "native":
            found.update(directly_in(Path("tests/native")))
        elif path.parts[0] == "tests":
            is_test = path.name.startswith("test_") and path.suffix == ".py"
            found.update([name] if is_test else directly_in(path.parent))
        elif path.parts[0] == "examples":
            found.add("tests/test_examples.py")
    return sorted(found)


def tests_of_source(path: Path) -> list[str]:
    """The test files for a file of the package; a module that stands in no folder may have one of its name."""
    if len(path.parts) > 1:
        return directly_in(mirror(path.parent))
    own = f"tests/test_{path.stem}.py"
    return [own] if (ROOT / own).is_file() else []


def mirror(folder: Path) -> Path:
    """The folder of tests for a folder of the package, or for the nearest one above it that has tests."""
    tests = Path("tests") / folder
    while not directly_in(tests) and tests != Path("tests"):
        tests = tests.parent
    return tests


def directly_in(folder: Path) -> list[str]:
    """The test files of a folder; none of `tests` itself, which look at the whole package."""
    return [] if folder == Path("tests") else [str(p.relative_to(ROOT)) for p in (ROOT / folder).glob("test_*.py")]


def run(command: list[str]) -> int:
    """Show a command, run it, and say how long it took."""
    said = [Path(command[0]).name, *command[1:]]
    print(f"\n$ {shlex.join(said)}", flush=True)
    start = time.perf_counter()
    code = subprocess.run(command, cwd=ROOT, check=False).returncode
    print(f"{'passed' if code == 0 else 'FAILED'} in {time.perf_counter() - start:.0f} s", flush=True)
    return code


if __name__ == "__main__":
    sys.exit(main())
