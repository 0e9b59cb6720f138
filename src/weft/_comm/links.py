"""Connections between the ranks of a group, each to each, as streams of bytes.

Ranks listen at a free port, tell the store where, and connect to those before them. Both sides prove the job's key,
and then that they mean the same group, before anything else is read.
"""

from __future__ import annotations

import json
import secrets
import select
import socket
from collections.abc import Iterator, Sequence

import numpy as np

from weft._comm import greeting, sockets
from weft._comm.board import Exchange
from weft._comm.deadline import Deadline
from weft._comm.key import PROOF_SECONDS, job_key
from weft._comm.stream import NO_STREAM, NoStream
from weft.errors import DistBackendError, DistNetworkError, DistStoreError

Array = np.ndarray

_MOST = 1 << 20  # bytes written at a time
_READ = 256 << 10  # bytes read at a time where nobody has asked for them yet
_FEW = 4096  # bytes read before of which more are read: a whole head may be asked for
_LOST = "its connection was closed"


class _Link:
    """Both ends of the streams to and from one peer, over a socket that does not block."""

    def __init__(self, sock: socket.socket) -> None:
        sock.setblocking(False)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        self.sock = sock
        self.lost: str | None = None
        self.full = False  # whether the system had no room at the last write
        self._store = np.empty(_READ, np.uint8)
        self._read = self._taken = 0  # bytes of `_store` that were filled, and handed out

    def write(self, data: Array) -> int:
        """Put in what fits; returns the number of bytes."""
        if self.lost is not None or not len(data):
            return 0
        try:
            sent = self.sock.send(data[:_MOST].data)
        except BlockingIOError:
            sent = 0
        except OSError:
            self.full = False  # what the peer has sent before is still to be read, and then its end shows
            return 0
        self.full = sent < len(data)
        return sent

    def ready(self) -> int:
        """How many bytes are there, at least."""
        left = self._read - self._taken
        if left < _FEW:
            self._store[:left] = self._store[self._taken : self._read].copy()
            self._taken, self._read = 0, left + self._receive(self._store[left:])
        return self._read - self._taken

    def take(self, data: Array) -> int:
        """Take out what is there and wanted; returns the number of bytes."""
        if self._taken == self._read and len(data) >= _READ:
            return self._receive(data)
        count = min(self.ready(), len(data))
        data[:count] = self._store[self._taken : self._taken + count]
        self._taken += count
        return count

    def _receive(self, data: Array) -> int:
        if self.lost is not None:
            return 0
        try:
            count = self.sock.recv_into(data.data)
        except BlockingIOError:
            return 0
        except OSError as error:
            self.lost = f"{_LOST}: {error.strerror}"
            return 0
        if not count and len(data):
            self.lost = _LOST
        return count


class Links:
    """The connections of one rank."""

    def __init__(self, connections: dict[int, socket.socket]) -> None:
        self._links = {peer: _Link(sock) for peer, sock in connections.items()}

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
    secret, token, found = job_key(), secrets.token_hex(16), {}
    names = ranks or range(size)
    try:
        with sockets.listen("", 0) as listener:
            place = {"addresses": ["127.0.0.1", address], "port": listener.getsockname()[1], "token": token}
            store.set(f"{key}/{rank}", json.dumps(place).encode())
            for peer in range(rank):
                found[peer] = _called(json.loads(store.get(f"{key}/{peer}")), rank, secret, deadline)
            for peer, sock in _callers(listener, size - 1 - rank, secret, token, deadline):
                found[peer] = sock
    except BaseException as error:
        for sock in found.values():
            sock.close()
        if isinstance(error, (TimeoutError, DistNetworkError, DistStoreError)):
            missing = ", ".join(str(names[peer]) for peer in range(size) if peer != rank and peer not in found)
            raise DistBackendError(f"joining the group: rank {names[rank]} has no connection to {missing}: {error}"
                                   ) from error  # fmt: skip
        raise
    return Links(found)


def _called(place: dict, rank: int, secret: bytes, deadline: Deadline) -> socket.socket:
    """A connection to the rank that listens there. Its host is tried first, then this one."""
    tried = []
    for address in place["addresses"]:
        try:
            sock = sockets.connect(address, place["port"], deadline, retry=False)
        except DistNetworkError as error:
            tried.append(str(error))
            continue
        try:
            if greeting.call_on(sock, secret, f"{place['token']} {rank}", deadline):
                return sock
            tried.append(f"{address} belongs to another group")
        except (DistNetworkError, OSError) as error:
            tried.append(f"{address}: {error}")
        sock.close()
    raise DistNetworkError("; ".join(tried))


def _callers(
    listener: socket.socket, expected: int, secret: bytes, token: str, deadline: Deadline
) -> Iterator[tuple[int, socket.socket]]:
    """The ranks that connect, as they come. Who does not prove the key, or means another group, is sent away."""
    while expected:
        left = deadline.left()
        listener.settimeout(None if left is None else max(left, 1e-3))
        sock, _ = listener.accept()
        patience = Deadline(PROOF_SECONDS if left is None else min(PROOF_SECONDS, left))
        words = greeting.received(sock, secret, lambda words: words.partition(" ")[0] == token, patience)
        if words is None:
            sock.close()
            continue
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        expected -= 1
        yield int(words.partition(" ")[2]), sock
