"""Jobs of two workers under a launcher: `weft run` and `torchrun`."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from bench.measure import REPEATS, Side

# With the imports of a user's script, by which `weft run` tells what workers can share.
_PROGRAM = """
import os, sys, time
import {framework} as torch
import {framework}.distributed as dist

dist.init_process_group({backend!r})
x = torch.ones(1)
dist.all_reduce(x)
assert x.item() == 2.0
attempt = os.environ["TORCHELASTIC_RESTART_COUNT"]
sys.stdout.write(" ".join([os.environ["RANK"], attempt, str(os.getpid())]) + "\\n")
sys.stdout.flush()
if "stay" in sys.argv and attempt == "0":
    time.sleep(600)
dist.destroy_process_group()
"""
_BACKENDS = {"weft": "shm", "torch": "gloo"}
_ENVIRONMENT = {
    # With the store that torchrun shares among restarts, ranks find addresses of those before, and wait for ever.
    "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1",
    "PYTHONDONTWRITEBYTECODE": "",  # the first round compiles the sources, as installing does
}
_SETTLE = 1.0  # seconds in which workers and launcher come to rest
_SECONDS = 120.0  # for one job


@contextmanager
def _job(framework: str, program: Path, *args: str) -> Iterator[subprocess.Popen[str]]:
    """A job that must end well in the block, or is killed after `_SECONDS`."""
    flags = ["--standalone", "--nproc-per-node", "2", "--max-restarts", "5"]
    job = subprocess.Popen(
        [sys.executable, "-m", f"{framework}.distributed.run", *flags, str(program), *args],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | _ENVIRONMENT,
    )
    limit = threading.Timer(_SECONDS, job.kill)
    limit.start()
    try:
        yield job
    finally:
        _, errors = job.communicate()
        limit.cancel()
    if job.returncode:
        raise RuntimeError(f"{job.args} ended with {job.returncode}:\n{errors}")


def _launched(framework: str, program: Path) -> float:
    """Seconds of a whole job that joins and leaves."""
    start = time.perf_counter()
    with _job(framework, program):
        pass
    return time.perf_counter() - start


def _workers(job: subprocess.Popen[str]) -> tuple[int, dict[int, int]]:
    """When both have passed their first collective: how often they were started again, and their numbers by rank."""
    assert job.stdout is not None
    said = [[int(word) for word in job.stdout.readline().split()] for _ in range(2)]
    return said[0][1], {rank: pid for rank, _, pid in said}


def _recovered(framework: str, program: Path) -> float:
    """Seconds from the SIGKILL of rank 1 until both ranks have passed their first collective again."""
    while True:
        with _job(framework, program, "stay") as job:
            _, workers = _workers(job)
            time.sleep(_SETTLE)
            start = time.perf_counter()
            os.kill(workers[1], signal.SIGKILL)
            restarts, _ = _workers(job)
            seconds = time.perf_counter() - start
        if restarts == 1:  # Gloo may find an address of the ranks before, and fail until the next start
            return seconds


def _sides(sample: Callable[[str, Path], float]) -> tuple[Side, Side]:
    """Both launchers in turn; the first round warms caches."""
    with tempfile.TemporaryDirectory() as folder:
        programs = {name: Path(folder, f"with_{name}.py") for name in _BACKENDS}
        for name, path in programs.items():
            path.write_text(_PROGRAM.format(framework=name, backend=_BACKENDS[name]))
        rounds = [[sample(name, path) for name, path in programs.items()] for _ in range(REPEATS + 1)][1:]
    ours, peer = zip(*rounds, strict=True)
    return Side("weft run", ours), Side("torchrun", peer)


def launch() -> list[tuple[str, Side, Side, float]]:
    """Row of a short job."""
    ours, peer = _sides(_launched)
    return [("launch of 2 workers that join, do one collective and leave", ours, peer, 1.5)]


def recover() -> list[tuple[str, Side, Side, float]]:
    """Row of a restart."""
    ours, peer = _sides(_recovered)
    return [("SIGKILL of one of 2 workers → both past their first collective again", ours, peer, 2.0)]
