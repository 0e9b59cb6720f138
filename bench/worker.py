"""One framework, one workload, in a process of its own: `python -m bench.worker FRAMEWORK WORKLOAD [OPTION …]`.

Says `ready` after warming up; then prints seconds per iteration for every line that it reads.
"""

from __future__ import annotations

import importlib
import sys
import time
from collections.abc import Callable
from typing import Any

from bench import plain_jax, workloads

_LEAST_SECONDS = 0.4  # of one sample


def _is_interpreted(run: Callable[[], Any]) -> bool:
    """Whether an iteration runs a program that will be compiled when it has run more often."""
    before = workloads.earning()
    run()
    return workloads.earning() > before


def main() -> None:
    framework, name, *options = sys.argv[1:]
    module = importlib.import_module(framework)
    if framework == "torch":
        module.set_num_threads(2)
    build = getattr(plain_jax if framework == "jax" else workloads, name)
    run = build(module, **dict.fromkeys(options, True))
    for _ in range(3):
        run()
    while framework == "weft" and _is_interpreted(run):
        pass
    start = time.perf_counter()
    run()
    count = max(1, round(_LEAST_SECONDS / max(time.perf_counter() - start, 1e-7)))
    count = min(count, 200_000)
    for _ in range(count):
        run()
    print("ready", flush=True)
    for _ in sys.stdin:
        start = time.perf_counter()
        for _ in range(count):
            run()
        print((time.perf_counter() - start) / count, flush=True)


if __name__ == "__main__":
    main()
