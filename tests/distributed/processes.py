"""Processes that are ranks of a job."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

PATIENCE = 240  # seconds

needs_mpi = pytest.mark.skipif(
    importlib.util.find_spec("mpi4py") is None, reason="the extra is not installed: pip install weft[mpi]"
)


def mpiexec(size, *arguments):
    """The command of a job of `size` ranks, each `python ARGUMENTS`."""
    return [str(Path(sys.executable).parent / "mpiexec"), "-n", str(size), sys.executable, *arguments]


def start(command, **environment):
    """A process whose output is kept."""
    return subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, **environment},
    )


def ended(processes, seconds=PATIENCE):
    """Exit code, output and errors of each, when all have ended."""
    running = list(processes)
    try:
        said = [process.communicate(timeout=seconds) for process in running]
    finally:
        for process in running:
            process.kill()
    return [(process.returncode, *texts) for process, texts in zip(running, said, strict=True)]
