"""`python -m bench.scale [SIZE …]`: joining, starting anew and leaving in simulated time; writes docs/scale.*.

`python -m bench.scale measure` measures what the simulation takes for the costs of a store.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.distributed.elastic.etcd_cluster import Cluster

from bench.agents import Job
from bench.simulation import MEASURED, Costs, Load
from bench.workers import Workers
from weft._comm.tcp_store import TCPStore

ETCD_OPERATION = 500e-6  # seconds of etcd for one request, by its JSON gateway; `measure` tells
ETCD_MOST = 1_000  # agents; docs/scale.md tells what more come to
SIZES = (10, 100, 1_000, 10_000)
_DOCS = Path(__file__).resolve().parent.parent / "docs"
_SERVER = (
    "from weft._comm.tcp_store import TCPStore; "
    "store = TCPStore('127.0.0.1', 0, is_master=True, wait_for_workers=False); print(store.port, flush=True); input()"
)


def simulated(size: int, costs: Costs = MEASURED, seed: int = 0) -> Iterator[tuple[str, Load, Load]]:
    """Each event with what it costs a host, and those that do more: the clerk and the agent of rank 0, or worker 0."""
    job = Job(size, costs, seed, spare=max(size // 4, 2))
    yield "agents: join", *job.join()
    if size <= ETCD_MOST:
        yield "agents: join, by etcd", *Job(size, costs._replace(operation=ETCD_OPERATION), seed).join()
    yield "agents: 10 s of signs of life", *job.idle()
    yield "agents: workers of one fail, all start anew", *job.restart()
    yield "agents: one is killed, all start anew", *job.death(size // 3)
    yield "agents: the clerk is killed, all start anew", *job.death(job.clerk())
    yield "agents: leave", *job.leave()
    del job  # gigabytes
    workers = Workers(size, costs, seed)
    yield "workers: init_rpc", *workers.join()
    yield "workers: shutdown", *workers.leave()


def record(sizes: list[int]) -> None:
    """Simulate, and write the figures down beside those of other sizes."""
    path = _DOCS / "scale.json"
    figures = json.loads(path.read_text()) if path.exists() else {}
    for size in sizes:
        for event, others, special in simulated(size):
            figures.setdefault(event, {})[str(size)] = {"others": others._asdict(), "special": special._asdict()}
            print(size, event, others, special, flush=True)
            path.write_text(json.dumps(figures, indent=1) + "\n")
    plot(figures, _DOCS / "scale.svg")
    print("\n".join(table(figures)))


def table(figures: dict[str, dict[str, Any]]) -> Iterator[str]:
    """The figures as a table of Markdown."""
    yield "| event | n | s | messages | bytes | messages, bytes of the first | requests, bytes of the store |"
    yield "|---|---|---|---|---|---|---|"
    for event, by_size in figures.items():
        for size, row in sorted(by_size.items(), key=lambda item: int(item[0])):
            others, special = Load(**row["others"]), Load(**row["special"])
            yield (
                f"| {event} | {int(size):,} | {others.seconds:.2f} | {others.median_messages:.0f}, "
                f"{others.most_messages} | {others.median_bytes:,.0f}, {others.most_bytes:,} | "
                f"{special.most_messages:,}, {special.most_bytes:,} | "
                f"{others.store_messages // 2:,}, {others.store_bytes:,} |"
            )


def plot(figures: dict[str, dict[str, Any]], path: Path) -> None:
    """Time, and messages of a host, over the number of hosts."""
    import matplotlib as mpl

    mpl.use("Agg")
    mpl.rcParams["svg.hashsalt"] = "scale"
    from matplotlib import pyplot

    figure, panels = pyplot.subplots(1, 2, figsize=(10, 4.4), layout="constrained")
    for event, by_size in figures.items():
        rows = sorted((int(size), Load(**row["others"]), Load(**row["special"])) for size, row in by_size.items())
        sizes = [size for size, *_ in rows]
        (line,) = panels[0].plot(sizes, [others.seconds for _, others, _ in rows], marker=".", label=event)
        panels[1].plot(sizes, [others.most_messages for _, others, _ in rows], marker=".", color=line.get_color())
        panels[1].plot(sizes, [special.most_messages for *_, special in rows], ":", color=line.get_color())
    for panel, title in zip(
        panels, ("simulated time, s", "messages of the busiest host (dotted: clerk, rank 0)"), strict=True
    ):
        panel.set(xscale="log", yscale="log", xlabel="agents or workers", title=title)
        panel.grid(alpha=0.3)
    figure.legend(loc="outside lower center", ncols=3, fontsize="small")
    figure.savefig(path, metadata={"Date": None})


# --- the costs of a store -------------------------------------------------------------------------------------------


def measure() -> None:
    """What one request costs the server of a `TCPStore`, and etcd, in processor time, and what each key adds."""
    with _served() as (process, port):
        store = TCPStore("127.0.0.1", port, wait_for_workers=False)
        store.set("notice", b"n" * 400)
        for name, call in (
            ("set", lambda: store.set("key", b"x" * 100)),
            ("get", lambda: store.get("notice")),
            ("compare_set", lambda: store.compare_set("notice", b"n" * 400, b"n" * 400)),
        ):
            print(f"TCPStore.{name}: {_cost(process, call, 20_000) * 1e6:.0f} µs")
        keys = [f"node/10.0.0.{at}_123_0" for at in range(10_000)]
        cost = _cost(process, lambda: store.multi_set(keys, [b"x" * 50] * len(keys)), 20) / len(keys)
        print(f"TCPStore.multi_set: {cost * 1e6:.2f} µs a key")
        cost = _cost(process, lambda: store.values_under("node/"), 20) / len(keys)
        print(f"TCPStore.values_under: {cost * 1e6:.2f} µs a key")
    with tempfile.TemporaryDirectory() as folder:
        cluster = Cluster(Path(folder), 1)
        try:
            client, member = cluster.client, cluster.members[0]
            print(f"etcd, put: {_cost(member, lambda: client.put('key', b'x' * 100), 2_000) * 1e6:.0f} µs")
            print(f"etcd, get: {_cost(member, lambda: client.get('key'), 2_000) * 1e6:.0f} µs")
        finally:
            cluster.end()


@contextmanager
def _served() -> Iterator[tuple[subprocess.Popen, int]]:
    with subprocess.Popen([sys.executable, "-c", _SERVER], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        yield process, int(process.stdout.readline())
        process.kill()


def _cost(server: subprocess.Popen, call: Callable[[], object], times: int) -> float:
    """Seconds of a server's processor time for one call."""
    before, start = _processor_seconds(server.pid), time.perf_counter()
    for _ in range(times):
        call()
    print(f"  answered after {(time.perf_counter() - start) / times * 1e6:.0f} µs")
    return (_processor_seconds(server.pid) - before) / times


def _processor_seconds(process: int) -> float:
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


if __name__ == "__main__":
    if sys.argv[1:] == ["measure"]:
        measure()
    else:
        record([int(size) for size in sys.argv[1:]] or list(SIZES))
