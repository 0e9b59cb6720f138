"""Loading data with worker processes: the first batch, and the time of a batch after that.

`python -m bench.loading FRAMEWORK WORKERS BYTES` measures one pass in a process of its own.
"""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Any

from bench.measure import Side

_PROCESSES = 5  # of each side, in turn
_BATCHES = 300
_SIZES = {"100 KB": 100_000, "1 MB": 1_000_000}
_WORKERS = (0, 2, 4)


class _Samples:
    """A dataset of tensors that are made anew for each index. A worker has it as it is."""

    def __init__(self, framework: Any, nbytes: int) -> None:
        self._framework = framework
        self._count = nbytes // 4

    def __len__(self) -> int:
        return _BATCHES

    def __getitem__(self, index: int) -> Any:
        return self._framework.full((self._count,), float(index))


def main() -> None:
    name, workers, nbytes = sys.argv[1:]
    framework = importlib.import_module(name)
    data = importlib.import_module(f"{name}.utils.data")
    framework.zeros(1).sum().item()  # what a program has done before it loads data
    start = time.perf_counter()
    batches = iter(data.DataLoader(_Samples(framework, int(nbytes)), batch_size=None, num_workers=int(workers)))
    next(batches)
    first = time.perf_counter()
    count = sum(1 for _ in batches)
    print(json.dumps({"first": first - start, "batch": (time.perf_counter() - first) / count}))


def _runs(workers: int, nbytes: int) -> Iterator[tuple[str, dict[str, float]]]:
    for _ in range(_PROCESSES):
        for framework in ("weft", "torch"):
            command = [sys.executable, "-W", "ignore", "-m", "bench.loading", framework, str(workers), str(nbytes)]
            run = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
            yield framework, json.loads(run.stdout)


def loader() -> list[tuple[str, Side, Side, float]]:
    """Rows of first batches, and of batches."""
    rows: list[tuple[str, Side, Side, float]] = []
    for text, nbytes in _SIZES.items():
        for workers in _WORKERS:
            runs = list(_runs(workers, nbytes))
            for what, kind in (("first batch", "first"), ("a batch", "batch")):
                ours, peer = (
                    Side(side, tuple(run[kind] for framework, run in runs if framework == side))
                    for side in ("weft", "torch")
                )
                rows.append((f"{what} of {text}, {workers} workers", ours, peer, 1.0))
    return rows


if __name__ == "__main__":
    main()
