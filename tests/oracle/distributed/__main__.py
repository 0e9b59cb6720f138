"""`python -m tests.oracle.distributed [PATTERN …]`: run PyTorch's distributed tests whose names hold a pattern.

Without a pattern all of them run, and their section of `docs/coverage.md` is written.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import signal
import sys
import tempfile
import time
import traceback
import unittest
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from tests.oracle.distributed import imports, report, stand_ins
from tests.oracle.distributed.internals import reason_of
from tests.oracle.distributed.suites import suites

_SECONDS = 90.0  # that a test may take
_AT_A_TIME = 2


class Outcome(NamedTuple):
    """How a test has ended: "passed", "failed", "skipped" or "late", and what it has said."""

    test: str
    result: str
    text: str


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("pattern", nargs="*", help="parts of names, such as RpcTest.test_add; all by default")
    parser.add_argument("--show", action="store_true", help="print what failing tests say")
    parser.add_argument("--answers", type=Path, help="write the outcomes to this file")
    options = parser.parse_args()
    imports.install()
    tests = [(suite, name) for suite in suites() for name in unittest.TestLoader().getTestCaseNames(suite)]
    chosen = [
        (suite, name)
        for suite, name in tests
        if not options.pattern or any(p in f"{suite.__name__}.{name}" for p in options.pattern)
    ]
    with ThreadPoolExecutor(_AT_A_TIME) as pool:
        outcomes = []
        for outcome in pool.map(lambda test: _run(*test), chosen):
            outcomes.append(outcome)
            if options.show and outcome.result in ("failed", "late"):
                print(f"--- {outcome.test}\n{outcome.text}", flush=True)
            elif sys.stderr.isatty():
                sys.stderr.write(f"\r{len(outcomes)} of {len(chosen)} tests")
    print(dict(Counter(outcome.result for outcome in outcomes)))
    for outcome in outcomes:
        if outcome.result in ("failed", "late") and not reason_of(outcome.test):
            print(outcome.test, outcome.result, _last_line(outcome.text))
    if not options.pattern:
        report.write(outcomes)
    if options.answers is not None:
        options.answers.write_text(json.dumps(outcomes, indent=1))


def _run(suite: type[Any], name: str) -> Outcome:
    """Run a test in a process group of its own."""
    folder = tempfile.mkdtemp()
    process = os.fork()
    if not process:
        _lead(suite, name, folder)
    end, status = time.monotonic() + _SECONDS, None
    while status is None and time.monotonic() < end:
        pid, code = os.waitpid(process, os.WNOHANG)
        status = code if pid else None
        time.sleep(0.01)
    late = status is None
    with suppress(ProcessLookupError):
        os.killpg(process, signal.SIGKILL)
    if late:
        os.waitpid(process, 0)
    texts = [file.read_text(errors="replace") for file in sorted(Path(folder).glob("*.err"))]
    shutil.rmtree(folder, ignore_errors=True)
    code = -1 if status is None else os.waitstatus_to_exitcode(status)
    result = "late" if late else "passed" if code == 0 else "skipped" if code == stand_ins.SKIPPED else "failed"
    return Outcome(f"{suite.__name__}.{name}", result, "\n".join(filter(None, texts)))


def _lead(suite: type[Any], name: str, folder: str) -> None:
    """The first process of a test: starts the ranks, and ends as they do."""
    os.setpgid(0, 0)
    os.environ.update(TMPDIR=folder, MASTER_ADDR="127.0.0.1", MASTER_PORT=str(stand_ins.find_free_port()))
    tempfile.tempdir = folder
    with open(f"{folder}/lead.err", "w") as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    code = 10
    try:
        case = suite(name)
        if hasattr(suite, "_barrier"):
            case.setUp()
        ranks = []
        for rank in range(int(case.world_size)):
            child = os.fork()
            if not child:
                _be(suite, name, folder, rank)
            ranks.append(child)
        codes = [os.waitstatus_to_exitcode(os.waitpid(rank, 0)[1]) for rank in ranks]
        code = next((c for c in codes if c not in (0, stand_ins.SKIPPED)), max(codes))
        code = 10 if code < 0 else code
    except unittest.SkipTest:
        code = stand_ins.SKIPPED
    except BaseException:
        traceback.print_exc()
        sys.stderr.flush()
    os._exit(code)


def _be(suite: type[Any], name: str, folder: str, rank: int) -> None:
    with open(f"{folder}/rank{rank}.err", "w") as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    code = 0
    try:
        suite._run(rank, name, f"{folder}/shared", None)
    except unittest.SkipTest as skipped:
        print(skipped, file=sys.stderr)
        code = stand_ins.SKIPPED
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 0
    except BaseException:
        print(f"rank {rank}:", file=sys.stderr)
        traceback.print_exc()
        code = 10
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def _last_line(text: str) -> str:
    lines = [line for line in text.splitlines() if re.match(r"\w[\w.]*(Error|Exception|Exit|Skip)?\b", line)]
    return lines[-1][:200] if lines else ""


if __name__ == "__main__":
    main()
