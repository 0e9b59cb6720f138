"""A job whose processes can be found again, and what they do."""

import os
import signal
import socket
import subprocess
import time
import uuid
from contextlib import suppress
from functools import cache
from pathlib import Path

from tests.distributed.elastic.nodes import Node
from tests.waiting import until
from weft.distributed.elastic.rendezvous.utils import free_port

PROGRAMS = Path(__file__).parent
SOURCES = PROGRAMS.parents[1] / "src"
WITH_SHARED_MEMORY = ("unshare", "--mount", "sh", "-c", 'mount --bind "$0" /dev/shm && exec "$@"')


@cache
def may_mount():
    """Whether this process may make namespaces and mount in them."""
    try:
        return subprocess.run([*WITH_SHARED_MEMORY, "/tmp", "true"], capture_output=True).returncode == 0
    except FileNotFoundError:
        return False


class Job:
    """Nodes of one job.

    The processes carry a mark in their environment, and have folders of their own for temporary files and, where this
    process may mount, for named shared memory.
    """

    def __init__(self, folder):
        self.folder = folder
        self.go = folder / "go"
        self.port = free_port()
        self.nodes = []
        self._mark = uuid.uuid4().hex
        self._temporary = folder / "tmp"
        self._temporary.mkdir()
        self._shared = folder / "shm"
        self._shared.mkdir()

    def run(self, *flags, program, args=(), prefix=(), **env):
        """Start a node: `weft run FLAGS PROGRAM GO ARGS`. Workers that only use stores need no tensors preloaded."""
        env = {"WEFT_FAULT": self._mark, "TMPDIR": str(self._temporary), "PYTHONPATH": str(SOURCES)} | env
        if may_mount():
            prefix = (*WITH_SHARED_MEMORY, self._shared, *prefix)
        node = Node(*flags, PROGRAMS / program, self.go, *args, env=env, prefix=prefix)
        self.nodes.append(node)
        return node

    def finish(self):
        """Let the workers end."""
        self.go.touch()

    # --- what is left ---

    def processes(self):
        """Numbers of the job's processes that live."""
        mark, found = f"WEFT_FAULT={self._mark}".encode(), []
        for entry in Path("/proc").iterdir():
            if entry.name.isdecimal():
                with suppress(OSError):
                    if mark in (entry / "environ").read_bytes():
                        found.append(int(entry.name))
        return found

    def check_nothing_is_left(self):
        """No process, and so no anonymous memory; no named one; no socket; no file."""
        for node in self.nodes:
            assert node.process.poll() is not None, "the test has not waited for a node"
        until(lambda: not self.processes(), lambda: f"processes are left: {[_named(pid) for pid in self.processes()]}")
        assert not list(self._shared.iterdir()), "shared memory is left"
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(("127.0.0.1", self.port))
        until(lambda: not list(self._temporary.iterdir()), lambda: f"left: {list(self._temporary.rglob('*'))}")

    def kill(self):
        """End what a failed test has left."""
        for node in self.nodes:
            if node.process.poll() is None:
                node.kill()
        for pid in self.processes():
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


def _named(pid):
    with suppress(OSError):
        return pid, Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()
    return pid, "gone"


class Progress:
    """The steps that the workers of one round go through together, as rank 0 notes them."""

    def __init__(self, job, round):
        self._path = job.folder / f"go.{round}"

    def step(self):
        """The last step."""
        return int(self._path.read_text() or 0) if self._path.exists() else 0

    def goes_on(self):
        """Wait for some steps more."""
        until(lambda: self.step() > 0, "there is no step")
        target = self.step() + 3
        until(lambda: self.step() >= target, lambda: f"the steps stand still at {self.step()}")

    def stand_still(self, seconds):
        """Wait until there has been no step for some seconds."""
        step, since = self.step(), time.monotonic()

        def still():
            nonlocal step, since
            if self.step() != step:
                step, since = self.step(), time.monotonic()
            return time.monotonic() - since >= seconds

        until(still, "the steps go on")
