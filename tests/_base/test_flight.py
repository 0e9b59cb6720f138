"""The flight recorder of a single process. Jobs are in `tests/distributed/test_crash_report.py`."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest

from weft import monitor

PROGRAM = """
import os, signal, sys
import weft
from weft import monitor
assert monitor.start_flight_recorder(sys.argv[1], rank=5)
assert monitor.start_flight_recorder(sys.argv[1])  # it does already
a = weft.ones(500, 500)
(a @ a).sum().item()
if os.fork():
    os.wait()
else:  # a fork records nothing
    (a @ a @ a).sum().item()
    os._exit(0)
monitor.stop_flight_recorder()
(a @ a @ a @ a).sum().item()
monitor.start_flight_recorder(sys.argv[2], rank=6)
os.kill(os.getpid(), signal.SIGTERM)
"""


def test_a_process_records_until_it_is_told_to_stop(tmp_path):
    first, second = tmp_path / "first", tmp_path / "second"
    first.mkdir(), second.mkdir()
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(first), str(second)],
        env={**os.environ, "WEFT_TIER": "auto"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == -signal.SIGTERM, done.stderr
    report = monitor.crash_report(tmp_path)
    own, _, other = report.partition("Rank 6")
    assert own.startswith("What ranks were waiting for:\n  nothing\n\nRank 5")
    assert own.count("matmul(float32[500, 500], float32[500, 500])") == 1
    assert "<string>" in own
    assert 'File "<string>", line 17 in <module>' in other  # the stack at its end


def test_recording_is_turned_off_by_the_environment(tmp_path, monkeypatch):
    monkeypatch.setenv("TORCH_FR_BUFFER_SIZE", "0")
    assert not monitor.start_flight_recorder(tmp_path)
    assert not list(tmp_path.iterdir())


def test_a_folder_must_exist(tmp_path):
    with pytest.raises(FileNotFoundError):
        monitor.start_flight_recorder(tmp_path / "none")
