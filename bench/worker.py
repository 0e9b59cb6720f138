"""One framework, one workload, in a process of its own: `python -m bench.worker FRAMEWORK WORKLOAD [OPTION …]`.

Says `ready` after warming up; then prints seconds per iteration for every line that it reads: the name of what is to
run, where a workload is several, else an empty line.
"""

from __future__ import annotations

import importlib
import sys
import time
from collections.abc import Callable
from typing import Any

from bench import kernels, plain_jax, small, workloads

_LEAST_SECONDS = 0.4  # of one sample
_LEAST_SECONDS_OF_SEVERAL = 0.05  # of one of several runs


def _is_interpreted(run: Callable[[], Any]) -> bool:
    """Whether an iteration runs a program that will be compiled when it has run more often."""
    before = workloads.earning()
    run()
    return workloads.earning() > before


def _warm(framework: str, module: Any, run: Callable[[], Any], seconds: float) -> int:
    """Run it until it is compiled; how many iterations make a sample."""
    for _ in range(3):
        run()
    while framework == "weft" and _is_interpreted(run):
        pass
    start = time.perf_counter()
    run()
    count = max(1, round(seconds / max(time.perf_counter() - start, 1e-7)))
    count = min(count, 200_000)
    for _ in range(count):
        run()
    return count


def main() -> None:
    framework, name, *options = sys.argv[1:]
    module = importlib.import_module(framework)
    if framework == "torch":
        module.set_num_threads(2)
    if framework == "torch" and "compiled" in options:  # of one function for each case, of more than eight
        importlib.import_module("torch._dynamo.config").recompile_limit = 64
    places = [plain_jax] if framework == "jax" else [kernels, small, workloads]
    place = next(module for module in places if hasattr(module, name))
    built = getattr(place, name)(module, **dict.fromkeys(options, True))
    runs = built if isinstance(built, dict) else {"": built}
    seconds = _LEAST_SECONDS_OF_SEVERAL if len(runs) > 1 else _LEAST_SECONDS
    counts = {case: _warm(framework, module, run, seconds) for case, run in runs.items()}
    print("ready", flush=True)
    for line in sys.stdin:
        case = line.rstrip("\n")
        run, count = runs[case], counts[case]
        start = time.perf_counter()
        for _ in range(count):
            run()
        print((time.perf_counter() - start) / count, flush=True)


if __name__ == "__main__":
    main()
