"""Whole programs written for PyTorch (`tests/drop_in`), each to its end in a new process, with an empty cache."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tests.drop_in.record import FOLDER, PROGRAMS

from bench.measure import Side

_REPEATS = 1

Row = tuple[str, Side, Side, float]


def drop_in() -> list[Row]:
    """Each program under `weft` and under PyTorch, in turn, once: they take minutes."""
    rows: list[Row] = []
    for name in PROGRAMS:
        path = FOLDER / "programs" / f"{name}.py"
        pairs = [(_seconds("-m", "weft", str(path)), _seconds(str(path))) for _ in range(_REPEATS)]
        ours, theirs = zip(*pairs, strict=True)
        rows.append((f"`{name}.py` to its end, first run", Side("weft", ours), Side("torch", theirs), 0.5))
    return rows


def _seconds(*arguments: str) -> float:
    root = Path(__file__).resolve().parent.parent
    with tempfile.TemporaryDirectory() as folder:
        env = {**os.environ, "WEFT_COMPILE_CACHE": f"{folder}/cache", "PYTHONPATH": str(root / "src")}
        start = time.perf_counter()
        subprocess.run([sys.executable, *arguments], cwd=folder, env=env, check=True, capture_output=True)
        return time.perf_counter() - start
