"""Alternating measurements of two sides, each in a process of its own."""

from __future__ import annotations

import contextlib
import statistics
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

REPEATS = 9
_PAIRS = 301
_SETTLE = 0.4  # seconds in which the other side's worker threads stop spinning
_SETTLE_OF_SEVERAL = 0.25  # the same, where there are many samples


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

    def sample(self, case: str = "", settle: float = _SETTLE) -> float:
        time.sleep(settle)
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"{case}\n")
        self._process.stdin.flush()
        return float(self._process.stdout.readline())

    def stop(self) -> None:
        self._process.kill()
        self._process.wait()


@contextlib.contextmanager
def _workers(name: str, sides: Sequence[tuple[str, ...]]) -> Iterator[list[_Worker]]:
    """A worker for each side (framework, options…) of a workload."""
    workers: list[_Worker] = []
    try:
        for side in sides:
            worker = _Worker(side[0], name, *side[1:])
            workers.append(worker)
            worker.wait()  # one warms up at a time
        yield workers
    finally:
        for worker in workers:
            worker.stop()


def _sides(workers: Sequence[_Worker], rounds: Sequence[Sequence[float]]) -> list[Side]:
    return [Side(w.name, seconds) for w, seconds in zip(workers, zip(*rounds, strict=True), strict=True)]


def workload(name: str, sides: Sequence[tuple[str, ...]]) -> list[Side]:
    """Measure one workload under each side (framework, options…), in turn, `REPEATS` times."""
    with _workers(name, sides) as workers:
        return _sides(workers, [[worker.sample() for worker in workers] for _ in range(REPEATS)])


def several(name: str, cases: Iterable[str], sides: Sequence[tuple[str, ...]]) -> dict[str, list[Side]]:
    """The same for a workload of several short runs, each by its name."""
    with _workers(name, sides) as workers:
        return {
            case: _sides(
                workers, [[worker.sample(case, _SETTLE_OF_SEVERAL) for worker in workers] for _ in range(REPEATS)]
            )
            for case in cases
        }


def paired(name: str, ours: str, peer: str) -> tuple[Side, Side]:
    """Measure two of several runs in one process, one right after the other, where a hundredth is to be seen.

    The speed of a core swings by more than that, but seldom between neighbours: what is compared is each sample with
    its neighbour. Ours are the peer's median times these ratios.
    """
    with _workers(name, [("weft",)]) as (worker,):
        pairs = []
        for number in range(_PAIRS):
            order = (ours, peer) if number % 2 else (peer, ours)
            seconds = {case: worker.sample(case, 0) for case in order}
            pairs.append((seconds[ours], seconds[peer]))
    plain = Side(f"weft {peer}", tuple([seconds for _, seconds in pairs]))
    return Side(f"weft {ours}", tuple([plain.median * mine / its for mine, its in pairs])), plain


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
