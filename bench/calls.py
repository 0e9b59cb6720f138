"""Remote calls between two processes of one framework.

`python -m bench.calls SIDE RANK PATH` is one of them; a side is a framework, or `weft tcp` or `weft tls`. Worker 0
measures what each line that it reads names, and prints figures in seconds; worker 1 serves until it ends.
"""

from __future__ import annotations

import functools
import importlib
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import trustme

from bench import split
from bench.measure import REPEATS, Side

_FRAMEWORKS = {"weft": "weft", "torch": "torch, TensorPipe"}
_WAYS = {"weft tls": "TLS", "weft tcp": "TCP without TLS"}
_PEER = "w1"
_CALLS, _PIPELINED, _LIVE = 1000, 5000, 10_000
_SIZES = {"tensor": 2, "1MB": 1 << 18, "128MB": 1 << 25}
_ITERATIONS = 100
_COUNTS = {"tensor": _CALLS, "1MB": 50, "128MB": 3}


def echo(x: Any) -> Any:
    return x


def increment(x: Any) -> Any:
    return x + 1


def _each(count: int, call: Callable[[], Any]) -> list[float]:
    found = []
    for _ in range(count):
        start = time.perf_counter()
        call()
        found.append(time.perf_counter() - start)
    return found


def _seconds(function: Callable[[], Any]) -> float:
    return _each(1, function)[0]


