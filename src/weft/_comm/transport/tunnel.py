"""A service of one process, reached by others through connections that prove the job's key.

The service listens at a Unix socket that only its user can reach, and a `TunnelServer` forwards connections to it. Each
other process has a `Tunnel`, also a Unix socket, and connects to that instead. When the service ends, connections
through a tunnel stay open and silent: a client that would end its process on a closed connection goes on.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from tempfile import TemporaryDirectory, gettempdir
from time import sleep
from typing import Any

from weft._comm.deadline import Deadline
from weft._comm.transport import sockets
from weft._comm.transport.acceptor import Acceptor, Channel
from weft._comm.transport.authentication import PROOF_SECONDS, Service, Session, authenticate
from weft._comm.transport.key import job_key
from weft._comm.transport.wire import Frames, frame, receive
from weft.errors import DistNetworkError

_CHUNK = 1 << 16
_LONGEST_PATH = 80  # of the folder that holds the sockets' folders; a socket's path has at most 107 bytes
_PAUSE = 0.02
_NAME = "weft tunnel"


class TunnelServer:
    """Forwards connections of peers that prove the job's key, and know its `token`, to a service of this process.

    The service must listen at `path`.
    """

    def __init__(self, token: str) -> None:
        self._folder = _private_folder()
        self.path = f"{self._folder.name}/service"
        listener = sockets.listen("", 0)
        self.port: int = listener.getsockname()[1]
        self._connections: set[socket.socket] = set()
        self._changed = threading.Condition()
        self._acceptor = Acceptor([listener], _service(token), job_key(), lambda channel: _start(self._accept, channel))

    def close(self, seconds: float) -> None:
        """Wait up to `seconds` until all connections are closed; those left are disconnected from the service."""
        with self._changed:
            self._changed.wait_for(lambda: not self._connections, seconds)
            for local in self._connections:
                local.shutdown(socket.SHUT_RDWR)

    def _accept(self, channel: Channel) -> None:
        local = channel.sock
        local.settimeout(None)
        remote = _connect(self.path, Deadline(PROOF_SECONDS))
        if remote is None:
            local.close()  # so that the peer does not wait
            return
        with self._changed:
            self._connections.add(local)
        _start(_encrypt, remote, local, channel.session)
        _decrypt(local, remote, channel.session)
        remote.close()
        with self._changed:
            self._connections.remove(local)
            self._changed.notify_all()


class Tunnel:
    """A Unix socket, at `path`, that forwards to the tunnel server at the first of `addresses` that answers.

    Each address has `seconds` to answer.
    """

    def __init__(self, addresses: Sequence[str], port: int, token: str, seconds: float) -> None:
        self._addresses = addresses
        self._server_port = port
        self._service = _service(token)
        self._seconds = seconds
        self._key = job_key()
        self._kept_open: list[socket.socket] = []  # referred to, since Python closes a socket without references
        self._folder = _private_folder()
        self.path = f"{self._folder.name}/tunnel"
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(self.path)
        self._listener.listen()
        _start(self._serve)

    def _serve(self) -> None:
        while True:
            _start(self._forward, self._listener.accept()[0])

    def _forward(self, local: socket.socket) -> None:
        reached = self._connect()
        if reached is None:
            local.close()
            return
        remote, session = reached
        self._kept_open.append(local)
        _start(_decrypt, remote, local, session)
        _encrypt(local, remote, session)
        remote.close()

    def _connect(self) -> tuple[socket.socket, Session] | None:
        for address in self._addresses:
            deadline = Deadline(self._seconds)
            try:
                remote = sockets.connect(address, self._server_port, deadline, retry=False)
            except DistNetworkError:
                continue
            try:
                session = authenticate(remote, self._key, self._service, deadline)
            except (DistNetworkError, OSError):
                remote.close()
                continue
            remote.settimeout(None)
            return remote, session
        return None


def _private_folder() -> TemporaryDirectory[str]:
    """A folder that only this user can enter, with a path that is short enough for sockets."""
    here = gettempdir()
    return TemporaryDirectory(
        prefix="weft-", dir=here if len(here) < _LONGEST_PATH else "/tmp", ignore_cleanup_errors=True
    )


def _connect(path: str, deadline: Deadline) -> socket.socket | None:
    """A connection to a socket of this host, which may start to listen later; None where it does not."""
    while True:
        sock = socket.socket(socket.AF_UNIX)
        try:
            sock.connect(path)
        except OSError:
            sock.close()
        else:
            return sock
        if deadline.expired:
            return None
        sleep(_PAUSE)


def _service(token: str) -> Service:
    return Service("gate", token)


def _start(function: Callable[..., None], *args: Any) -> None:
    threading.Thread(target=function, args=args, name=_NAME, daemon=True).start()


def _encrypt(source: socket.socket, target: socket.socket, session: Session) -> None:
    """Forward bytes as frames, until either side is closed. The target stays open."""
    with suppress(OSError):  # one of the sides has closed it
        while piece := source.recv(_CHUNK):
            target.sendall(frame(piece, session.outgoing))


def _decrypt(source: socket.socket, target: socket.socket, session: Session) -> None:
    """Forward the contents of frames, until either side is closed or a frame is forged. The target stays open."""
    frames = Frames(_CHUNK, session.incoming)
    with suppress(OSError, DistNetworkError):
        while True:
            target.sendall(receive(source, frames, Deadline(None)))
