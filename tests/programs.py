"""The examples as processes, and what they print."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def printed(folder, name, *options):
    """What an example prints when it is run in a folder; it says nothing else.

    That its output ends says that no process of its own is left, such as a loader's worker.
    """
    environment = {
        **os.environ,
        "PYTHONPATH": str(ROOT / "src"),
        "PYTHONWARNINGS": "error",
        "PYTHONDONTWRITEBYTECODE": "1",
        "WEFT_COMPILE_CACHE": "",
        "WEFT_SLOW_COMPILE_SECONDS": "600",
        "XLA_FLAGS": "--xla_backend_optimization_level=0",  # at these sizes, compiling is most of the work
    }
    command = [sys.executable, str(ROOT / "examples" / name), *options]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=300)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def numbers(pattern, text):
    """The numbers that a pattern finds in the lines of a text."""
    return [float(found) for found in re.findall(pattern, text, re.MULTILINE)]


def left_in(folder):
    """The files in a folder."""
    return sorted(str(file.relative_to(folder)) for file in folder.rglob("*") if file.is_file())