def _programs(framework: Any, rpc: Any) -> dict[str, Callable[[], list[float]]]:
    """Figures by name: the median and the 99th percentile of calls, or the time of one."""
    tensors = {name: framework.ones(size) for name, size in _SIZES.items()}

    def echoes(count: int, x: Any) -> list[float]:
        found = _each(count, lambda: rpc.rpc_sync(_PEER, echo, args=(x,)))
        return [statistics.median(found), statistics.quantiles(found, n=100)[98]]

    def pipelined() -> None:
        for future in [rpc.rpc_async(_PEER, echo, args=(1,)) for _ in range(_PIPELINED)]:
            future.wait()

    def references() -> None:
        live = [rpc.remote(_PEER, increment, args=(1,)) for _ in range(_LIVE)]
        live[-1].to_here()
        del live
        rpc.rpc_sync(_PEER, echo, args=(1,))

    programs: dict[str, Callable[[], list[float]]] = {
        "int": lambda: echoes(_CALLS, 1),
        "pipelined": lambda: [_seconds(pipelined) / _PIPELINED],
        "remote": lambda: [
            statistics.median(_each(_CALLS // 4, lambda: rpc.remote(_PEER, increment, args=(1,)).to_here()))
        ],
        "references": lambda: [_seconds(references) / _LIVE],
    }
    run = functools.cache(lambda: split.iteration(framework.__name__, _PEER))
    programs["iteration"] = lambda: [statistics.median(_each(_ITERATIONS, run()))]
    for name, x in tensors.items():
        programs[name] = lambda name=name, x=x: echoes(_COUNTS[name], x)[:1]
    return programs


def main() -> None:
    side, rank, path = sys.argv[1:]
    name, _, way = side.partition(" ")
    framework = importlib.import_module(name)
    rpc = importlib.import_module(f"{name}.distributed.rpc")
    if name == "torch":
        framework.set_num_threads(1)
    options = rpc.TensorPipeRpcBackendOptions(init_method=f"file://{path}", **_options(way, Path(path).parent))
    rpc.init_rpc(f"w{rank}", rank=int(rank), world_size=2, rpc_backend_options=options)
    if rank == "0":
        programs = _programs(framework, rpc)
        print("ready", flush=True)
        for line in sys.stdin:
            print(*programs[line.strip()](), flush=True)
    rpc.shutdown()


def _options(way: str, folder: Path) -> dict[str, Any]:
    """Options by which two processes of one host use TCP, with certificates of the folder or without."""
    if not way:
        return {}
    files = [folder / f"{name}.pem" for name in ("certificate", "key", "authority")]
    return {"_transports": ["uv"], "certificates": files if way == "tls" else None}


def _certify(folder: Path) -> None:
    authority = trustme.CA()
    made = authority.issue_cert("worker")
    made.cert_chain_pems[0].write_to_path(str(folder / "certificate.pem"))
    made.private_key_pem.write_to_path(str(folder / "key.pem"))
    authority.cert_pem.write_to_path(str(folder / "authority.pem"))


class _Pair:
    """Both workers of one side."""

    def __init__(self, side: str, name: str, folder: str) -> None:
        self.name = name
        command = [sys.executable, "-m", "bench.calls", side]
        path = str(Path(folder, side.replace(" ", "-")))
        self._server = subprocess.Popen([*command, "1", path], stdin=subprocess.DEVNULL)
        self._caller = subprocess.Popen([*command, "0", path], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        if self._line() != "ready":
            raise RuntimeError(f"worker 0 of {side} ended before it was ready")

    def _line(self) -> str:
        assert self._caller.stdout is not None
        return self._caller.stdout.readline().strip()

    def sample(self, program: str) -> list[float]:
        assert self._caller.stdin is not None
        self._caller.stdin.write(program + "\n")
        self._caller.stdin.flush()
        return [float(word) for word in self._line().split()]

    def stop(self) -> None:
        self._caller.communicate()
        self._server.wait()


def _measured(
    rows: list[tuple[str, str, int, float]], compared: dict[str, str] = _FRAMEWORKS
) -> list[tuple[str, Side, Side, float]]:
    """Both sides in turn. A row names its text, its program, which of its figures, and the goal."""
    with tempfile.TemporaryDirectory() as folder:
        _certify(Path(folder))
        pairs = [_Pair(side, name, folder) for side, name in compared.items()]
        found: dict[str, list[list[list[float]]]] = {}
        try:
            for program in dict.fromkeys(program for _, program, _, _ in rows):
                for pair in pairs:
                    pair.sample(program)
                found[program] = [[pair.sample(program) for pair in pairs] for _ in range(REPEATS)]
        finally:
            for pair in pairs:
                pair.stop()
    sides = {
        (program, at): [Side(pair.name, tuple(one[n][at] for one in found[program])) for n, pair in enumerate(pairs)]
        for _, program, at, _ in rows
    }
    return [(text, *sides[program, at], goal) for text, program, at, goal in rows]


def rpc() -> list[tuple[str, Side, Side, float]]:
    """Rows of calls."""
    return _measured(
        [
            ("echo of an int, median", "int", 0, 3.0),
            ("echo of an int, 99th percentile", "int", 1, 2.0),
            ("5,000 calls that do not wait for each other, per call", "pipelined", 0, 6.0),
            ("echo of a tensor of 2 elements, median", "tensor", 0, 5.0),
            ("echo of a tensor of 1 MB, median", "1MB", 0, 3.0),
            ("echo of a tensor of 128 MB, median", "128MB", 0, 5.0),
        ]
    )


def tls() -> list[tuple[str, Side, Side, float]]:
    """Rows of what TLS costs: between the same processes over TCP, with it and without."""
    return _measured(
        [
            ("echo of an int over TLS, median", "int", 0, 0.0),
            ("echo of a tensor of 1 MB over TLS, median", "1MB", 0, 0.0),
        ],
        _WAYS,
    )


def rref() -> list[tuple[str, Side, Side, float]]:
    """Rows of references."""
    return _measured(
        [
            ("`remote` and `to_here` of an int, median", "remote", 0, 3.0),
            ("10,000 references, made and dropped, per reference", "references", 0, 3.0),
        ]
    )


def dist_autograd() -> list[tuple[str, Side, Side, float]]:
    """The row of distributed autograd."""
    text = "an iteration of a model of 4 × (linear, tanh), width 256, batch 32, its first half on another worker"
    return _measured([(text, "iteration", 0, 2.0)])


if __name__ == "__main__":
    main()
