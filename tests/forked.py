"""Programs forked from a process that has imported weft: to import it is most of what short programs do.

`python -m tests.forked FD` is that process. It forks programs and waits for their ends, as the socket FD asks.
"""

from __future__ import annotations

import atexit
import gc
import json
import os
import random
import select
import socket
import subprocess
import sys
from functools import cache

import numpy as np

from weft._base.program import end, run_module, run_text, shortened
from weft.distributed import _preload as _preload

_SIZE = 1 << 17  # of a message
_READ_AT_IMPORT = ("WEFT_", "JAX_", "XLA_", "PYTHON")  # how names of variables begin


def started(command, environment=None, **options):
    """The process of a command: forked if that is `python -m` or `python -c`, with this process's settings."""
    environment = {**os.environ} if environment is None else environment
    forks = hasattr(os, "pidfd_open") and command[0] == sys.executable and command[1:2] in (["-m"], ["-c"])
    alike = forks and settings_of(environment) == settings_of(os.environ) == settings_of(server().environment)
    return (Forked if alike else subprocess.Popen)(command, env=environment, **options)


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
        self.environment = dict(os.environ)
        self._socket, far = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with far:
            command = [sys.executable, "-m", "tests.forked", str(far.fileno())]
            quiet = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL}
            self._process = subprocess.Popen(command, pass_fds=[far.fileno()], **quiet)
        atexit.register(self._end)

    def _end(self):
        self._socket.close()
        self._process.wait()

    def asked(self, request, descriptors=()):
        """The number that it answers."""
        socket.send_fds(self._socket, [json.dumps(request).encode()], descriptors)
        return int(self._socket.recv(_SIZE))


@cache
def server():
    return Server()


def main():
    own = socket.socket(fileno=int(sys.argv[1]))
    own.set_inheritable(False)
    gc.freeze()
    while True:
        text, descriptors, *_ = socket.recv_fds(own, _SIZE, 3)
        if not text:
            return
        request = json.loads(text)
        if "ended" in request:
            answer = os.waitpid(request["ended"], 0)[1]
        elif not (answer := os.fork()):
            own.close()
            become(descriptors, request["args"], request["env"], request["cwd"])
            return
        for descriptor in descriptors:
            os.close(descriptor)
        own.send(b"%d" % answer)


def become(descriptors, command, environment, folder):
    """Run a program as if this process had been started for it."""
    for number, descriptor in enumerate(descriptors):
        os.dup2(descriptor, number)
        os.close(descriptor)
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(folder)
    random.seed()
    np.random.seed()
    _, how, name, *args = command
    try:
        (run_module if how == "-m" else run_text)(name, args)
    except (SystemExit, KeyboardInterrupt) as stop:
        shortened(stop, __file__)
        raise
    except BaseException as error:
        end(shortened(error, __file__))


if __name__ == "__main__":
    main()
