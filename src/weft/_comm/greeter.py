"""Letting in who proves the job's key: one thread for the listeners of a service.

Strangers are heard side by side, up to a limit. Where there are more, the next ones wait in the system's queue until
one is through, or has had its moment, and then the one that takes longest has to go. So half-open connections keep
nobody out, and cost no more files than that.
"""

from __future__ import annotations

import logging
import selectors
import socket
import ssl
import threading
from collections.abc import Callable, Sequence
from time import monotonic
from typing import NamedTuple

from weft._comm import sockets
from weft._comm.deadline import Deadline
from weft._comm.proof import MOST_PROOF_BYTES, PROOF_SECONDS, ServerProof, Service, Session, peer_name
from weft._comm.secure import Tls, TlsError
from weft._comm.wire import Frames, frame
from weft.errors import DistNetworkError

_log = logging.getLogger(__name__)

MOST_STRANGERS = 64
"""Peers that may be proving the key at a time."""

_MOMENT = 0.1  # seconds that a stranger has before others may push it out, and for which a full table of files is left
_SILENCE = 1.0  # seconds between two lines of the log
_CHUNK = 1 << 14
_PYTORCH = b"\0\xce\xf7\x85\x3c"  # what the client of PyTorch's own TCPStore says first


class Channel(NamedTuple):
    """A connection whose peer has proved the key. `words` is what the peer has said with its proof."""

    sock: socket.socket
    session: Session
    tls: Tls | None = None
    words: str = ""


class _Stranger:
    """A connection whose peer has not."""

    __slots__ = ("came", "deadline", "frames", "proof", "sock", "tls")

    def __init__(self, sock: socket.socket, proof: ServerProof, tls: Tls | None, seconds: float) -> None:
        self.sock = sock
        self.proof = proof
        self.tls = tls
        self.frames = Frames(MOST_PROOF_BYTES)
        self.came = monotonic()
        self.deadline = Deadline(seconds)


