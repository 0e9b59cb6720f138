"""Accepts connections and authenticates their peers, with one thread for all listening sockets of a service.

Up to `MAX_UNAUTHENTICATED` peers may be authenticating at a time. Further ones wait in the system's queue until one of
these is done; after a tenth of a second, the oldest one is closed to make room. So half-open connections cannot block
others, and use no more file descriptors than that.
"""

from __future__ import annotations

import logging
import selectors
import socket
import ssl
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from time import monotonic
from typing import NamedTuple

from weft._comm.deadline import Deadline
from weft._comm.transport import sockets
from weft._comm.transport.authentication import (
    MOST_PROOF_BYTES,
    PROOF_SECONDS,
    ServerHandshake,
    Service,
    Session,
    peer_name,
)
from weft._comm.transport.tls import Tls, TlsError
from weft._comm.transport.wire import Frames, frame
from weft.errors import DistNetworkError

_log = logging.getLogger(__name__)

MAX_UNAUTHENTICATED = 64
"""The number of peers that may be authenticating at a time."""

_GRACE_SECONDS = 0.1  # before a connection may be closed to make room; also the pause when too many files are open
_LOG_INTERVAL = 1.0  # seconds between two log lines
_CHUNK = 1 << 14
_PYTORCH = b"\0\xce\xf7\x85\x3c"  # the first bytes from a client of PyTorch's TCPStore


class Channel(NamedTuple):
    """A connection whose peer has proved the key. `identity` is a text that the peer has sent with its proof."""

    sock: socket.socket
    session: Session
    tls: Tls | None = None
    identity: str = ""


class _Unauthenticated:
    """A connection whose peer has not proved the key yet."""

    __slots__ = ("accepted_at", "deadline", "frames", "proof", "sock", "tls")

    def __init__(self, sock: socket.socket, proof: ServerHandshake, tls: Tls | None, seconds: float) -> None:
        self.sock = sock
        self.proof = proof
        self.tls = tls
        self.frames = Frames(MOST_PROOF_BYTES)
        self.accepted_at = monotonic()
        self.deadline = Deadline(seconds)


