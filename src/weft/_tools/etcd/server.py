"""An etcd server on this machine, for tests and for jobs on a single machine."""

from __future__ import annotations

import atexit
import logging
import os
import shutil
import subprocess
import tempfile
from typing import IO

from weft._comm.deadline import Deadline
from weft._tools.etcd.client import EtcdClient, EtcdOptions
from weft.distributed.elastic.utils.api import get_socket_with_port
from weft.errors import DistError, RendezvousConnectionError

_log = logging.getLogger(__name__)

_GLANCE = 0.2


def stop_etcd(subprocess: subprocess.Popen[bytes] | None, data_dir: str | None = None) -> None:
    """End a server's process, if it is running, and remove its data."""
    if subprocess is not None and subprocess.poll() is None:
        subprocess.terminate()
        subprocess.wait()
    if data_dir:
        shutil.rmtree(data_dir, ignore_errors=True)


class EtcdServer:
    """A server with one member on a free port of the loopback interface. It ends with this process at the latest.

    The program is `etcd` in PATH, or the path in TORCHELASTIC_ETCD_BINARY_PATH. A `data_dir` given by the caller is
    kept; without one, the data is in a temporary folder, which is removed when the server stops.
    """

    def __init__(self, data_dir: str | None = None) -> None:
        self._program = os.environ.get("TORCHELASTIC_ETCD_BINARY_PATH", "etcd")
        self._data_dir = data_dir
        self._temporary: str | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._port = -1

    def get_port(self) -> int:
        """The port that the server listens on."""
        return self._port

    def get_host(self) -> str:
        """The host that the server listens on."""
        return "localhost"

    def get_endpoint(self) -> str:
        """`HOST:PORT`, for `--rdzv-endpoint`."""
        return f"{self.get_host()}:{self._port}"

    def get_client(self) -> EtcdClient:
        """A client of the server."""
        return EtcdClient(self.get_endpoint(), EtcdOptions())

    def start(self, timeout: int = 60, num_retries: int = 3, stderr: int | IO[bytes] | None = None) -> None:
        """Start the server and return when it answers; `TimeoutError` if it does not within `timeout` seconds.

        This tries `num_retries` times, since another process may take the ports. `stderr` is as for `subprocess.Popen`.
        """
        if shutil.which(self._program) is None:
            raise FileNotFoundError(
                f"{self._program}: there is no such program; install etcd (its server, 3.4 or later), or name it in "
                "TORCHELASTIC_ETCD_BINARY_PATH"
            )
        if self._data_dir is None:
            self._temporary = tempfile.mkdtemp(prefix="torchelastic_etcd_data")
        atexit.register(self.stop)
        for left in reversed(range(num_retries)):
            try:
                self._start(os.path.join(self._data_dir or str(self._temporary), str(left)), timeout, stderr)
                return
            except (DistError, TimeoutError) as error:
                if not left:
                    self.stop()
                    raise
                stop_etcd(self._process)
                _log.warning("no etcd server yet, trying again: %s", error)

    def stop(self) -> None:
        """End the server and remove its temporary data. Further calls do nothing."""
        stop_etcd(self._process, self._temporary)
        self._process = self._temporary = None
        atexit.unregister(self.stop)

    def _start(self, folder: str, timeout: float, stderr: int | IO[bytes] | None) -> None:
        # Held until both numbers are known, so that they differ; another process may still take one, hence the
        # attempts.
        with get_socket_with_port() as client, get_socket_with_port() as peer:
            self._port, peer_port = client.getsockname()[1], peer.getsockname()[1]
        here = f"http://{self.get_endpoint()}"
        self._process = subprocess.Popen(
            [
                self._program,
                "--data-dir",
                folder,
                "--listen-client-urls",
                here,
                "--advertise-client-urls",
                here,
                "--listen-peer-urls",
                f"http://{self.get_host()}:{peer_port}",
            ],
            stderr=stderr,
        )
        self._await_answer(self._process, Deadline(timeout))

    def _await_answer(self, process: subprocess.Popen[bytes], deadline: Deadline) -> None:
        while not deadline.expired:
            if process.poll() is not None:
                raise DistError(f"Etcd server process exited with the code: {process.returncode}")
            try:
                EtcdClient(self.get_endpoint(), EtcdOptions(connect_timeout=_GLANCE))
                return
            except RendezvousConnectionError as error:
                _log.info("the etcd server does not answer yet: %s", error)
        raise TimeoutError("Timed out waiting for etcd server to be ready!")
