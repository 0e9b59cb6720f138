"""Several processes of one framework that work together.

`python -m bench.ranks FRAMEWORK WORKLOAD RANK SIZE PATH` is one of them; they meet at the file PATH. It says `ready`
after warming up, and then prints seconds per iteration for every line that it reads.
"""

from __future__ import annotations

import importlib
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bench.measure import REPEATS, Side

_LEAST_SECONDS = 0.3  # of one sample
_SIZES = {"8 B": 8, "64 KB": 1 << 16, "1 MB": 1 << 20, "16 MB": 1 << 24, "128 MB": 1 << 27}
_GOALS = {2: (20, 30, 5, 5, 4), 4: (3, 3, 3, 3, 3)}
_BACKENDS = {"weft": "shm", "torch": "gloo"}

Run = Callable[[], None]


def _allreduce(framework: Any, size: str) -> Run:
    x = framework.zeros(int(size) // 4)
    return lambda: framework.distributed.all_reduce(x)


def _training(framework: Any, width: str, *, replicas: bool) -> Run:
    """8 × (linear, tanh), batch 32, SGD with momentum."""
    nn, size = framework.nn, int(width)
    framework.manual_seed(0)
    model: Any = nn.Sequential(*(layer for _ in range(8) for layer in (nn.Linear(size, size), nn.Tanh())))
    if replicas:
        model = nn.parallel.DistributedDataParallel(model)
    optimizer = framework.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    x, y = framework.randn(32, size), framework.randn(32, size)
    last = list(model.parameters())[-1]

    def run() -> None:
        optimizer.zero_grad()
        nn.functional.mse_loss(model(x), y).backward()
        optimizer.step()
        last.detach()[0].item()

    return run


_WORKLOADS: dict[str, Callable[[Any, str], Run]] = {
    "allreduce": _allreduce,
    "local": lambda framework, width: _training(framework, width, replicas=False),
    "ddp": lambda framework, width: _training(framework, width, replicas=True),
}


def main() -> None:
    name, workload, rank, size, path = sys.argv[1:]
    framework = importlib.import_module(name)
    dist = importlib.import_module(f"{name}.distributed")
    if name == "torch":
        framework.set_num_threads(1)
    dist.init_process_group(_BACKENDS[name], init_method=f"file://{path}", rank=int(rank), world_size=int(size))
    kind, _, argument = workload.partition(":")
    run = _WORKLOADS[kind](framework, argument)
    for _ in range(5):
        run()
    dist.barrier()
    start = time.perf_counter()
    for _ in range(3):
        run()
    count = framework.tensor([max(1, round(3 * _LEAST_SECONDS / (time.perf_counter() - start)))])
    dist.broadcast(count, 0)
    print("ready", flush=True)
    for _ in sys.stdin:
        dist.barrier()
        start = time.perf_counter()
        for _ in range(int(count)):
            run()
        print((time.perf_counter() - start) / int(count), flush=True)
    dist.destroy_process_group()


class _Job:
    """The ranks of one side."""

    def __init__(self, framework: str, workload: str, size: int, folder: str) -> None:
        self.name = framework if framework == "weft" else f"{framework}, Gloo"
        path = Path(folder, f"{framework}-{workload.replace(':', '-')}")
        self._ranks = [
            subprocess.Popen(
                [sys.executable, "-m", "bench.ranks", framework, workload, str(rank), str(size), str(path)],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
            )
            for rank in range(size)
        ]  # fmt: skip
        for rank in self._ranks:
            assert rank.stdout is not None
            if rank.stdout.readline() != "ready\n":
                raise RuntimeError(f"a rank of {framework} for {workload} ended before it was ready")

    def sample(self) -> float:
        for rank in self._ranks:
            assert rank.stdin is not None
            rank.stdin.write("\n")
            rank.stdin.flush()
        return max(float(rank.stdout.readline()) for rank in self._ranks if rank.stdout is not None)

    def stop(self) -> None:
        for rank in self._ranks:
            rank.communicate()


def _sides(workload: str, size: int) -> list[Side]:
    """Both frameworks, in turn: one works while the ranks of the other wait for a line."""
    with tempfile.TemporaryDirectory() as folder:
        jobs = [_Job(framework, workload, size, folder) for framework in _BACKENDS]
        try:
            rounds = [[job.sample() for job in jobs] for _ in range(REPEATS)]
        finally:
            for job in jobs:
                job.stop()
    return [Side(job.name, seconds) for job, seconds in zip(jobs, zip(*rounds, strict=True), strict=True)]


def allreduce() -> list[tuple[str, Side, Side, float]]:
    """Rows of `all_reduce`, by size and number of ranks."""
    rows = []
    for size, goals in _GOALS.items():
        for (text, number), goal in zip(_SIZES.items(), goals, strict=True):
            ours, peer = _sides(f"allreduce:{number}", size)
            rows.append((f"`all_reduce` of {text} float32, {size} ranks", ours, peer, float(goal)))
    return rows


def ddp() -> list[tuple[str, Side, Side, float]]:
    """Rows of what replicas add to a step: with `DistributedDataParallel`, less the same step alone."""
    rows = []
    for width, text in (("256", "MLP of 2 MB"), ("1024", "MLP of 33 MB")):
        alone, together = _sides(f"local:{width}", 2), _sides(f"ddp:{width}", 2)
        ours, peer = (
            Side(with_ddp.name, tuple(max(s - local.median, 1e-9) for s in with_ddp.seconds))
            for local, with_ddp in zip(alone, together, strict=True)
        )
        rows.append((f"what DDP adds to a step of an {text}, 2 ranks", ours, peer, 4.0))
    return rows


if __name__ == "__main__":
    main()
