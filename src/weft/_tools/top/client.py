"""Asking the launchers of jobs: those of this user on this machine, or at ports of their hosts."""

from __future__ import annotations

import re
import socket
import threading
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from typing import NamedTuple

from weft._comm.transport.sockets import is_same_user
from weft.distributed.elastic._job_report import JobReport, NodeReport
from weft.distributed.elastic.agent.server._job_endpoint import RUNNING, SOCKET_PREFIX
from weft.errors import DistError, DistNetworkError, ValueRangeError

_SOCKETS = Path("/proc/net/unix")
_ADDRESS = re.compile(r"(?:http://)?(?P<host>\[[0-9a-fA-F:.]+\]|[^\s:/,\[\]]+):(?P<port>\d{1,5})/?")
_PATIENCE = 10.0  # seconds in which a launcher must answer
_GLANCE = 3.0  # where the launchers of all jobs are looked at
_LONGEST_WAIT = 30.0  # for the end of a job; a launcher answers after less


class _PrivateConnection(HTTPConnection):
    """A connection to a Unix socket in the abstract namespace that a process of this user has made."""

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(self.timeout)
        self.sock.connect(f"\0{self.host}")
        if not is_same_user(self.sock):
            raise ConnectionRefusedError(f"the socket {self.host} is another user's")


class Endpoint(NamedTuple):
    """Where a launcher answers: a host and its port, or the name of a Unix socket (`port` is 0)."""

    host: str
    port: int = 0

    def __str__(self) -> str:
        return f"{self.host}:{self.port}" if self.port else self.host

    def connect(self, seconds: float = _PATIENCE) -> HTTPConnection:
        """A connection that waits so long for answers; `DistNetworkError` if there is no server."""
        kind = HTTPConnection if self.port else _PrivateConnection
        connection = kind(self.host, self.port or None, timeout=seconds)
        try:
            connection.connect()
        except OSError as error:
            connection.close()
            raise DistNetworkError(f"no launcher of a job answers at {self}: {error}") from error
        return connection

    def get(self, path: str, connection: HTTPConnection | None = None) -> str:
        """The text of a page; `DistNetworkError` if there is no answer, or another one."""
        connection = connection or self.connect()
        try:
            connection.request("GET", path)
            response = connection.getresponse()
            text = response.read().decode(errors="replace")
        except TimeoutError as error:
            seconds = connection.timeout
            raise DistNetworkError(f"the launcher at {self} does not answer within {seconds:g} s") from error
        except OSError as error:
            raise DistNetworkError(f"no launcher of a job answers at {self}: {error}") from error
        except HTTPException as error:
            raise DistNetworkError(
                f"what answers at {self} is no health check of a launcher, which has the port "
                "TORCHELASTIC_HEALTH_CHECK_PORT"
            ) from error
        finally:
            connection.close()
        if response.status != 200:
            raise DistNetworkError(f"{self} answers {response.status} {response.reason}: {text.strip()[:200]}")
        return text

    def report(self, path: str = "/job", seconds: float = _PATIENCE) -> JobReport:
        """What the launcher tells of its job."""
        text = self.get(path, self.connect(seconds))
        try:
            return JobReport.from_json(text)
        except ValueError as error:
            raise DistNetworkError(f"at {self} there is no launcher of a job: it answers {text[:40]!r}") from error


def endpoints_of(target: str | None) -> list[Endpoint]:
    """The launchers of a job.

    `target` is an address or several, separated by commas, or the id or the program of a job of this machine; None if
    there is only one. `DistError` if there is no such job, or if there are several.
    """
    if target is not None and (matches := [_ADDRESS.fullmatch(part) for part in target.split(",")]) and all(matches):
        return [Endpoint(match["host"].strip("[]"), _port(match["port"])) for match in matches if match]
    jobs: dict[str, tuple[str, Endpoint]] = {}
    for endpoint in _local_endpoints():
        with suppress(DistNetworkError):  # it is ending, or stopped
            report = endpoint.report("/node", _GLANCE)
            jobs.setdefault(report.job, (report.program, endpoint))
    chosen = {job: at for job, at in jobs.items() if target in (None, job, at[0], Path(at[0]).name)}
    if len(chosen) == 1:
        ((_, endpoint),) = chosen.values()
        return [endpoint]
    there_are = "; ".join(f"{job} ({program})" for job, (program, _) in sorted((chosen or jobs).items()))
    if chosen:
        raise DistError(f"there are several jobs, name one of them: {there_are}")
    if jobs:
        raise DistError(f"no job on this machine is called {target!r}, and it is no HOST:PORT; there are: {there_are}")
    raise DistError(
        "no job that `weft run` has started for this user is running on this machine; for one on another machine, give "
        "HOST:PORT of a launcher that was started with TORCHELASTIC_HEALTH_CHECK_PORT=PORT"
    )


def _port(digits: str) -> int:
    if not 0 < (port := int(digits)) < 1 << 16:
        raise ValueRangeError(f"there is no port {port}; ports are 1 to 65535")
    return port


def _local_endpoints() -> list[Endpoint]:
    """The sockets of launchers on this machine."""
    try:
        lines = _SOCKETS.read_text().splitlines()
    except OSError:  # not Linux
        return []
    names = {line.rpartition("@")[2] for line in lines if f" @{SOCKET_PREFIX}" in line}
    return [Endpoint(name) for name in sorted(names)]


def ask(endpoints: Sequence[Endpoint]) -> JobReport:
    """What the launchers tell of their job, together. The first error, if none of them answers."""
    reports: list[JobReport] = []
    errors: list[DistNetworkError] = []
    for endpoint in endpoints:
        try:
            reports.append(endpoint.report())
        except DistNetworkError as error:
            errors.append(error)
    if not reports:
        raise errors[0]
    if len(ids := sorted({report.job for report in reports})) > 1:
        raise DistError(f"the launchers run different jobs: {', '.join(ids)}")
    nodes: dict[int, NodeReport] = {}
    for node in [node for report in reports for node in report.nodes]:
        if node.answers or node.node not in nodes:
            nodes[node.node] = node
    return replace(reports[0], nodes=tuple([nodes[rank] for rank in sorted(nodes)]))


class EndWatch:
    """Waits for the end of a job, in a thread of its own, until it is closed."""

    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint = endpoint
        self._state: str | None = None
        self._connection: HTTPConnection | None = None
        self._closed = False
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._watch, name="the end of the job", daemon=True)
        self._thread.start()

    def _watch(self) -> None:
        state = RUNNING
        while state == RUNNING:
            try:
                with self._lock:
                    if self._closed:
                        return
                    self._connection = self._endpoint.connect(_LONGEST_WAIT)
                state = self._endpoint.get("/end", self._connection).strip()
            except DistNetworkError:
                state = ""
        self._state = state

    def close(self) -> None:
        """Wait no more."""
        with self._lock:
            self._closed = True
            sock = self._connection.sock if self._connection is not None else None
        if sock is not None:
            with suppress(OSError):  # it is closed already
                sock.shutdown(socket.SHUT_RDWR)
        self._thread.join()

    def wait(self, seconds: float) -> str | None:
        """The state in which the job has ended; None if it has not within this time, "" if its launcher is gone."""
        self._thread.join(seconds)
        return self._state
