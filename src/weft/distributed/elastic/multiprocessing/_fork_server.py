"""A process that imports a program's modules once, and forks a copy of itself for each worker.

`python -m weft.distributed.elastic.multiprocessing._fork_server FD MODULES [-m] PROGRAM [ARGS …]` imports the modules
(comma-separated), sends `ready` on the socket FD, and then forks on request; see `_forked`. It computes nothing, since
a process in which XLA has started must not be forked. PROGRAM and ARGS make the process recognisable in lists of
processes, and determine where Python searches for modules.
"""

from __future__ import annotations

import gc
import json
import os
import select
import signal
import socket
import sys
from collections.abc import Iterable
from contextlib import suppress
from importlib import import_module

from weft._base.program import add_script_folder, is_source
from weft._base.signals import restore_defaults
from weft._base.types import Kwargs
from weft.distributed.elastic.multiprocessing import _entry
from weft.distributed.elastic.multiprocessing.redirects import send
from weft.errors import PreconditionError

_CHUNK = 1 << 16


def main(argv: list[str]) -> None:
    """Serve until the other end of the socket is closed; in a worker, run its program."""
    fd, modules, *program = argv
    peer = socket.socket(fileno=int(fd))
    peer.set_inheritable(False)
    if program[0] != "-m" and is_source(program[0]):
        add_script_folder(program[0])
    try:
        _import(modules.split(","))
    except Exception as error:  # the workers will fail at the same import, and show the error
        _tell(peer, failed=f"{type(error).__name__}: {error}")
        os._exit(1)
    _tell(peer, ready=os.getpid())
    request = _serve(peer)
    if request is None:
        os._exit(0)
    _initialize_worker(request)
    _entry.main(request["args"])


def _import(modules: list[str]) -> None:
    for name in modules:
        import_module(name)
    if not _is_alone():
        raise PreconditionError(f"importing {', '.join(modules)} has started threads, which forks do not have")
    gc.collect()
    gc.freeze()  # a worker's garbage collector then does not touch, and so copy, the imported objects


def _is_alone() -> bool:
    """Whether this is the only thread. A fork is tried first, because NumPy's OpenBLAS ends its threads in a fork."""
    if not (pid := os.fork()):
        os._exit(0)
    os.waitpid(pid, 0)
    return len(os.listdir("/proc/self/task")) == 1


def _serve(peer: socket.socket) -> Kwargs | None:
    """Fork for each request and report exit codes. Returns the request in a worker, None at the end."""
    workers: dict[int, int] = {}  # process ids, by descriptors that are readable when the process has ended
    received = b""
    poll = select.poll()
    poll.register(peer, select.POLLIN)
    while True:
        for fd, _ in poll.poll():
            if fd in workers:
                poll.unregister(fd)
                os.close(fd)
                pid = workers.pop(fd)
                _tell(peer, pid=pid, code=os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
                continue
            chunk = _received(peer)
            if not chunk:
                _kill(workers.values())
                return None
            *requests, received = (received + chunk).split(b"\n")
            for request in requests:
                if not (pid := os.fork()):
                    _close_server_files(peer, workers)
                    return json.loads(request)
                workers[watch := os.pidfd_open(pid)] = pid
                poll.register(watch, select.POLLIN)
                _tell(peer, forked=pid)


def _received(peer: socket.socket) -> bytes:
    try:
        return peer.recv(_CHUNK)
    except ConnectionResetError:  # the other end is closed, and has not read all messages
        return b""


def _close_server_files(peer: socket.socket, watches: Iterable[int]) -> None:
    """In a worker: close the server's descriptors."""
    peer.close()
    for watch in watches:
        os.close(watch)


def _tell(peer: socket.socket, **message: int | str) -> None:
    with suppress(BrokenPipeError, ConnectionResetError):  # the next read of the socket reports its end
        peer.sendall(json.dumps(message).encode() + b"\n")


def _kill(pids: Iterable[int]) -> None:
    """Kill the workers, because the launcher is gone."""
    for pid in pids:
        for kill in (os.killpg, os.kill):  # a worker that has just been forked leads no group yet
            with suppress(ProcessLookupError, PermissionError):
                kill(pid, signal.SIGKILL)


def _initialize_worker(request: Kwargs) -> None:
    """Make this fork like a freshly started interpreter."""
    os.setsid()
    restore_defaults(signal.SIGHUP, signal.SIGQUIT, signal.SIGTERM, signal.SIGINT)  # as in a process of an agent
    os.environ.clear()
    os.environ.update(request["env"])
    sys.orig_argv[:] = [sys.executable, *_entry.RUNNER, *request["args"]]
    for std in ("stdout", "stderr"):
        if request[std]:
            send(std, request[std])
    if numpy := sys.modules.get("numpy"):
        numpy.random.seed()  # as its import does; otherwise all copies would draw the same numbers


if __name__ == "__main__":
    main(sys.argv[1:])
