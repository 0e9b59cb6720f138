"""A service of one process, reached by others through connections that prove the job's key.

The service listens at a Unix socket that nobody but its user reaches; a `Gate` stands before it, and each other
process has a `Tunnel`, another such socket, that it connects to in the service's place. When the service ends, what
came through a tunnel stays open and is silent: a client that would end its process because of a closed connection goes
on.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from tempfile import TemporaryDirectory, gettempdir
from time import sleep
from typing import Any

from weft._comm import sockets
from weft._comm.deadline import Deadline
from weft._comm.greeter import Channel, Greeter
from weft._comm.key import job_key
from weft._comm.proof import PROOF_SECONDS, Service, Session, call
from weft._comm.wire import Frames, frame, receive
from weft.errors import DistNetworkError

_CHUNK = 1 << 16
_LONGEST_PATH = 80  # of a folder for sockets' folders; the system takes 107 bytes in all
_PAUSE = 0.02
_NAME = "weft tunnel"


class Gate:
    """Lets peers that prove the job's key, and know its `token`, through to a service of this process.

    That is to listen at `path`.
    """

    def __init__(self, token: str) -> None:
        self._folder = _private_folder()
        self.path = f"{self._folder.name}/service"
        listener = sockets.listen("", 0)
        self.port: int = listener.getsockname()[1]
        self._open: set[socket.socket] = set()
        self._changed = threading.Condition()
        self._greeter = Greeter([listener], _service(token), job_key(), lambda channel: _start(self._let_in, channel))

    def close(self, seconds: float) -> None:
        """Wait so many seconds until all who came have gone; nothing more gets through to those who stay."""
        with self._changed:
            self._changed.wait_for(lambda: not self._open, seconds)
            for near in self._open:
                near.shutdown(socket.SHUT_RDWR)

    def _let_in(self, channel: Channel) -> None:
        near = channel.sock
        near.settimeout(None)
        far = _reached(self.path, Deadline(PROOF_SECONDS))
        if far is None:
            near.close()  # the peer is told
            return
        with self._changed:
            self._open.add(near)
        _start(_seal, far, near, channel.session)
        _open(near, far, channel.session)
        far.close()
        with self._changed:
            self._open.remove(near)
            self._changed.notify_all()


class Tunnel:
    """A Unix socket, at `path`, that leads to the gate at the first of `addresses` that answers."""

    def __init__(self, addresses: Sequence[str], port: int, token: str, seconds: float) -> None:
        self._addresses = addresses
        self._gate = port
        self._service = _service(token)
        self._seconds = seconds
        self._key = job_key()
        self._kept: list[socket.socket] = []  # a socket that nothing refers to is closed
        self._folder = _private_folder()
        self.path = f"{self._folder.name}/tunnel"
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(self.path)
        self._listener.listen()
        _start(self._serve)

    def _serve(self) -> None:
        while True:
            _start(self._lead, self._listener.accept()[0])

    def _lead(self, near: socket.socket) -> None:
        reached = self._reached()
        if reached is None:
            near.close()
            return
        far, session = reached
        self._kept.append(near)
        _start(_open, far, near, session)
        _seal(near, far, session)
        far.close()

    def _reached(self) -> tuple[socket.socket, Session] | None:
        for address in self._addresses:
            deadline = Deadline(self._seconds)
            try:
                far = sockets.connect(address, self._gate, deadline, retry=False)
            except DistNetworkError:
                continue
            try:
                session = call(far, self._key, self._service, deadline)
            except (DistNetworkError, OSError):
                far.close()
                continue
            far.settimeout(None)
            return far, session
        return None


def _private_folder() -> TemporaryDirectory[str]:
    """A folder that only this user can enter, with a path that is short enough for sockets."""
    here = gettempdir()
    return TemporaryDirectory(
        prefix="weft-", dir=here if len(here) < _LONGEST_PATH else "/tmp", ignore_cleanup_errors=True
    )


def _reached(path: str, deadline: Deadline) -> socket.socket | None:
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


def _seal(source: socket.socket, target: socket.socket, session: Session) -> None:
    """Hand on what comes, as frames, until either side has gone. The target stays open."""
    with suppress(OSError):  # one of the sides has closed it
        while piece := source.recv(_CHUNK):
            target.sendall(frame(piece, session.outgoing))


def _open(source: socket.socket, target: socket.socket, session: Session) -> None:
    """Hand on what frames hold, until either side has gone, or somebody else has sent one. The target stays open."""
    frames = Frames(_CHUNK, session.incoming)
    with suppress(OSError, DistNetworkError):
        while True:
            target.sendall(receive(source, frames, Deadline(None)))
