"""Workers under load, one of which ends badly: 100 times each; see `calls.py`."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections import defaultdict
from statistics import median

import pytest

from tests.faults.calls import SECONDS, SIZE

RUNS = 100
ENDS = {"killed": -signal.SIGKILL, "raises": 1, "leaves": 0}
FEW = 4  # descriptors and maps that a process may have more of in the last runs than in the first ones


def runs_of(kind, folder):
    """What the workers of each run say, and how the one that ends badly has ended."""
    command = [sys.executable, "-m", "tests.faults.calls", str(folder), kind, str(RUNS)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            for _ in range(RUNS):
                said = [json.loads(process.stdout.readline()) for _ in range(SIZE)]
                yield [one for one in said if "wrongs" in one], next(one for one in said if "status" in one)
                process.stdin.write("\n")
                process.stdin.flush()
            assert process.wait(SECONDS) == 0
        finally:
            process.kill()


@pytest.mark.parametrize("kind", ENDS)
def test_the_others_end_in_time_and_nothing_leaks(kind, tmp_path):
    held = defaultdict(list)
    for survivors, victim in runs_of(kind, tmp_path):
        assert victim["status"] == ENDS[kind], (tmp_path / f"victim.{victim['run']}").read_text()
        for one in survivors:
            assert not one["wrongs"], one
            assert one["shutdown"] < SECONDS, one
            assert not one["threads"], one
            held[one["process"]].append(one)
    for one in held.values():
        for what in ("descriptors", "shared"):  # lent memory that is on its way back makes them differ from run to run
            early, late = (median(run[what] for run in runs) for runs in (one[:20], one[-20:]))
            assert late <= early + FEW, str([run[what] for run in one])
