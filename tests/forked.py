"""Programs forked from a process that has imported weft: to import it is most of what short programs do."""

from __future__ import annotations

import atexit
import json
import os
import select
import socket
import subprocess
import sys
import threading
from functools import cache

_READ_AT_IMPORT = ("WEFT_", "JAX_", "XLA_", "PYTHON")  # how names of variables begin
_ENVIRONMENT = dict(os.environ)  # of the server


def started(command, *, env=None, **options):
    """The process of a command: forked if that is `python -m` or `python -c`, with the settings of all tests."""
    env = dict(os.environ) if env is None else env
    forks = hasattr(os, "pidfd_open") and command[0] == sys.executable and command[1:2] in (["-m"], ["-c"])
    alike = settings_of(env) == settings_of(_ENVIRONMENT)
    return (Forked if forks and alike else subprocess.Popen)(command, env=env, **options)


def ran(command, timeout=120, **options):
    """Such a process that has ended, with all that it has printed."""
    pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    with started(command, text=True, **pipes, **options) as process:
        try:
            printed = process.communicate(timeout=timeout)
            return subprocess.CompletedProcess(command, process.returncode, *printed)
        finally:
            process.kill()


def settings_of(environment):
    """The variables that are read when weft is imported."""
    return {name: value for name, value in environment.items() if name.startswith(_READ_AT_IMPORT)}


class Forked(subprocess.Popen):
    """A process that another one forks and waits for. Its three streams must be given."""

    def _execute_child(self, args, *rest):
        folder, environment, handles = rest[4], rest[5], rest[9:15]
        request = {"args": args, "env": environment, "cwd": str(folder or os.getcwd())}
        self.pid = server().asked(request, [handles[0], handles[3], handles[5]])
        self._ends = os.pidfd_open(self.pid)
        self._child_created = True
        self._close_pipe_fds(*handles)

    def _try_wait(self, wait_flags):
        if not select.select([self._ends], [], [], 0 if wait_flags else None)[0]:
            return 0, 0
        os.close(self._ends)
        return self.pid, server().asked({"ended": self.pid})

    def _internal_poll(self, _deadstate=None):
        if self.returncode is None and self._waitpid_lock.acquire(False):
            try:
                pid, status = self._try_wait(os.WNOHANG)
                if pid:
                    self._handle_exitstatus(status)
            finally:
                self._waitpid_lock.release()
        return self.returncode


class Server:
    """The process that forks programs, from its beginning to this one's end."""

    def __init__(self):
        self._lock = threading.Lock()
        self._socket, far = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with far:
            command = [sys.executable, "-m", "tests.forking", str(far.fileno())]
            quiet = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL}
            self._process = subprocess.Popen(command, pass_fds=[far.fileno()], env=_ENVIRONMENT, **quiet)
        atexit.register(self._end)

    def _end(self):
        self._socket.close()
        self._process.wait()

    def asked(self, request, descriptors=()):
        """The number that it answers."""
        with self._lock:
            socket.send_fds(self._socket, [json.dumps(request).encode()], descriptors)
            return int(self._socket.recv(100))


@cache
def server():
    return Server()
