"""`weft rpc top`: a table of the workers of a running job, which it asks as an observer."""

from __future__ import annotations

import re
import sys
import time
from argparse import ArgumentParser, Namespace
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import NoReturn

from rich.console import Console, Group
from rich.live import Live

from weft._comm.stores import keys
from weft._comm.stores.observer import observed
from weft._comm.stores.store import PrefixStore, Store
from weft._comm.transport.tls import Certificates
from weft._tools.rpc_top.probe import Probe
from weft._tools.tables import amount, interval_seconds, table, text
from weft.distributed.rpc._listener import LOOPBACK, OBSERVER, ConnectOptions, Endpoint
from weft.distributed.rpc._workers import WorkerInfo, Workers
from weft.errors import DistError, WeftError

_PATIENCE = 3.0  # seconds in which the store, and each worker, must answer
_AT_A_TIME = 32  # workers that are asked at the same time
_COLUMNS = (
    "worker",
    " number",
    "state",
    "host",
    " process",
    " calls/s",
    " running",
    " waiting",
    " in/s",
    " out/s",
    " rrefs",
    " threads",
    " connections",
)


class JobProbe:
    """The workers of a job, according to its store."""

    def __init__(self, url: str, options: ConnectOptions) -> None:
        self.probes: dict[WorkerInfo, Probe] = {}
        self._url = url
        self._options = options
        self._store: Store = observed(url, timedelta(seconds=_PATIENCE))
        self._endpoints: dict[WorkerInfo, Endpoint] = {}
        self._executor = ThreadPoolExecutor(_AT_A_TIME)

    def update(self) -> None:
        """Ask all workers for their status. `DistError` if there are none, or if the store does not answer at first."""
        try:
            self._endpoints = self._find_workers()
        except DistError:
            if not self.probes:
                raise
        for worker in self.probes.keys() - self._endpoints.keys():
            self.probes.pop(worker).close()
        for worker in self._endpoints.keys() - self.probes.keys():
            self.probes[worker] = Probe(worker, self._options)
        list(self._executor.map(self._update_probe, self._endpoints))

    def _update_probe(self, worker: WorkerInfo) -> None:
        self.probes[worker].update(self._endpoints[worker], _PATIENCE)

    def _find_workers(self) -> dict[WorkerInfo, Endpoint]:
        """The endpoints of the workers that have joined together last, by number."""
        registered = [worker for key in self._store.list_keys() if (worker := keys.worker_of(key)) is not None]
        if not registered:
            raise DistError(f"no workers have joined the job at {self._url}; does it call init_rpc with this address?")
        start = max((start for start, _, _ in registered), key=_numbers)
        latest = f"{start}/{self._store.get(f'{start}/{keys.LATEST}').decode()}"
        workers = Workers(PrefixStore(latest, self._store), WorkerInfo(OBSERVER, -1), self._options)
        numbers = sorted(number for _, job, number in registered if job == latest)
        there = [worker for number in numbers if (worker := workers.find(number)) is not None]
        return {worker: endpoint for worker in there if (endpoint := workers.endpoint(worker)) is not None}

    @property
    def over(self) -> bool:
        """Whether all workers have ended."""
        return all(probe.state == "gone" for probe in self.probes.values())

    def close(self) -> None:
        """Close the connections."""
        self._executor.shutdown()
        for probe in self.probes.values():
            probe.close()
        self._store.close()


def _numbers(start: str) -> list[int]:
    return [int(digits) for digits in re.findall(r"\d+", start)]


def _row(probe: Probe) -> list[str]:
    cells = [probe.worker.name, str(probe.worker.id), probe.state]
    now, before = probe.now, probe.before
    cells += ["-", "-"] if now is None else [now.host, str(now.process)]
    if now is None or before is None or probe.state != "ok":
        return [*cells, *["-"] * (len(_COLUMNS) - len(cells))]
    seconds = now.time - before.time
    return [
        *cells,
        f"{(now.served - before.served) / seconds:.0f}",
        str(now.running),
        str(now.waiting),
        amount((now.bytes_in - before.bytes_in) / seconds),
        amount((now.bytes_out - before.bytes_out) / seconds),
        str(now.rrefs),
        str(now.threads),
        str(now.connections),
    ]


def _render(job: JobProbe) -> Group:
    probes = sorted(job.probes.values(), key=lambda probe: probe.worker.id)
    return Group(table(_COLUMNS, map(_row, probes)), *(probe.note for probe in probes if probe.note))


def _observe(options: Namespace) -> None:
    certificates = Certificates(*options.certificates) if options.certificates else None
    job = JobProbe(options.init_method, ConnectOptions(LOOPBACK, certificates=certificates))
    try:
        job.update()
        if options.once or not sys.stdout.isatty():
            _print(job, options)
        else:
            _animate(job, options)
    finally:
        job.close()


def _print(job: JobProbe, options: Namespace) -> None:
    while True:
        time.sleep(options.interval)
        job.update()
        print(text(_render(job)), end="" if options.once else "\n", flush=True)
        if options.once or job.over:
            return


def _animate(job: JobProbe, options: Namespace) -> None:
    with Live(_render(job), console=Console(), auto_refresh=False) as live:
        while not job.over:
            time.sleep(options.interval)
            job.update()
            live.update(_render(job), refresh=True)


def _parser() -> ArgumentParser:
    parser = ArgumentParser("weft rpc top", description="Show what the workers of a running job do.")
    parser.add_argument("init_method", help="where they meet: tcp://HOST:PORT, file:///PATH, or env://")
    parser.add_argument("--once", action="store_true", help="print one table, and end")
    parser.add_argument(
        "--interval", type=interval_seconds, default=1.0, metavar="SECONDS", help="between looks, for rates (default 1)"
    )
    parser.add_argument(
        "--certificates", nargs=3, metavar=("CERTIFICATE", "KEY", "AUTHORITY"), help="files for TLS, as workers have"
    )
    return parser


def main(args: Sequence[str] | None = None) -> None:
    """The command; exits with code 1 if the workers cannot be found, and 2 for wrong arguments."""
    options = _parser().parse_args(args)
    try:
        _observe(options)
    except KeyboardInterrupt:
        pass  # the usual way to end it
    except BrokenPipeError:
        sys.exit(0)
    except (WeftError, OSError, ValueError) as error:
        _end(f"weft rpc top: error: {error}")


def _end(message: str) -> NoReturn:
    print(message, file=sys.stderr, flush=True)
    sys.exit(1)
