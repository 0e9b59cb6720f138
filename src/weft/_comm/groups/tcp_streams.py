"""TCP connections between all ranks of a group, as streams of bytes.

Ranks listen at a free port, publish it in the store, and connect to the ranks before them. Both sides prove that they
know the job's key and belong to the same group, before anything else is read.
"""

from __future__ import annotations

import hmac
import json
import secrets
import select
import socket
import struct
from collections.abc import Sequence
from contextlib import suppress
from queue import Empty, SimpleQueue
from typing import Any

import numpy as np

from weft._comm.deadline import Deadline
from weft._comm.groups.stream import NO_STREAM, BufferedSource, NoStream
from weft._comm.stores import keys
from weft._comm.stores.store import Store
from weft._comm.stores.tcp_store import host_of
from weft._comm.transport import sockets, tags
from weft._comm.transport.acceptor import Acceptor, Channel
from weft._comm.transport.addresses import ADVICE, addresses_of, location
from weft._comm.transport.authentication import Service, Session, authenticate
from weft._comm.transport.key import job_key
from weft.errors import DistBackendError, DistError, DistNetworkError, DistStoreError, PeerGoneError

Array = np.ndarray

_LENGTH = struct.Struct("<I")
_MOST = 256 << 10  # bytes of a frame
_LOOK_SECONDS = 1.0  # between looks whether another rank has failed to connect
_LOST = "its connection was closed"


class _TcpStream(BufferedSource):
    """Both ends of the streams to and from one peer, over a socket that does not block.

    Bytes travel in frames of at most `_MOST` bytes, each with its length in front and its tag behind.
    """

    def __init__(self, sock: socket.socket, session: Session) -> None:
        sock.setblocking(False)
        sockets.set_keepalive(sock)
        self.sock = sock
        self.lost: str | None = None
        self.full = False  # whether the system's buffer was full at the last write
        self._session = session
        self._unsent: list[memoryview] = []  # the rest of the frame that is being sent
        self._raw = np.empty(2 * (_LENGTH.size + _MOST + tags.SIZE), np.uint8)
        self._start = self._stop = 0  # the received bytes that are not parsed yet
        self._buffer = self._raw[:0]  # the rest of the latest frame

    def write(self, data: Array) -> int:
        """Send as much data as fits into one frame; returns the number of bytes.

        0 means that only a part of the frame was sent: call it again with the same data.
        """
        if self.lost is not None or not len(data):
            return 0
        payload = data[:_MOST].data
        if not self._unsent:
            head = _LENGTH.pack(len(payload))
            tag = self._session.outgoing.next((head, payload))
            self._unsent = [memoryview(head), payload, memoryview(tag)]
        try:
            sent = self.sock.sendmsg(self._unsent)
        except BlockingIOError:
            sent = 0
        except OSError:
            self.full = False  # bytes that the peer has sent before its end must still be read
            return 0
        while self._unsent and sent >= len(self._unsent[0]):
            sent -= len(self._unsent.pop(0))
        if self._unsent:
            self._unsent[0] = self._unsent[0][sent:]
        self.full = bool(self._unsent)
        return 0 if self._unsent else len(payload)

    def ready(self) -> int:
        """A lower bound of the number of bytes that can be taken."""
        if not len(self._buffer):
            self._look_for_frame()
        return len(self._buffer)

    def _look_for_frame(self) -> None:
        """Read the next frame into `_buffer`, if all of it has arrived."""
        while self.lost is None and not self._opened():
            left = self._stop - self._start
            if self._start:
                self._raw[:left] = self._raw[self._start : self._stop].copy()
            self._start, self._stop = 0, left
            count = self._receive(self._raw[left:])
            if not count:
                return
            self._stop += count

    def _opened(self) -> bool:
        """Whether a complete frame was parsed; a forged frame closes the connection."""
        raw = self._raw[self._start : self._stop].data
        if len(raw) < _LENGTH.size:
            return False
        (size,) = _LENGTH.unpack_from(raw)
        end = _LENGTH.size + size
        if size <= _MOST and len(raw) < end + tags.SIZE:
            return False
        tag = raw[end : end + tags.SIZE]
        head, payload = raw[: _LENGTH.size], raw[_LENGTH.size : end]
        if size > _MOST or not hmac.compare_digest(tag, self._session.incoming.next((head, payload))):
            self.lost = "it sent a frame that is not its own"
            return False
        self._buffer = self._raw[self._start + _LENGTH.size : self._start + end]
        self._start += end + tags.SIZE
        return True

    def _receive(self, data: Array) -> int:
        try:
            count = self.sock.recv_into(data.data)
        except BlockingIOError:
            return 0
        except OSError as error:
            self.lost = f"{_LOST}: {error.strerror}"
            return 0
        if not count:
            self.lost = _LOST
        return count


