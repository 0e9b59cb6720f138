"""One framework, one workload, in a process of its own: `python -m bench.worker FRAMEWORK WORKLOAD [OPTION …]`.

Says `ready` after warming up; then prints seconds per iteration for every line that it reads, as JSON: a table of one
figure for each of the workload's runs.
"""

from __future__ import annotations

import importlib
import json
import sys
import time
from collections.abc import Callable
from typing import Any

from bench import kernels, plain_jax, workloads

_LEAST_SECONDS = 0.4  # of one sample
_LEAST_OF_MANY = 0.1  # of one run's sample, where a workload has several


def _is_interpreted(weft: Any, run: Callable[[], Any]) -> bool:
    """Whether an iteration runs a program that will be compiled when it has run more often."""

    def earning() -> int:
        return sum(graph.runs for graph in weft.explain().interpreted if graph.each)

    before = earning()
    run()
    return earning() > before


def _seconds(run: Callable[[], Any], count: int) -> float:
    start = time.perf_counter()
    for _ in range(count):
        run()
    return (time.perf_counter() - start) / count


def _warm_up(run: Callable[[], Any], weft: Any, least: float) -> int:
    """How many iterations a sample has."""
    for _ in range(3):
        run()
    while weft is not None and _is_interpreted(weft, run):
        pass
    count = min(max(1, round(least / max(_seconds(run, 1), 1e-7))), 200_000)
    _seconds(run, count)
    return count


def _build(framework: str, name: str) -> Callable[..., Any]:
    if framework == "jax":
        return getattr(plain_jax, name)
    return getattr(workloads if hasattr(workloads, name) else kernels, name)


def main() -> None:
    framework, name, *options = sys.argv[1:]
    module = importlib.import_module(framework)
    if framework == "torch":
        module.set_num_threads(2)
    built = _build(framework, name)(module, **dict.fromkeys(options, True))
    runs = built if isinstance(built, dict) else {name: built}
    least = _LEAST_SECONDS if len(runs) == 1 else _LEAST_OF_MANY
    counts = {label: _warm_up(run, module if framework == "weft" else None, least) for label, run in runs.items()}
    print("ready", flush=True)
    for _ in sys.stdin:
        print(json.dumps({label: _seconds(run, counts[label]) for label, run in runs.items()}), flush=True)


if __name__ == "__main__":
    main()