class Greeter:
    """Hears who comes to listening sockets, which it owns, until it is closed.

    `welcome(channel)`, which must not wait, gets those who prove the key for `service`, and owns their sockets, which
    do not block. With a `context`, peers over TCP must speak TLS. Others are sent away, and the log says why.
    """

    def __init__(
        self, listeners: Sequence[socket.socket], service: Service, key: bytes, welcome: Callable[[Channel], None], *,
        context: ssl.SSLContext | None = None, seconds: float = PROOF_SECONDS,
    ) -> None:  # fmt: skip
        self._listeners = listeners
        self._service = service
        self._key = key
        self._welcome = welcome
        self._context = context
        self._seconds = seconds
        self._notices = _Notices(f"{service.kind} on port {listeners[0].getsockname()[1]}")
        self._strangers: dict[socket.socket, _Stranger] = {}  # oldest first
        self._closed_until: float | None = None  # when listeners are looked at again
        self._selector = selectors.DefaultSelector()
        self._end, self._ended = socket.socketpair()
        self._selector.register(self._ended, selectors.EVENT_READ)
        for listener in listeners:
            listener.setblocking(False)
            self._selector.register(listener, selectors.EVENT_READ)
        self._thread = threading.Thread(target=self._run, name=f"weft greeter, {service.kind}", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Listen no more; strangers are sent away."""
        self._end.close()
        if threading.current_thread() is not self._thread:
            self._thread.join()

    def _run(self) -> None:
        try:
            while self._turn():
                pass
        finally:
            for sock in (*self._strangers, *self._listeners, self._ended):
                sock.close()
            self._selector.close()

    def _turn(self) -> bool:
        """Hear who has spoken; false at the end."""
        for event, _ in self._selector.select(self._patience()):
            sock = event.fileobj
            assert isinstance(sock, socket.socket), "nothing else is registered"
            if sock is self._ended:
                return False
            if sock in self._strangers:
                self._hear(self._strangers[sock])
            elif event.data is None and sock.fileno() >= 0 and self._closed_until is None:
                self._accept(sock)
        for stranger in list(self._strangers.values()):
            if not stranger.deadline.expired:
                break
            self._send_away(stranger, f"it did not prove the job's key within {self._seconds:g} s")
        if self._closed_until is not None and (monotonic() >= self._closed_until or not self._is_full()):
            self._closed_until = None
            for listener in self._listeners:
                self._selector.register(listener, selectors.EVENT_READ)
        return True

    def _patience(self) -> float | None:
        oldest = next(iter(self._strangers.values()), None)
        times = [] if oldest is None else [oldest.deadline.left() or 0.0]
        if self._closed_until is not None:
            times.append(max(0.0, self._closed_until - monotonic()))
        return min(times, default=None)

    def _is_full(self) -> bool:
        return len(self._strangers) >= MOST_STRANGERS

    # --- coming -------------------------------------------------------------------------------------------------

    def _accept(self, listener: socket.socket) -> None:
        if self._is_full():
            oldest = next(iter(self._strangers.values()))
            if monotonic() < oldest.came + _MOMENT:
                self._pause(oldest.came + _MOMENT)
                return
            self._send_away(oldest, "it took long to prove the job's key, and others want to come in")
        try:
            sock, _ = listener.accept()
        except (BlockingIOError, ConnectionError):  # it has gone
            return
        except OSError as error:  # too many open files: room is made at the cost of who has proved nothing
            self._notices.say(f"a connection was not taken: {error}")
            if self._strangers:
                self._send_away(next(iter(self._strangers.values())), "there are too many open files")
            self._pause(monotonic() + _MOMENT)
            return
        self._greet(sock)

    def _pause(self, until: float) -> None:
        """Leave who comes in the system's queue."""
        self._closed_until = until
        for listener in self._listeners:
            self._selector.unregister(listener)

    def _greet(self, sock: socket.socket) -> None:
        sock.setblocking(False)
        over_tcp = sock.family != socket.AF_UNIX
        if over_tcp:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            sockets.attend(sock)
        tls = Tls(self._context, server=True) if over_tcp and self._context is not None else None
        stranger = _Stranger(sock, ServerProof(self._key, self._service), tls, self._seconds)
        self._strangers[sock] = stranger
        self._selector.register(sock, selectors.EVENT_READ, stranger)
        if not over_tcp and not sockets.is_same_user(sock):
            self._send_away(stranger, "it is another user's")
        elif tls is None:
            self._say(stranger, stranger.proof.greeting)

    # --- hearing ------------------------------------------------------------------------------------------------

    def _hear(self, stranger: _Stranger) -> None:
        try:
            piece = stranger.sock.recv(_CHUNK)
        except BlockingIOError:
            return
        except OSError:
            piece = b""
        if not piece:
            self._send_away(stranger)
        elif piece.startswith(_PYTORCH):
            self._send_away(stranger, (
                f"it does not speak Weft's protocol (its first bytes are {_PYTORCH.hex(' ')}), but that of PyTorch's "
                "own torch.distributed; change that import to weft.distributed"
            ))  # fmt: skip
        else:
            try:
                self._understand(stranger, piece)
            except DistNetworkError as error:
                if isinstance(error, TlsError):
                    self._transmit(stranger, error.alert)
                self._send_away(stranger, str(error))

    def _understand(self, stranger: _Stranger, piece: bytes) -> None:
        tls = stranger.tls
        if tls is not None and not tls.ready:
            self._transmit(stranger, tls.shake_hands(piece))
            if not tls.ready:
                return
            self._say(stranger, stranger.proof.greeting)
            piece = b""
        stranger.frames.feed(piece if tls is None else tls.open(piece))
        payload = stranger.frames.next()
        if payload is not None:
            self._judge(stranger, payload)

    def _judge(self, stranger: _Stranger, payload: bytes) -> None:
        answer = stranger.proof.answer(payload)
        if answer.session is None:
            self._say(stranger, answer.payload)
            self._send_away(stranger, answer.refusal)
            return
        channel = Channel(stranger.sock, answer.session, stranger.tls, answer.words)
        self._forget(stranger)
        try:
            stranger.sock.sendall(_sealed(stranger, answer.payload))
            self._welcome(channel)
        except Exception as error:
            stranger.sock.close()
            if not isinstance(error, OSError):  # else it has gone
                _log.exception("%s: a peer was not served", self._service.kind)

    def _say(self, stranger: _Stranger, payload: bytes) -> None:
        self._transmit(stranger, _sealed(stranger, payload))

    def _transmit(self, stranger: _Stranger, data: bytes) -> None:
        try:
            stranger.sock.sendall(data)
        except OSError:
            self._send_away(stranger)

    # --- going --------------------------------------------------------------------------------------------------

    def _send_away(self, stranger: _Stranger, why: str = "") -> None:
        if stranger.sock not in self._strangers:
            return
        if why:
            self._notices.say(f"{peer_name(stranger.sock)} was sent away: {why}")
        self._forget(stranger)
        stranger.sock.close()

    def _forget(self, stranger: _Stranger) -> None:
        self._selector.unregister(stranger.sock)
        del self._strangers[stranger.sock]


def _sealed(stranger: _Stranger, payload: bytes) -> bytes:
    data = frame(payload)
    return data if stranger.tls is None else stranger.tls.seal(data)


class _Notices:
    """Lines of the log about one service, at a bounded rate."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._next = 0.0
        self._left_out = 0

    def say(self, text: str) -> None:
        """Log a line, unless one was logged a moment ago; the next one says how many were left out."""
        now = monotonic()
        if now < self._next:
            self._left_out += 1
            return
        before = f" ({self._left_out} like it were not logged)" if self._left_out else ""
        _log.warning("%s: %s%s", self._name, text, before)
        self._next, self._left_out = now + _SILENCE, 0
