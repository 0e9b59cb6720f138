"""Saving and loading a state dict of 1 GB: tensors of 1 to 64 MB, float32, the page cache warm.

`python -m bench.checkpoints FRAMEWORK save|load PATH` measures one side in a process of its own: seconds per round, and
last the bytes by which memory rose above its level before the rounds.
"""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
import tempfile
import time
from itertools import cycle
from pathlib import Path
from typing import Any

import numpy as np

from bench.measure import Side

_ROUNDS = 3
_PROCESSES = 3  # of each side, in turn
_TOTAL = 1 << 30
_SIZES = [1 << n for n in range(20, 27)]  # bytes of the tensors, in turn

Measured = tuple[Side, float]
"""Seconds, and bytes of peak memory."""


def _state(framework: Any) -> dict[str, Any]:
    made: dict[str, Any] = {}
    left = _TOTAL
    for size in cycle(_SIZES):
        if not left:
            return made
        size = min(size, left)
        made[f"layer{len(made)}.weight"] = framework.from_numpy(np.full(size // 4, len(made), np.float32)).clone()
        left -= size
    return made


def _status(field: str) -> int:
    """A field of the process's status in bytes: `VmRSS` is the memory in use, `VmHWM` its peak."""
    line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith(field))
    return int(line.split()[1]) << 10


def _resident() -> int:
    """The memory in use, from which peaks count from now on (Linux alone can forget an older one)."""
    Path("/proc/self/clear_refs").write_text("5")
    return _status("VmRSS")


def _flush(path: str) -> None:
    handle = os.open(path, os.O_RDONLY)
    os.fsync(handle)
    os.close(handle)


def _saving(framework: Any, path: str) -> dict[str, Any]:
    """Until the file is on the disk: ours is when `save` returns, the peer's is flushed here."""
    state = _state(framework)
    framework.save({"x": state["layer0.weight"][:1].clone()}, path)
    before, seconds = _resident(), []
    for _ in range(_ROUNDS):
        start = time.perf_counter()
        framework.save(state, path)
        if framework.__name__ != "weft":
            _flush(path)
        seconds.append(time.perf_counter() - start)
    return {"seconds": seconds, "peak": _status("VmHWM") - before}


def _loading(framework: Any, path: str) -> dict[str, Any]:
    """Until the tensors are there; one of the small ones is read."""
    framework.load(path + ".small")
    before, seconds = _resident(), []
    for _ in range(_ROUNDS + 1):
        state = None
        start = time.perf_counter()
        state = framework.load(path)
        assert state["layer0.weight"][0].item() == 0
        seconds.append(time.perf_counter() - start)
    return {"seconds": seconds[1:], "peak": _status("VmHWM") - before}


def main() -> None:
    name, what, path = sys.argv[1:]
    framework = importlib.import_module(name)
    if name == "torch":
        framework.set_num_threads(2)
    if what == "prepare":
        framework.save(_state(framework), path)
        framework.save({"x": framework.ones(1)}, path + ".small")
        return
    print(json.dumps({"save": _saving, "load": _loading}[what](framework, path)))


def _run(framework: str, what: str, path: Path) -> str:
    command = [sys.executable, "-m", "bench.checkpoints", framework, what, str(path)]
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout


def _sides(what: str, sides: list[tuple[str, Path]]) -> list[Measured]:
    found: list[list[dict[str, Any]]] = [[] for _ in sides]
    for _ in range(_PROCESSES):
        for results, (framework, path) in zip(found, sides, strict=True):
            os.sync()
            results.append(json.loads(_run(framework, what, path)))
    return [
        (Side(framework, tuple(s for r in results for s in r["seconds"])), max(r["peak"] for r in results))
        for results, (framework, _) in zip(found, sides, strict=True)
    ]


def _row(text: str, ours: Measured, peer: Measured) -> tuple[str, Side, Side, float]:
    memory = f"at its peak {ours[1] / 1e6:.0f} MB more memory, PyTorch {peer[1] / 1e6:.0f} MB"
    return f"{text} ({memory})", ours[0], peer[0], 1.0


def save() -> list[tuple[str, Side, Side, float]]:
    """Rows of `torch.save`, and of safetensors against it."""
    with tempfile.TemporaryDirectory() as folder:
        ours, tensors, peer = _sides(
            "save",
            [
                ("weft", Path(folder, "x.weft")),
                ("weft", Path(folder, "x.safetensors")),
                ("torch", Path(folder, "x.pt")),
            ],
        )
    return [
        _row("`save` of a 1 GB state dict, to the disk", ours, peer),
        _row("the same as safetensors, against `torch.save`", tensors, peer),
    ]


def load() -> list[tuple[str, Side, Side, float]]:
    """Rows of `torch.load`: each package's own file, and PyTorch's in both."""
    with tempfile.TemporaryDirectory() as folder:
        own, foreign = Path(folder, "x.weft"), Path(folder, "x.pt")
        _run("weft", "prepare", own)
        _run("torch", "prepare", foreign)
        ours, theirs, peer = _sides("load", [("weft", own), ("weft", foreign), ("torch", foreign)])
    return [
        _row("`load` of a 1 GB state dict", ours, peer),
        _row("the same of PyTorch's file", theirs, peer),
    ]


if __name__ == "__main__":
    main()