class Acceptor:
    """Accepts connections at listening sockets, which it owns, until it is closed.

    `on_accept(channel)`, which must not block, is called with each connection whose peer has proved the key for
    `service`; it then owns the non-blocking socket. With a `context`, peers over TCP must use TLS. Other connections
    are closed, and the reason is logged. A peer has `seconds` to prove the key.
    """

    def __init__(
        self,
        listeners: Sequence[socket.socket],
        service: Service,
        key: bytes,
        on_accept: Callable[[Channel], None],
        *,
        context: ssl.SSLContext | None = None,
        seconds: float = PROOF_SECONDS,
    ) -> None:
        self._listeners = listeners
        self._service = service
        self._key = key
        self._on_accept = on_accept
        self._context = context
        self._seconds = seconds
        self._log_lines = _RateLimitedLog(f"{service.kind} on port {listeners[0].getsockname()[1]}")
        self._unauthenticated: dict[socket.socket, _Unauthenticated] = {}  # oldest first
        self._paused_until: float | None = None  # when the listeners are watched again
        self._selector = selectors.DefaultSelector()
        self._stop_sender, self._stop_receiver = socket.socketpair()
        self._selector.register(self._stop_receiver, selectors.EVENT_READ)
        for listener in listeners:
            listener.setblocking(False)
            self._selector.register(listener, selectors.EVENT_READ)
        self._thread = threading.Thread(target=self._run, name=f"weft acceptor, {service.kind}", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop listening, and close the connections that are not authenticated yet."""
        self._stop_sender.close()
        if threading.current_thread() is not self._thread:
            self._thread.join()

    def _run(self) -> None:
        try:
            while self._run_once():
                pass
        finally:
            for sock in (*self._unauthenticated, *self._listeners, self._stop_receiver):
                sock.close()
            self._selector.close()

    def _run_once(self) -> bool:
        """Handle the next events; false once the acceptor is closed."""
        for event, _ in self._selector.select(self._timeout()):
            sock = event.fileobj
            assert isinstance(sock, socket.socket), "nothing else is registered"
            if sock is self._stop_receiver:
                return False
            if sock in self._unauthenticated:
                self._read(self._unauthenticated[sock])
            elif event.data is None and sock.fileno() >= 0 and self._paused_until is None:
                self._accept(sock)
        # In the order of their deadlines, so the first that has time ends the search.
        for connection in list(self._unauthenticated.values()):
            if not connection.deadline.expired:
                break
            self._reject(connection, f"it did not prove the job's key within {self._seconds:g} s")
        if self._paused_until is not None and (monotonic() >= self._paused_until or not self._is_full()):
            self._paused_until = None
            for listener in self._listeners:
                self._selector.register(listener, selectors.EVENT_READ)
        return True

    def _timeout(self) -> float | None:
        oldest = next(iter(self._unauthenticated.values()), None)
        times = [] if oldest is None else [oldest.deadline.left() or 0.0]
        if self._paused_until is not None:
            times.append(max(0.0, self._paused_until - monotonic()))
        return min(times, default=None)

    def _is_full(self) -> bool:
        return len(self._unauthenticated) >= MAX_UNAUTHENTICATED

    # --- accepting -------------------------------------------------------------------------------------------------

    def _accept(self, listener: socket.socket) -> None:
        if self._is_full():
            oldest = next(iter(self._unauthenticated.values()))
            if monotonic() < oldest.accepted_at + _GRACE_SECONDS:
                self._pause(oldest.accepted_at + _GRACE_SECONDS)
                return
            self._reject(oldest, "it took long to prove the job's key, and others want to come in")
        try:
            sock, _ = listener.accept()
        except (BlockingIOError, ConnectionError):  # the peer has closed it
            return
        except OSError as error:  # too many open files: close a connection that is not authenticated
            self._log_lines.say(f"a connection was not taken: {error}")
            if self._unauthenticated:
                self._reject(next(iter(self._unauthenticated.values())), "there are too many open files")
            self._pause(monotonic() + _GRACE_SECONDS)
            return
        self._add(sock)

    def _pause(self, until: float) -> None:
        """Leave new connections in the system's queue until a time."""
        self._paused_until = until
        for listener in self._listeners:
            self._selector.unregister(listener)

    def _add(self, sock: socket.socket) -> None:
        sock.setblocking(False)
        over_tcp = sock.family != socket.AF_UNIX
        if over_tcp:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            sockets.set_keepalive(sock)
        tls = Tls(self._context, server=True) if over_tcp and self._context is not None else None
        connection = _Unauthenticated(sock, ServerHandshake(self._key, self._service), tls, self._seconds)
        self._unauthenticated[sock] = connection
        self._selector.register(sock, selectors.EVENT_READ, connection)
        if not over_tcp and not sockets.is_same_user(sock):
            self._reject(connection, "it is another user's")
        elif tls is None:
            self._send_frame(connection, connection.proof.greeting)

    # --- authenticating -------------------------------------------------------------------------------------------

    def _read(self, connection: _Unauthenticated) -> None:
        try:
            piece = connection.sock.recv(_CHUNK)
        except BlockingIOError:
            return
        except OSError:
            piece = b""
        if not piece:
            self._reject(connection)
        # A program that has kept PyTorch's import somewhere would only see a closed connection.
        elif piece.startswith(_PYTORCH):
            self._reject(
                connection,
                f"it does not speak Weft's protocol (its first bytes are {_PYTORCH.hex(' ')}), but that of PyTorch's "
                "own torch.distributed; change that import to weft.distributed, or set WEFT_AS_TORCH=1",
            )
        else:
            try:
                self._receive(connection, piece)
            except DistNetworkError as error:
                if isinstance(error, TlsError):
                    self._send(connection, error.alert)
                self._reject(connection, str(error))

    def _receive(self, connection: _Unauthenticated, piece: bytes) -> None:
        tls = connection.tls
        if tls is not None and not tls.ready:
            self._send(connection, tls.do_handshake(piece))
            if not tls.ready:
                return
            self._send_frame(connection, connection.proof.greeting)
            piece = b""
        connection.frames.feed(piece if tls is None else tls.open(piece))
        payload = connection.frames.next()
        if payload is not None:
            self._authenticate(connection, payload)

    def _authenticate(self, connection: _Unauthenticated, payload: bytes) -> None:
        answer = connection.proof.answer(payload)
        if answer.session is None:
            self._reject(connection, answer.refusal, answer.payload)
            return
        channel = Channel(connection.sock, answer.session, connection.tls, answer.identity)
        self._remove(connection)
        try:
            connection.sock.sendall(_encrypted(connection, answer.payload))
            self._on_accept(channel)
        except Exception as error:
            connection.sock.close()
            if not isinstance(error, OSError):  # that would be a lost connection
                _log.exception("%s: a peer was not served", self._service.kind)

    def _send_frame(self, connection: _Unauthenticated, payload: bytes) -> None:
        self._send(connection, _encrypted(connection, payload))

    def _send(self, connection: _Unauthenticated, data: bytes) -> None:
        try:
            connection.sock.sendall(data)
        except OSError:
            self._reject(connection)

    # --- closing --------------------------------------------------------------------------------------------------

    def _reject(self, connection: _Unauthenticated, why: str = "", payload: bytes | None = None) -> None:
        """Close a connection and log why. A `payload` is sent to the peer before that."""
        if connection.sock not in self._unauthenticated:
            return
        if why:
            self._log_lines.say(f"{peer_name(connection.sock)} was sent away: {why}")
        if payload is not None:
            with suppress(OSError):  # the peer has gone
                connection.sock.sendall(_encrypted(connection, payload))
        self._remove(connection)
        connection.sock.close()

    def _remove(self, connection: _Unauthenticated) -> None:
        self._selector.unregister(connection.sock)
        del self._unauthenticated[connection.sock]


def _encrypted(connection: _Unauthenticated, payload: bytes) -> bytes:
    data = frame(payload)
    return data if connection.tls is None else connection.tls.seal(data)


class _RateLimitedLog:
    """Log lines about one service, at a limited rate."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._next = 0.0
        self._left_out = 0

    def say(self, text: str) -> None:
        """Log a line, unless one was logged within the last second; the next line says how many were left out."""
        now = monotonic()
        if now < self._next:
            self._left_out += 1
            return
        before = f" ({self._left_out} like it were not logged)" if self._left_out else ""
        _log.warning("%s: %s%s", self._name, text, before)
        self._next, self._left_out = now + _LOG_INTERVAL, 0
