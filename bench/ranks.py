"""Several processes of one framework that work together.

`python -m bench.ranks FRAMEWORK WORKLOAD PATH RANK SIZE` is one of them; they meet at the file PATH. After warming up,
each runs a sample for every line that it reads from the pipe `PATH.RANK`, and rank 0 tells how many seconds an
iteration took all of them. (`mpiexec` gives its standard input to rank 0 alone, and mixes what ranks print.)
"""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from bench.measure import REPEATS, Side

_LEAST_SECONDS = 0.3  # of one sample
_SIZES = {"8 B": 8, "64 KB": 1 << 16, "1 MB": 1 << 20, "16 MB": 1 << 24, "128 MB": 1 << 27}
_GOALS = {2: (20, 30, 5, 5, 4), 4: (3, 3, 3, 3, 3)}
_MPICH, _MPICH_FROM = "bench.mpich", 1 << 20  # bytes from which on MPICH is a peer
_BACKENDS = {"weft": "shm", "torch": "gloo", _MPICH: "mpi"}
_NAMES = {"weft": "weft", "torch": "torch, Gloo", _MPICH: "MPICH, in place"}
_BOTH = ("weft", "torch")

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


def _on_ranks(framework: Any, x: Any, *placements: Any) -> Any:
    """A distributed tensor over a mesh of all ranks."""
    mesh = framework.distributed.device_mesh.init_device_mesh("cpu", (framework.distributed.get_world_size(),))
    return importlib.import_module(f"{framework.__name__}.distributed.tensor").distribute_tensor(x, mesh, placements)


def _sharded_chain(framework: Any, size: str) -> Run:
    """10 × (matmul, tanh), forward and backward, of rows split over the ranks; nothing is sent."""
    tensor = importlib.import_module(f"{framework.__name__}.distributed.tensor")
    x = _on_ranks(framework, framework.ones(int(size), int(size)), tensor.Shard(0)).requires_grad_()
    w = _on_ranks(framework, framework.eye(int(size)), tensor.Replicate())

    def run() -> None:
        y = x
        for _ in range(10):
            y = (y @ w).tanh()
        y.backward(y.detach())
        x.grad.to_local()[0, 0].item()
        x.grad = None

    return run


def _replicate(framework: Any, rows: str) -> Run:
    """A matrix of float32, split by rows, of which each rank gets the whole."""
    tensor = importlib.import_module(f"{framework.__name__}.distributed.tensor")
    columns = 8 if rows == "8" else 2048
    x = _on_ranks(framework, framework.ones(int(rows), columns), tensor.Shard(0))
    whole = (tensor.Replicate(),)
    return lambda: x.redistribute(placements=whole).to_local()[0, 0].item()


_WORKLOADS: dict[str, Callable[[Any, str], Run]] = {
    "allreduce": _allreduce,
    "chain": _sharded_chain,
    "replicate": _replicate,
    "local": lambda framework, width: _training(framework, width, replicas=False),
    "ddp": lambda framework, width: _training(framework, width, replicas=True),
}


def main() -> None:
    name, workload, path, rank, size = sys.argv[1:]
    rank = os.environ.get("PMI_RANK", rank)  # mpiexec gives all ranks the same arguments
    framework = importlib.import_module(name)
    dist = framework.distributed
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
    tell = print if rank == "0" else lambda *words, **_: None
    tell("ready", flush=True)
    with open(f"{path}.{rank}") as lines:
        for _ in lines:
            dist.barrier()
            start = time.perf_counter()
            for _ in range(int(count[0])):
                run()
            dist.barrier()
            tell((time.perf_counter() - start) / int(count[0]), flush=True)
    dist.destroy_process_group()


class _Job:
    """The ranks of one side."""

    def __init__(self, framework: str, workload: str, size: int, folder: str) -> None:
        self.name = _NAMES[framework]
        path = Path(folder, f"{framework}-{workload.replace(':', '-')}")
        pipes = [Path(f"{path}.{rank}") for rank in range(size)]
        for pipe in pipes:
            os.mkfifo(pipe)
        command = [sys.executable, "-m", "bench.ranks", framework, workload, str(path)]
        commands = [[*command, str(rank), str(size)] for rank in range(size)]
        if framework == _MPICH:
            commands = [[str(Path(sys.executable).with_name("mpiexec")), "-n", str(size), *commands[0]]]
        self._processes = [
            subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True)
            for command in commands
        ]
        if self._line() != "ready":
            raise RuntimeError(f"rank 0 of {framework} for {workload} ended before it was ready")
        self._pipes = [pipe.open("w") for pipe in pipes]

    def _line(self) -> str:
        """What rank 0 says."""
        out = self._processes[0].stdout
        assert out is not None
        return out.readline().strip()

    def sample(self) -> float:
        for pipe in self._pipes:
            pipe.write("\n")
            pipe.flush()
        return float(self._line())

    def stop(self) -> None:
        for pipe in self._pipes:
            pipe.close()
        for process in self._processes:
            process.communicate()


def _sides(workload: str, size: int, frameworks: Sequence[str] = _BOTH) -> list[Side]:
    """The frameworks in turn: one works while the ranks of the others wait for a line."""
    with tempfile.TemporaryDirectory() as folder:
        jobs = [_Job(framework, workload, size, folder) for framework in frameworks]
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
            peers = [(float(goal), "torch"), *([(1.0, _MPICH)] if number >= _MPICH_FROM else [])]
            ours, *sides = _sides(f"allreduce:{number}", size, ["weft", *(name for _, name in peers)])
            what = f"`all_reduce` of {text} float32, {size} ranks"
            rows += [(what, ours, side, goal) for (goal, _), side in zip(peers, sides, strict=True)]
    return rows


def dtensor() -> list[tuple[str, Side, Side, float]]:
    """Rows of distributed tensors over two ranks."""
    rows = []
    for workload, text, goal in (
        ("chain:8", "10 × (matmul, tanh) on `Shard(0)` of 8×8, forward and backward", 3.0),
        ("replicate:8", "`Shard(0)` → `Replicate` of 8×8", 5.0),
        ("replicate:2048", "`Shard(0)` → `Replicate` of 16 MB", 2.0),
    ):
        ours, peer = _sides(workload, 2)
        rows.append((f"DTensor, {text}, 2 ranks", ours, peer, goal))
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
