"""Workers forked from a server that has already imported their modules."""

from __future__ import annotations

import importlib.util
import json
import logging
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from weft._base.types import Arg
from weft.distributed.elastic.multiprocessing._context import PContext
from weft.distributed.elastic.multiprocessing._entry import RUNNER
from weft.distributed.elastic.multiprocessing._start import start_processes

_SERVER = "weft.distributed.elastic.multiprocessing._fork_server"
_PRELOADED = "weft.distributed._preload"
_CHUNK = 1 << 16
_USES_TENSORS = re.compile(
    rb"^[ \t]*(import|from)[ \t]+weft\b(?!\.(_comm|errors|distributed\.(elastic|launcher|run))\b)", re.MULTILINE
)
_SETS_UP = re.compile(rb"\b(JAX|XLA|TF|OMP|MKL|OPENBLAS|WEFT)_(?!RENDEZVOUS|JOB)[A-Z]")
_log = logging.getLogger(__name__)


def preloaded_for(program: Sequence[str]) -> str:
    """The modules, comma-separated, that a fork server should import for a program (`[-m] NAME ARGS …`); may be empty.

    It is this package, if the program's source imports more of it than the parts without tensors, and does not mention
    environment variables that are read at import, which the program may want to set first. `WEFT_PRELOAD` overrides it.
    """
    if not program or not _can_fork():
        return ""
    chosen = os.environ.get("WEFT_PRELOAD")
    if chosen is not None:
        return chosen
    try:
        # The text is looked at, and nothing is imported: what to import first is the program's own decision.
        text = _source(program).read_bytes()
    except OSError:
        return ""
    return _PRELOADED if _USES_TENSORS.search(text) and not _SETS_UP.search(text) else ""


def _can_fork() -> bool:
    """Whether this system supports a fork server: Linux 5.3 with /proc."""
    try:
        os.close(os.pidfd_open(os.getpid()))
    except (AttributeError, OSError):
        return False
    return os.path.isdir("/proc/self/task")


def _source(program: Sequence[str]) -> Path:
    """The file with a program's source."""
    name, *_ = program
    if name != "-m":
        return Path(name, "__main__.py") if os.path.isdir(name) else Path(name)
    top, *parts = program[1].split(".")
    spec = importlib.util.find_spec(top)  # a dotted name would import the package
    folders = spec.submodule_search_locations if spec else None
    if not folders:
        return Path(spec.origin or "" if spec else "")
    module = Path(next(iter(folders)), *parts)
    return module / "__main__.py" if module.is_dir() else module.with_suffix(".py")


class ForkServer:
    """A process that imports the modules of one program (`[-m] NAME ARGS …`) and then forks its workers.

    It imports `modules` (comma-separated) while this process continues; the first `start` waits for it. If the server
    fails, workers are started without it.
    """

    def __init__(self, modules: str, program: Sequence[str]) -> None:
        self._socket, far = socket.socketpair()
        self._codes: dict[int, int] = {}
        self._forked: int | None = None
        self._ready = self._gone = False
        with far:
            self._process = subprocess.Popen(
                [sys.executable, "-u", "-m", _SERVER, str(far.fileno()), modules, *map(str, program)],
                pass_fds=[far.fileno()],
                start_new_session=True,  # this process passes signals on to workers
            )

    def start(self, **options: Arg) -> PContext:
        """Start workers, forked if possible. The options are those that an agent gives to `start_processes`."""
        while not (self._ready or self._gone):
            self._read()
        self._look()
        if self._gone:
            return start_processes(**options)
        context = ForkedContext(self, **options)
        try:
            context.start()
        # A server that has died costs time only: workers are started without it.
        except BrokenPipeError:
            context.close()
            return start_processes(**options)
        except BaseException:
            context.close()
            raise
        return context

    def fork(self, **request: Arg) -> int:
        """Fork a worker; returns its process id. `BrokenPipeError` if the server has ended."""
        self._forked = None
        self._socket.sendall(json.dumps(request).encode() + b"\n")
        while self._forked is None:
            self._read()
            if self._gone:
                raise BrokenPipeError("the process that forks the workers has ended; was it killed?")
        return self._forked

    def exit_code(self, pid: int) -> int | None:
        """A worker's exit code, None while it runs. If the server has ended, it is unknown: the worker is killed."""
        self._look()
        if self._gone and pid not in self._codes:
            _log.error("the process that forks the workers was killed, so that worker %d is ended, too", pid)
            with suppress(ProcessLookupError):
                os.killpg(pid, signal.SIGKILL)
            self._codes[pid] = -signal.SIGKILL
        return self._codes.get(pid)

    def watched(self) -> int:
        """A new descriptor that is readable when the server has sent a message."""
        return os.dup(self._socket.fileno())

    def _look(self) -> None:
        """Read all messages that the server has sent."""
        with suppress(BlockingIOError):
            while not self._gone:
                self._read(socket.MSG_DONTWAIT)

    def _read(self, flags: int = 0) -> None:
        """Handle the server's next message, or its end.

        A message is first peeked at, and removed from the socket last: a signal handler may raise in between, and the
        message must not be lost.
        """
        try:
            chunk = self._socket.recv(_CHUNK, flags | socket.MSG_PEEK)
        except ConnectionResetError:
            chunk = b""
        self._gone = not chunk
        lines = chunk[: chunk.rfind(b"\n") + 1]
        for message in map(json.loads, lines.splitlines()):
            if "code" in message:
                self._codes[message["pid"]] = message["code"]
            elif "forked" in message:
                self._forked = message["forked"]
                self._codes.pop(message["forked"], None)  # of an earlier process with this id
            elif "failed" in message:
                _log.warning("workers are started without sharing imports: %s", message["failed"])
            else:
                self._ready = True
        if lines:
            self._socket.recv(len(lines))

    def close(self) -> None:
        """End the server, which ends the remaining workers."""
        self._socket.close()
        if not self._ready:
            self._process.kill()  # otherwise it would finish its imports first
        self._process.wait()

    def __enter__(self) -> ForkServer:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


class ForkedContext(PContext):
    """Workers that a fork server forks."""

    def __init__(self, server: ForkServer, *, start_method: str, **options: Arg) -> None:
        del start_method  # it is for functions
        super().__init__(**options)
        self._server = server

    def _launch(self, local_rank: int) -> int:
        return self._server.fork(
            args=[str(arg) for arg in self.args[local_rank][len(RUNNER) :]],
            env={**os.environ, **self.envs[local_rank]},
            stdout=self.stdouts[local_rank],
            stderr=self.stderrs[local_rank],
        )

    def _watched(self, pid: int) -> int:
        return self._server.watched()

    def _exit_code(self, local_rank: int) -> int | None:
        return self._server.exit_code(self._pids[local_rank])
