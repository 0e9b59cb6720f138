"""First runs: `python -m bench.first FRAMEWORK NAME [compiled]` prints seconds of the first run and of later ones.

A pattern's are processor seconds: first, second, and the least of two more. A model's are seconds by the clock, from
its making to the end of its first, second and third training step. Loading the framework is not counted.
"""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from itertools import pairwise

from bench.measure import Side
from bench.models import MODELS
from bench.patterns import PATTERNS

_REPEATS = 5
_EAGER, _COMPILED = ("torch",), ("torch", "compiled")
_FIGURES = ("first run", "second run", "later runs")

Row = tuple[str, Side, Side, float]


def main() -> None:
    framework, name, *options = sys.argv[1:]
    module = importlib.import_module(framework)
    if framework == "torch":
        module.set_num_threads(2)
    module.nn, module.optim, module.zeros(1).tolist()  # what is only loaded when it is used
    figures = _of_pattern(module, name) if name in PATTERNS else _of_model(module, name, bool(options))
    print(*figures)


def _of_pattern(module: object, name: str) -> list[float]:
    run = PATTERNS[name](module)
    seconds = []
    for _ in range(4):
        start = time.process_time()
        run()
        seconds.append(time.process_time() - start)
    return [seconds[0], seconds[1], min(seconds[2:])]


def _of_model(module: object, name: str, compiled: bool) -> list[float]:
    start = time.perf_counter()
    run = MODELS[name](module, compiled=compiled)
    times = [start]
    for _ in range(3):
        run()
        times.append(time.perf_counter())
    return [later - earlier for earlier, later in pairwise(times)]


def _figures(sides: Sequence[tuple[str, ...]], name: str, repeats: int, cache: str = "") -> list[list[Side]]:
    """For each side its figures, each over several new processes, the sides in turn."""
    samples: list[list[list[float]]] = [[] for _ in sides]
    for _ in range(repeats):
        for side, collected in zip(sides, samples, strict=True):
            with tempfile.TemporaryDirectory() as empty:
                caches = {"WEFT_COMPILE_CACHE": cache, "TORCHINDUCTOR_CACHE_DIR": cache or empty}
                command = [sys.executable, "-m", "bench.first", side[0], name, *side[1:]]
                done = subprocess.run(command, check=True, capture_output=True, text=True, env={**os.environ, **caches})
            collected.append([float(x) for x in done.stdout.split()])
    return [
        [Side(" ".join(side), tuple(column)) for column in zip(*collected, strict=True)]
        for side, collected in zip(sides, samples, strict=True)
    ]


def pattern(names: Sequence[tuple[str, str]], goal: float) -> list[Row]:
    """Rows of patterns (name, text): first, second and later runs against eager PyTorch; `goal` is for the first."""
    rows: list[Row] = []
    for name, text in names:
        ours, peer = _figures([("weft",), _EAGER], name, _REPEATS)
        for at, figure in enumerate(_FIGURES):
            rows.append((f"{text}, {figure}", ours[at], peer[at], goal if at == 0 else 0.0))
    return rows


def first_step() -> list[Row]:
    """Rows of models: the first step with and without a filled cache, and the two after it."""
    rows: list[Row] = []
    for name in MODELS:
        ours, eager, compiled = _figures([("weft",), _EAGER, _COMPILED], name, 3)
        rows.append((f"{name}: made, and first training step, cold", ours[0], eager[0], 0.5))
        rows.append((f"{name}: the same, against `torch.compile`", ours[0], compiled[0], 1.0))
        rows.append((f"{name}: second step", ours[1], eager[1], 0.0))
        with tempfile.TemporaryDirectory() as cache:
            warm, eager = _figures([("weft",), _EAGER], name, 3, cache)
        rows.append((f"{name}: first step, warm", warm[0], eager[0], 0.5))
    return rows


if __name__ == "__main__":
    main()
