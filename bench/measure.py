"""Alternating measurements of two sides, each in a process of its own."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass

REPEATS = 9
_SETTLE = 0.4  # seconds in which the other side's worker threads stop spinning


@dataclass(frozen=True, slots=True)
class Side:
    """Seconds per iteration, one figure per repeat."""

    name: str
    seconds: tuple[float, ...]

    @property
    def median(self) -> float:
        return statistics.median(self.seconds)


class _Worker:
    """A process that measures on request."""

    def __init__(self, framework: str, workload: str, *options: str) -> None:
        self.name = " ".join((framework, *options))
        command = [sys.executable, "-m", "bench.worker", framework, workload, *options]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def wait(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.strip() == "ready":
                return
        raise RuntimeError(f"the benchmark worker {self.name!r} ended before it was ready; run it by hand to see why")

    def sample(self) -> dict[str, float]:
        time.sleep(_SETTLE)
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        return json.loads(self._process.stdout.readline())

    def stop(self) -> None:
        self._process.kill()
        self._process.wait()


def workload(name: str, sides: Sequence[tuple[str, ...]]) -> list[Side]:
    """Measure one workload under each side (framework, options…), in turn, `REPEATS` times."""
    (measured,) = table(name, sides).values()
    return measured


def table(name: str, sides: Sequence[tuple[str, ...]]) -> dict[str, list[Side]]:
    """The same for a workload of several runs: what was measured, for each of them."""
    workers = []
    try:
        for side in sides:
            worker = _Worker(side[0], name, *side[1:])
            worker.wait()  # one warms up at a time
            workers.append(worker)
        rounds = [[worker.sample() for worker in workers] for _ in range(REPEATS)]
    finally:
        for worker in workers:
            worker.stop()
    return {
        run: [Side(w.name, tuple(r[i][run] for r in rounds)) for i, w in enumerate(workers)] for run in rounds[0][0]
    }


def processes(commands: Sequence[tuple[str, list[str]]], repeats: int = REPEATS) -> list[Side]:
    """Measure whole processes (name, command after `python`), in turn; the first round warms caches."""
    rounds = []
    for _ in range(repeats + 1):
        row = []
        for _, command in commands:
            start = time.perf_counter()
            subprocess.run([sys.executable, *command], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            row.append(time.perf_counter() - start)
        rounds.append(row)
    columns = zip(*rounds[1:], strict=True)
    return [Side(name, tuple(column)) for (name, _), column in zip(commands, columns, strict=True)]
