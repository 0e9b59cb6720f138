"""Special functions: seconds for a million numbers, and errors against mpmath in ulp.

`python -m bench.special FRAMEWORK` is one side. For each line `NAME TYPE` that it reads it prints the seconds of one
call; for `NAME TYPE error`, the largest error at the points of `bench.special_values`.
"""

from __future__ import annotations

import importlib
import subprocess
import sys
import time
from typing import Any

from bench.measure import REPEATS, Side
from bench.special_values import FUNCTIONS, worst

_COUNT = 1_000_000
_SETTLE = 0.1  # seconds in which the other side's worker threads stop spinning
_TYPES = ("float32", "float64")

Row = tuple[str, Side, Side, float]


def main() -> None:
    framework = importlib.import_module(sys.argv[1])
    if sys.argv[1] == "torch":
        framework.set_num_threads(2)
    tensors: dict[tuple[str, str], Any] = {}
    for line in sys.stdin:
        name, dtype, *error = line.split()
        function = FUNCTIONS[name]
        if error:
            print(worst(function, dtype, framework.special, framework.tensor), flush=True)
            continue
        if (name, dtype) not in tensors:
            tensors.clear()
            tensors[name, dtype] = [framework.tensor(x) for x in function.inputs(dtype, _COUNT)]
            function(framework.special, *tensors[name, dtype]).sum().item()  # compiles
        start = time.perf_counter()
        function(framework.special, *tensors[name, dtype])[-1:].tolist()
        print(time.perf_counter() - start, flush=True)


class _Process:
    """One side."""

    def __init__(self, framework: str) -> None:
        command = [sys.executable, "-m", "bench.special", framework]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def ask(self, *words: str) -> float:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(" ".join(words) + "\n")
        self._process.stdin.flush()
        return float(self._process.stdout.readline())

    def seconds(self, *words: str) -> float:
        time.sleep(_SETTLE)
        return self.ask(*words)

    def stop(self) -> None:
        self._process.kill()
        self._process.wait()


def special() -> list[Row]:
    """A row for each function and type. The text has both sides' largest errors."""
    sides = _Process("weft"), _Process("torch")
    rows: list[Row] = []
    try:
        for name in FUNCTIONS:
            for dtype in _TYPES:
                errors = [side.ask(name, dtype, "error") for side in sides]
                rounds = [[side.seconds(name, dtype) for side in sides] for _ in range(REPEATS + 1)][1:]
                ours, peer = zip(*rounds, strict=True)
                text = f"`{name}` of 1 M {dtype}; errors up to {errors[0]:.3g} ulp, PyTorch {errors[1]:.3g}"
                rows.append((text, Side("weft", ours), Side("torch", peer), 1.0))
    finally:
        for side in sides:
            side.stop()
    return rows


if __name__ == "__main__":
    main()