class TcpStreams:
    """The connections of one rank."""

    def __init__(self, connections: dict[int, tuple[socket.socket, Session]]) -> None:
        self._streams = {peer: _TcpStream(sock, session) for peer, (sock, session) in connections.items()}

    def outgoing(self, peer: int) -> _TcpStream | NoStream:
        """The stream to a peer."""
        return self._streams.get(peer, NO_STREAM)

    def incoming(self, peer: int) -> _TcpStream | NoStream:
        """The stream from a peer."""
        return self._streams.get(peer, NO_STREAM)

    def ended(self) -> dict[int, str]:
        """The peers whose connections were closed."""
        return {peer: link.lost for peer, link in self._streams.items() if link.lost is not None}

    def pause(self, seconds: float) -> None:
        """Wait until bytes can be read, or written to a stream that was full."""
        poll = select.poll()  # a new one, since threads must not share it
        for link in self._streams.values():
            if link.lost is None:
                poll.register(link.sock, select.POLLIN | (select.POLLOUT if link.full else 0))
        poll.poll(1000 * seconds)

    def close(self) -> None:
        """Close all connections."""
        for link in self._streams.values():
            link.lost = link.lost or "this rank has closed it"
            link.sock.close()


# --- connecting -------------------------------------------------------------------------------------------------


def connect(
    store: Store,
    rank: int,
    size: int,
    deadline: Deadline,
    *,
    ranks: Sequence[int] | None = None,
) -> TcpStreams:
    """This rank's streams to the other ranks of a group, once all are connected.

    `DistBackendError` names those that have not connected by the deadline.
    """
    secret, token = job_key(), secrets.token_hex(16)
    connections: dict[int, tuple[socket.socket, Session]] = {}
    names = ranks or range(size)
    listener = sockets.listen("", 0)
    callers: SimpleQueue[Channel] = SimpleQueue()
    host = host_of(store)
    acceptor = Acceptor([listener], Service("links", token), secret, callers.put)
    try:
        place = {"location": location(host), "port": listener.getsockname()[1], "token": token}
        store.set(keys.link(rank), json.dumps(place).encode())
        # Each rank calls those before it and is called by those after it, so every pair has one connection and none
        # waits in a circle.
        for peer in range(rank):
            place = json.loads(store.get(keys.link(peer)))
            connections[peer] = _called(place, addresses_of(place["location"], host), rank, secret, deadline)
        while len(connections) < size - 1:
            channel = _next(callers, store, keys.FAILED_LINK, deadline)
            channel.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            connections[int(channel.identity)] = channel.sock, channel.session
    except BaseException as error:
        for sock, _ in connections.values():
            sock.close()
        if isinstance(error, (Empty, TimeoutError, DistNetworkError, DistStoreError)):
            missing = ", ".join(str(names[peer]) for peer in range(size) if peer != rank and peer not in connections)
            why = str(error) or "timed out"
            text = f"joining the group: rank {names[rank]} has no connection to {missing}: {why}; {ADVICE}"
            # The others wait for connections that will not come; they find the reason under this key.
            with suppress(DistError):
                store.set(keys.FAILED_LINK, text.encode())
            raise DistBackendError(text) from error
        raise
    finally:
        acceptor.close()
    return TcpStreams(connections)


def _next(callers: SimpleQueue[Channel], store: Store, failure: str, deadline: Deadline) -> Channel:
    """The next peer that calls; `DistBackendError` once a rank has told in the store that it has failed.

    `Empty` at the deadline.
    """
    while True:
        left = deadline.left()
        try:
            return callers.get(timeout=_LOOK_SECONDS if left is None else min(left, _LOOK_SECONDS))
        except Empty:
            if store.check([failure]):
                raise DistBackendError(store.get(failure).decode()) from None
            if deadline.expired:
                raise


def _called(
    place: dict[str, Any], addresses: Sequence[str], rank: int, secret: bytes, deadline: Deadline
) -> tuple[socket.socket, Session]:
    """A connection to the rank that listens at `place`, by the first of these addresses that leads there."""
    tried: list[str] = []
    for address in addresses:
        try:
            sock = sockets.connect(address, place["port"], deadline, retry=False)
        except DistNetworkError as error:
            tried.append(str(error))
            continue
        try:
            return sock, authenticate(sock, secret, Service("links", place["token"]), deadline, str(rank))
        except PeerGoneError:
            tried.append(f"{address} belongs to another group")
        except (DistNetworkError, OSError) as error:
            tried.append(f"{address}: {error}")
        sock.close()
    raise DistNetworkError("; ".join(tried))
