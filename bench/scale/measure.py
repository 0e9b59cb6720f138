"""What the simulation takes for the costs of a store: processor time of a server for one request, and for each key."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from tests._tools.etcd_cluster import Cluster

from weft._comm.stores.tcp_store import TCPStore

_SERVER = (
    "from weft._comm.stores.tcp_store import TCPStore; "
    "store = TCPStore('127.0.0.1', 0, is_master=True, wait_for_workers=False); print(store.port, flush=True); input()"
)
_NODE_KEYS = [f"node/10.0.0.{at}_123_0" for at in range(10_000)]


def measure() -> None:
    """Print the costs of a `TCPStore`, and of an etcd of one member without `fsync`."""
    _measure_tcp_store()
    _measure_etcd()


def _measure_tcp_store() -> None:
    with _served() as (process, port):
        store = TCPStore("127.0.0.1", port, wait_for_workers=False)
        store.set("status", b"n" * 400)
        for name, call in (
            ("set", lambda: store.set("key", b"x" * 100)),
            ("get", lambda: store.get("status")),
            ("compare_set", lambda: store.compare_set("status", b"n" * 400, b"n" * 400)),
        ):
            print(f"TCPStore.{name}: {_cost(process, call, 20_000) * 1e6:.0f} µs")
        values = [b"x" * 50] * len(_NODE_KEYS)
        for name, call in (
            ("multi_set", lambda: store.multi_set(_NODE_KEYS, values)),
            ("values_under", lambda: store.values_under("node/")),
        ):
            print(f"TCPStore.{name}: {_cost(process, call, 20) / len(_NODE_KEYS) * 1e6:.2f} µs a key")


def _measure_etcd() -> None:
    with tempfile.TemporaryDirectory() as folder:
        cluster = Cluster(Path(folder), 1)
        try:
            client, server = cluster.client, cluster.members[0]
            revision = client.get_all(["key"])[1]
            for name, call, times in (
                ("watch", lambda: client.await_change("absent", revision, 0.02), 500),
                ("put", lambda: client.put("key", b"x" * 100), 2_000),
                ("get", lambda: client.get("key"), 2_000),
            ):
                print(f"etcd, {name}: {_cost(server, call, times) * 1e6:.0f} µs")
            pairs = dict.fromkeys(_NODE_KEYS, b"x" * 50)
            for name, call in (
                ("put_all", lambda: client.put_all(pairs)),
                ("get_all", lambda: client.get_all(_NODE_KEYS)),
                ("entries", lambda: client.entries("node/")),
            ):
                print(f"etcd, {name}: {_cost(server, call, 5) / len(_NODE_KEYS) * 1e6:.1f} µs a key")
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
