"""Connections between the ranks of a group, each to each, as streams of bytes.

Ranks listen at a free port, tell the store where, and connect to those before them. Both sides prove the job's key,
and then that they mean the same group, before anything else is read.
"""

from __future__ import annotations

import hmac
import json
import secrets
import select
import socket
import struct
from collections.abc import Sequence
from queue import Empty, SimpleQueue

import numpy as np

from weft._comm import sockets, tags
from weft._comm.board import Exchange
from weft._comm.deadline import Deadline
from weft._comm.greeter import Channel, Greeter
from weft._comm.key import job_key
from weft._comm.proof import Service, Session, call
from weft._comm.stream import NO_STREAM, NoStream
from weft.errors import DistBackendError, DistNetworkError, DistStoreError, PeerGoneError

Array = np.ndarray

_LENGTH = struct.Struct("<I")
_MOST = 256 << 10  # bytes of a frame
_LOST = "its connection was closed"


class _Link:
    """Both ends of the streams to and from one peer, over a socket that does not block.

    What travels are frames of at most `_MOST` bytes, each with its length in front and its tag behind.
    """

    def __init__(self, sock: socket.socket, session: Session) -> None:
        sock.setblocking(False)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        self.sock = sock
        self.lost: str | None = None
        self.full = False  # whether the system had no room at the last write
        self._session = session
        self._unsent: list[memoryview] = []  # of the frame that is under way
        self._raw = np.empty(2 * (_LENGTH.size + _MOST + tags.SIZE), np.uint8)
        self._start = self._stop = 0  # what of it has come and was not looked at
        self._payload = self._raw[:0]  # what was looked at and not handed out

    def write(self, data: Array) -> int:
        """Put in a frame of what fits; returns the number of bytes, 0 until the frame is whole.

        Then it is to be called with the same data again.
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
            self.full = False  # what the peer has sent before is still to be read, and then its end shows
            return 0
        while self._unsent and sent >= len(self._unsent[0]):
            sent -= len(self._unsent.pop(0))
        if self._unsent:
            self._unsent[0] = self._unsent[0][sent:]
        self.full = bool(self._unsent)
        return 0 if self._unsent else len(payload)

    def ready(self) -> int:
        """How many bytes are there, at least."""
        if not len(self._payload):
            self._look_for_frame()
        return len(self._payload)

    def take(self, data: Array) -> int:
        """Take out what is there and wanted; returns the number of bytes."""
        count = min(self.ready(), len(data))
        data[:count] = self._payload[:count]
        self._payload = self._payload[count:]
        return count

    def _look_for_frame(self) -> None:
        """Have the payload of the next frame at hand, if all of it has come."""
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
        """Whether there is a frame to look at; one that is not the peer's ends the connection."""
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
        self._payload = self._raw[self._start + _LENGTH.size : self._start + end]
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


class Links:
    """The connections of one rank."""

    def __init__(self, connections: dict[int, tuple[socket.socket, Session]]) -> None:
        self._links = {peer: _Link(sock, session) for peer, (sock, session) in connections.items()}

    def outgoing(self, peer: int) -> _Link | NoStream:
        """The stream to a peer."""
        return self._links.get(peer, NO_STREAM)

    def incoming(self, peer: int) -> _Link | NoStream:
        """The stream from a peer."""
        return self._links.get(peer, NO_STREAM)

    def ended(self) -> dict[int, str]:
        """The peers whose connections were closed."""
        return {peer: link.lost for peer, link in self._links.items() if link.lost is not None}

    def pause(self, seconds: float) -> None:
        """Wait until something may be read, or written where there was no room."""
        poll = select.poll()  # of this call alone: threads may not share one
        for link in self._links.values():
            if link.lost is None:
                poll.register(link.sock, select.POLLIN | (select.POLLOUT if link.full else 0))
        poll.poll(1000 * seconds)

    def close(self) -> None:
        """Close all connections."""
        for link in self._links.values():
            link.lost = link.lost or "this rank has closed it"
            link.sock.close()


# --- connecting -------------------------------------------------------------------------------------------------


def connect(
    store: Exchange, rank: int, size: int, deadline: Deadline, *, address: str, key: str = "links",
    ranks: Sequence[int] | None = None,
) -> Links:  # fmt: skip
    """The connections of this rank of a group, once all are there. Others reach this host at `address`.

    Ranks find each other by `key`. `DistBackendError` names those that did not come by the deadline.
    """
    secret, token = job_key(), secrets.token_hex(16)
    connections: dict[int, tuple[socket.socket, Session]] = {}
    names = ranks or range(size)
    listener = sockets.listen("", 0)
    callers: SimpleQueue[Channel] = SimpleQueue()
    place = {"addresses": ["127.0.0.1", address], "port": listener.getsockname()[1], "token": token}
    greeter = Greeter([listener], Service("links", token), secret, callers.put)
    try:
        store.set(f"{key}/{rank}", json.dumps(place).encode())
        for peer in range(rank):
            connections[peer] = _called(json.loads(store.get(f"{key}/{peer}")), rank, secret, deadline)
        while len(connections) < size - 1:
            channel = callers.get(timeout=deadline.left())
            channel.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            connections[int(channel.words)] = channel.sock, channel.session
    except BaseException as error:
        for sock, _ in connections.values():
            sock.close()
        if isinstance(error, (Empty, TimeoutError, DistNetworkError, DistStoreError)):
            missing = ", ".join(str(names[peer]) for peer in range(size) if peer != rank and peer not in connections)
            why = str(error) or "timed out"
            raise DistBackendError(f"joining the group: rank {names[rank]} has no connection to {missing}: {why}"
                                   ) from error  # fmt: skip
        raise
    finally:
        greeter.close()
    return Links(connections)


def _called(place: dict, rank: int, secret: bytes, deadline: Deadline) -> tuple[socket.socket, Session]:
    """A connection to the rank that listens there. Its host is tried first, then this one."""
    tried = []
    for address in place["addresses"]:
        try:
            sock = sockets.connect(address, place["port"], deadline, retry=False)
        except DistNetworkError as error:
            tried.append(str(error))
            continue
        try:
            return sock, call(sock, secret, Service("links", place["token"]), deadline, str(rank))
        except PeerGoneError:
            tried.append(f"{address} belongs to another group")
        except (DistNetworkError, OSError) as error:
            tried.append(f"{address}: {error}")
        sock.close()
    raise DistNetworkError("; ".join(tried))
