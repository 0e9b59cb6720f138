"""Connections of a client to the server of a `TCPStore`, which are reopened when the network loses them."""

from __future__ import annotations

import errno
import logging
import os
import secrets
import socket
import threading
import time
from collections.abc import Generator, Sequence
from contextlib import contextmanager

from weft._comm.deadline import Deadline
from weft._comm.transport import sockets
from weft._comm.transport.authentication import Session, authenticate, store_service
from weft._comm.transport.wire import MOST_BYTES, Frames, pack, receive, send, unpack
from weft.errors import DistNetworkError, DistStoreError, JobKeyError, PeerGoneError

_MOST_LOSSES = 5  # of fresh connections one after the other; more is no accident of the network
_ATTEMPT_SECONDS = 3.0
_RECONNECT_SECONDS = 30.0  # for which a network may fail, as long as a connection may be silent
_PAUSE = 0.1
_SILENT = (errno.ETIMEDOUT, errno.EHOSTUNREACH, errno.ENETUNREACH)
_log = logging.getLogger(__name__)


class ConnectionPool:
    """Idle connections to the server. A call that finds none opens another one.

    So a call that waits at the server blocks no other call, and each caller reads its own answer.
    """

    def __init__(self, address: tuple[str, int], key: bytes) -> None:
        self.name = sockets.address_text(*address)
        self.address = address
        self._key = key
        self._process = os.getpid()
        self._idle: list[StoreConnection] = []
        self._reached = False  # until then the server may not have started; from then on it must be there
        self._warned = False  # that it cannot be reached now
        self._mutex = threading.Lock()
        self._closed = False

    @contextmanager
    def link(self, deadline: Deadline) -> Generator[StoreConnection]:
        """A connection for one call. If the call fails it is closed, since a part of a frame may have been sent."""
        link = self._take()
        try:
            link.connect(deadline)
            yield link
        except DistStoreError:  # an answer
            self._put(link)
            raise
        except BaseException:
            link.close()
            raise
        self._put(link)

    def _take(self) -> StoreConnection:
        with self._mutex:
            self._check_open()
            if self._process != os.getpid():  # after a fork, the connections are the parent's
                self._process, self._idle = os.getpid(), []
            return self._idle.pop() if self._idle else StoreConnection(self)

    def _put(self, link: StoreConnection) -> None:
        with self._mutex:
            if not self._closed:
                self._idle.append(link)
                return
        link.close()

    def _check_open(self) -> None:
        if self._closed:
            raise DistNetworkError(f"the store at {self.name} has been closed in this process")

    def close(self) -> None:
        """Close all connections."""
        with self._mutex:
            self._closed = True
            idle, self._idle = self._idle, []
        for link in idle:
            link.close()

    def connected(self, deadline: Deadline, patience: float = _RECONNECT_SECONDS) -> tuple[socket.socket, Session]:
        """A connection that has proved the key.

        Before the first success it is tried until the deadline. After that, the network may fail for `patience`
        seconds, and a refused connection is an error at once.
        """
        lost: str | None = None
        losses = 0
        while losses == 0 or not (deadline.expired or (self._reached and losses == _MOST_LOSSES)):
            sock = self._reach(deadline, patience)
            sockets.set_keepalive(sock)
            try:
                session = authenticate(sock, self._key, store_service(self.address[1]), deadline)
                self._reached, self._warned = True, False
                return sock, session
            except JobKeyError as error:
                sock.close()
                raise JobKeyError(f"the store at {self.name} refuses this process: {error}") from None
            except PeerGoneError as error:
                sock.close()
                raise JobKeyError(
                    f"there is another store at {self.name}: {error}; a port that is forwarded must have the number of "
                    "the store's own"
                ) from None
            except TimeoutError:
                sock.close()
                raise self._silent(deadline) from None
            except DistNetworkError as error:  # a server that was just ending; another one may follow
                sock.close()
                lost, losses = str(error), losses + 1
            except BaseException:
                sock.close()
                raise
        raise PeerGoneError(f"the store at {self.name} closes every connection: {lost}; is another program there?")

    def _reach(self, deadline: Deadline, patience: float) -> socket.socket:
        if not self._reached:
            return sockets.connect(*self.address, deadline)
        left = deadline.left()
        end = Deadline(patience if left is None else min(patience, left))
        while True:  # in short attempts, since the system asks more and more seldom within one
            attempt = Deadline(min(_ATTEMPT_SECONDS, end.left() or 0.0))
            try:
                return sockets.connect(*self.address, attempt, retry=False)
            # Refused, where the server has been reached before: its process has ended.
            except PeerGoneError:
                raise
            except DistNetworkError as error:
                self._warn(error)
                if end.expired:
                    raise DistNetworkError(f"no way back to the store within {end.seconds:.1f} s: {error}") from error
            time.sleep(_PAUSE)
            self._check_open()

    def _warn(self, error: DistNetworkError) -> None:
        """Log an outage of the network, once."""
        if not self._warned:
            _log.warning("the store at %s cannot be reached, trying again: %s", self.name, error)
        self._warned = True

    def _silent(self, deadline: Deadline) -> DistNetworkError:
        return DistNetworkError(
            f"the store at {self.name} took the connection and said nothing for {deadline.seconds:g} s; is its process "
            "stopped, or another program there?"
        )


