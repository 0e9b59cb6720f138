"""`python -m bench.scale [SIZE …]`: joining, starting anew and leaving in simulated time; writes docs/scale.*.

`python -m bench.scale measure` measures what the simulation takes for the costs of a store.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path

from bench.scale.agents import Job
from bench.scale.measure import measure
from bench.scale.report import plot, table
from bench.scale.simulation import ETCD, TCP_STORE, Load
from bench.scale.workers import Workers

SIZES = (10, 100, 1_000, 10_000)
ETCD_MOST = 1_000  # agents; docs/scale.md tells what more come to
_DOCS = Path(__file__).resolve().parent.parent.parent / "docs"


def simulated(size: int) -> Iterator[tuple[str, Load, Load]]:
    """Each event with what it costs a host, and those that do more: the leader and the agent of rank 0, or worker 0."""
    job = Job(size, TCP_STORE, spare=max(size // 4, 2))
    yield "agents: join", *job.join()
    if size <= ETCD_MOST:
        yield "agents: join, by etcd", *Job(size, ETCD).join()
    yield "agents: 10 s of heartbeats", *job.idle()
    yield "agents: workers of one fail, all restart", *job.restart()
    yield "agents: one is killed, all restart", *job.death(size // 3)
    yield "agents: the leader is killed, all restart", *job.death(job.leader())
    yield "agents: leave", *job.leave()
    del job  # gigabytes
    workers = Workers(size, TCP_STORE)
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


if __name__ == "__main__":
    if sys.argv[1:] == ["measure"]:
        measure()
    else:
        record([int(size) for size in sys.argv[1:]] or list(SIZES))
