"""A service of one process, reached by others through connections that prove the job's key.

The service listens on its own host alone; a `Gate` stands before it, and each other process has a `Tunnel` that it
connects to in the service's place. When the service ends, what came through a tunnel stays open and is silent: a
client that would end its process because of a closed connection goes on.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Sequence

from weft._comm import sockets
from weft._comm.deadline import Deadline
from weft._comm.key import PROOF_SECONDS, job_key, prove
from weft.errors import DistNetworkError

_CHUNK = 1 << 16
_NAME = "weft tunnel"


class Gate:
    """Lets peers that prove the job's key through to a port of this host."""

    def __init__(self, target: int) -> None:
        self._target = target
        self._key = job_key()
        self._listener = sockets.listen("", 0)
        self.port: int = self._listener.getsockname()[1]
        self._open: set[socket.socket] = set()
        self._changed = threading.Condition()
        _start(self._serve)

    def close(self, seconds: float) -> None:
        """Wait so many seconds until all who came have gone; nothing more gets through to those who stay."""
        with self._changed:
            self._changed.wait_for(lambda: not self._open, seconds)
            for near in self._open:
                near.shutdown(socket.SHUT_RDWR)

    def _serve(self) -> None:
        while True:
            _start(self._let_in, self._listener.accept()[0])

    def _let_in(self, near: socket.socket) -> None:
        try:
            prove(near, self._key, Deadline(PROOF_SECONDS), server=True)
            far = sockets.connect("127.0.0.1", self._target, Deadline(PROOF_SECONDS))  # it may start later
        except (DistNetworkError, OSError):
            near.close()  # the peer is told
            return
        near.settimeout(None)
        far.settimeout(None)
        with self._changed:
            self._open.add(near)
        _start(_pump, far, near)
        _pump(near, far)
        far.close()
        with self._changed:
            self._open.remove(near)
            self._changed.notify_all()


class Tunnel:
    """A port of this host that leads to the gate at the first of `addresses` that answers."""

    def __init__(self, addresses: Sequence[str], port: int, seconds: float) -> None:
        self._addresses = addresses
        self._gate = port
        self._seconds = seconds
        self._key = job_key()
        self._kept: list[socket.socket] = []  # a socket that nothing refers to is closed
        self._listener = sockets.listen("127.0.0.1", 0)
        self.port: int = self._listener.getsockname()[1]
        _start(self._serve)

    def _serve(self) -> None:
        while True:
            _start(self._lead, self._listener.accept()[0])

    def _lead(self, near: socket.socket) -> None:
        far = self._reached()
        if far is None:
            near.close()
            return
        self._kept.append(near)
        _start(_pump, far, near)
        _pump(near, far)
        far.close()

    def _reached(self) -> socket.socket | None:
        for address in self._addresses:
            deadline = Deadline(self._seconds)
            try:
                far = sockets.connect(address, self._gate, deadline, retry=False)
            except DistNetworkError:
                continue
            try:
                prove(far, self._key, deadline, server=False)
            except (DistNetworkError, OSError):
                far.close()
                continue
            far.settimeout(None)
            return far
        return None


def _start(function: Callable[..., None], *args: socket.socket) -> None:
    threading.Thread(target=function, args=args, name=_NAME, daemon=True).start()


def _pump(source: socket.socket, target: socket.socket) -> None:
    """Hand on what comes until either side has gone. The target stays open."""
    try:
        while piece := source.recv(_CHUNK):
            target.sendall(piece)
    except OSError:
        pass  # one of the sides has closed it