class StoreConnection:
    """A connection to the server, reopened after a loss; it serves one call at a time.

    Requests that must not be executed twice are numbered, and the server keeps its latest answer, in case such a
    request is repeated.
    """

    def __init__(self, pool: ConnectionPool) -> None:
        self._pool = pool
        self._name = secrets.token_bytes(16)
        self._number = 0
        self._sock: socket.socket | None = None
        self._session: Session | None = None
        self._frames = Frames(MOST_BYTES)

    def connect(self, deadline: Deadline, patience: float = _RECONNECT_SECONDS) -> socket.socket:
        """The socket, connected now if it is not."""
        if self._sock is None:
            self._sock, self._session = self._pool.connected(deadline, patience)
            self._frames = Frames(MOST_BYTES, self._session.incoming)
        return self._sock

    def ask(self, fields: Sequence[bytes], deadline: Deadline, *, once: bool) -> list[bytes]:
        """Send a request and read the answer; `TimeoutError` at the deadline."""
        if once:
            self._number += 1
            fields = [b"once", self._name, b"%d" % self._number, *fields]
        request = pack(*fields)
        if len(request) > MOST_BYTES:
            raise DistStoreError(
                f"a request of {len(request)} bytes is longer than the {MOST_BYTES} that the store takes"
            )
        lost, patience = None, _RECONNECT_SECONDS
        for _ in range(_MOST_LOSSES):
            sock = self._connect_again(lost, deadline, patience)
            try:
                return self._exchange(sock, request, deadline)
            except DistNetworkError as error:
                self.close()
                lost = str(error)  # the error itself would keep this frame alive
                # The connection was silent for as long as it may be, so the network has had its time already.
                patience = _ATTEMPT_SECONDS if _was_silent(error) else _RECONNECT_SECONDS
        raise self._was_lost(lost)

    def _connect_again(self, lost: str | None, deadline: Deadline, patience: float) -> socket.socket:
        try:
            return self.connect(deadline, patience)
        except DistNetworkError as error:
            if lost is None or isinstance(error, JobKeyError):
                raise
            raise self._was_lost(lost, type(error)) from error

    def _was_lost(self, why: str | None, kind: type[DistNetworkError] = DistNetworkError) -> Exception:
        return kind(
            f"the connection to the store at {self._pool.name} was lost: {why}; the process that serves it has ended, "
            "or the network fails"
        )

    def cancel(self, deadline: Deadline) -> list[bytes]:
        """End a wait; returns the missing keys, or the answer of the wait if it has arrived."""
        if self._sock is None:
            raise TimeoutError
        try:
            return self._exchange(self._sock, pack(b"cancel"), deadline)
        except DistNetworkError:
            raise TimeoutError from None

    def _exchange(self, sock: socket.socket, request: bytes, deadline: Deadline) -> list[bytes]:
        assert self._session is not None, "a connection has a session"
        send(sock, request, deadline, self._session.outgoing)
        return unpack(receive(sock, self._frames, deadline))

    def close(self) -> None:
        """Close the connection."""
        sock, self._sock = self._sock, None
        if sock is not None:
            sock.close()


def _was_silent(error: DistNetworkError) -> bool:
    """Whether a connection was lost because the peer stayed silent for too long; see `sockets.set_keepalive`.

    The system then reports an ICMP error if one came, and else a timeout.
    """
    return isinstance(error.__cause__, OSError) and error.__cause__.errno in _SILENT
