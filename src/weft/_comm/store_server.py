"""The server of `TCPStore`: one thread that holds the table and answers all connections."""

from __future__ import annotations

import logging
import selectors
import socket
import threading
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from weft._comm.deadline import Deadline
from weft._comm.greeter import Channel, Greeter
from weft._comm.proof import PROOF_SECONDS, peer_name, store_service
from weft._comm.table import Table
from weft._comm.tags import Tags
from weft._comm.wire import MOST_BYTES, Frames, frame, pack, unpack
from weft.errors import DistNetworkError, WeftError

_log = logging.getLogger(__name__)
_CHUNK = 1 << 16
_MOST_LOST = 1024  # sessions whose connections have ended

JOINED = b"\xffjoined"
"""The server's own key: how many clients have come. No text of UTF-8 is encoded as this."""


Lacking = Callable[[Iterable[bytes]], list[bytes]]


class _Peer:
    """One connection."""

    __slots__ = ("answer", "frames", "lacking", "once", "out", "session", "sock", "tags", "waits_for")

    def __init__(self, channel: Channel) -> None:
        self.sock = channel.sock
        self.frames = Frames(MOST_BYTES, channel.session.incoming)
        self.tags: Tags = channel.session.outgoing
        self.out = bytearray()
        self.waits_for: list[bytes] = []  # the keys of a wait that is not answered yet
        self.lacking: Lacking = list  # those of the keys that it still waits for
        self.answer: Callable[[], bytes] | None = None
        self.session: _Session | None = None  # where its requests may come again
        self.once = False  # whether the request that is being answered may


@dataclass
class _Session:
    """A client's latest request that must not be carried out twice, however often connections are lost."""

    name: bytes
    peer: _Peer
    number: bytes = b""
    answer: bytes | None = None


class StoreServer:
    """Serves a store on a listening socket, which it owns, until `stop`.

    A peer is told nothing before it has proved the key. What it sends wrong costs it its own connection only.
    """

    def __init__(self, listener: socket.socket, key: bytes, proof_seconds: float = PROOF_SECONDS) -> None:
        self.port: int = listener.getsockname()[1]
        self._table = Table()
        self._table.values[JOINED] = b"0"
        self._waiting: dict[bytes, dict[_Peer, None]] = {}  # in the order in which they came
        self._sessions: dict[bytes, _Session] = {}
        self._lost: deque[_Session] = deque()  # whose connections have ended; they may come back
        self._new: deque[Channel] = deque()  # who has come and is not served yet
        self._came = threading.Condition()
        self._selector = selectors.DefaultSelector()
        self._wake, self._alarm = socket.socketpair()
        self._selector.register(self._alarm, selectors.EVENT_READ)
        self._thread = threading.Thread(target=self._run, name=f"weft store {self.port}", daemon=True)
        self._thread.start()
        self._greeter = Greeter([listener], store_service(self.port), key, self._welcome, seconds=proof_seconds)

    def stop(self) -> None:
        """Close all connections and the port."""
        self._greeter.close()
        self._wake.close()
        if threading.current_thread() is not self._thread:
            self._thread.join()

    def await_clients(self, count: int, deadline: Deadline) -> int:
        """Wait until so many clients have joined, or the deadline; returns how many have."""
        with self._came:
            self._came.wait_for(lambda: self._joined() >= count, deadline.left())
            return self._joined()

    def _joined(self) -> int:
        return int(self._table.values[JOINED])

    # --- connections --------------------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            while self._turn():
                pass
        finally:
            for entry in list(self._selector.get_map().values()):
                entry.fileobj.close()  # pyright: ignore[reportAttributeAccessIssue]
            for channel in self._new:
                channel.sock.close()
            self._selector.close()

    def _turn(self) -> bool:
        """Answer what has come; false when the server is to stop."""
        for entry, _ in self._selector.select():
            if entry.data is not None:
                self._serve(entry.data)
            elif not self._alarm.recv(_CHUNK):
                return False
        while self._new:
            peer = _Peer(self._new.popleft())
            self._selector.register(peer.sock, selectors.EVENT_READ, peer)
        return True

    def _welcome(self, channel: Channel) -> None:
        self._new.append(channel)
        self._wake.send(b"+")

    def _serve(self, peer: _Peer) -> None:
        if peer.sock.fileno() < 0:
            return  # dropped earlier in this turn
        try:
            if peer.out:
                self._flush(peer)
                return
            piece = peer.sock.recv(_CHUNK)
        except BlockingIOError:
            return
        except OSError:
            piece = b""
        if not piece:
            self._drop(peer)
            return
        peer.frames.feed(piece)
        self._handle(peer)

    def _handle(self, peer: _Peer) -> None:
        """Answer the frames that are there; one that reads too slowly has its next ones read later."""
        try:
            while not peer.out and peer.sock.fileno() >= 0 and (payload := peer.frames.next()) is not None:
                self._request(peer, payload)
        except DistNetworkError as error:
            self._drop(peer, str(error))

    def _send(self, peer: _Peer, payload: bytes) -> None:
        if len(payload) > MOST_BYTES:
            payload = pack(b"network", b"the answer of %d bytes is too long; ask for fewer keys" % len(payload))
        peer.out += frame(payload, peer.tags)
        self._flush(peer)

    def _flush(self, peer: _Peer) -> None:
        try:
            sent = peer.sock.send(peer.out)
        except BlockingIOError:
            sent = 0
        except OSError:
            self._drop(peer)
            return
        behind = sent == len(peer.out)
        del peer.out[:sent]
        wanted = selectors.EVENT_READ if behind else selectors.EVENT_WRITE
        if self._selector.get_key(peer.sock).events != wanted:
            self._selector.modify(peer.sock, wanted, peer)
            if behind:
                self._handle(peer)

    def _drop(self, peer: _Peer, why: str = "") -> None:
        if peer.sock.fileno() < 0:
            return
        if why:
            _log.warning("store on port %d: %s was sent away: %s", self.port, peer_name(peer.sock), why)
        self._forget(peer)
        self._selector.unregister(peer.sock)
        peer.sock.close()
        if peer.session is not None:
            self._lost.append(peer.session)
        while len(self._lost) > _MOST_LOST:
            oldest = self._lost.popleft()
            if oldest.peer.sock.fileno() < 0:
                self._sessions.pop(oldest.name, None)

    # --- requests -----------------------------------------------------------------------------------------------

    def _request(self, peer: _Peer, payload: bytes) -> None:
        operation, *fields = unpack(payload) or [b""]
        try:
            answer = self._answer(peer, operation, fields)
        except WeftError as error:
            if isinstance(error, DistNetworkError):
                raise
            answer = pack(b"value", str(error).encode())
        except (TypeError, ValueError) as error:  # too many fields, or no number where one must be
            raise DistNetworkError(f"its request {operation!r} is malformed: {error}") from error
        if answer is not None:
            self._reply(peer, answer)

    def _answer(self, peer: _Peer, operation: bytes, fields: list[bytes]) -> bytes | None:
        """What to answer; None where that is known later only."""
        if operation == b"once":
            name, number, operation, *fields = fields
            session = self._session(peer, name)
            if session.number == number and session.answer is not None:
                return session.answer
            session.number, session.answer, peer.once = number, None, True
        handler = _HANDLERS.get(operation)
        if handler is None or (peer.answer is not None and operation != b"cancel"):
            raise DistNetworkError(f"it sent the unknown request {operation[:20]!r}")
        return handler(self, peer, *fields)

    def _session(self, peer: _Peer, name: bytes) -> _Session:
        """The session of that name, which goes on over this connection."""
        session = self._sessions.setdefault(name, _Session(name, peer))
        if session.peer is not peer:
            before, session.peer = session.peer, peer
            before.session = None
            self._drop(before)
        peer.session = session
        return session

    def _reply(self, peer: _Peer, answer: bytes) -> None:
        if peer.once and peer.session is not None:
            peer.session.answer, peer.once = answer, False
        self._send(peer, answer)

    def _set(self, peer: _Peer, *pairs: bytes) -> bytes:
        for key, value in zip(pairs[::2], pairs[1::2], strict=True):
            self._table.values[key] = value
            self._arrived(key)
        return _OK

    def _add(self, peer: _Peer, key: bytes, amount: bytes) -> bytes:
        total = self._table.add(key, int(amount))
        self._arrived(key)
        return pack(b"ok", b"%d" % total)

    def _join(self, peer: _Peer) -> bytes:
        with self._came:
            answer = self._add(peer, JOINED, b"1")
            self._came.notify_all()
        return answer

    def _append(self, peer: _Peer, key: bytes, value: bytes) -> bytes:
        self._table.append(key, value)
        self._arrived(key)
        return _OK

    def _compare_set(self, peer: _Peer, key: bytes, expected: bytes, desired: bytes) -> bytes:
        found = self._table.compare_set(key, expected, desired)
        self._arrived(key)
        return pack(b"ok", found)

    def _delete(self, peer: _Peer, key: bytes) -> bytes:
        return pack(b"ok", b"%d" % self._table.delete(key))

    def _push(self, peer: _Peer, key: bytes, value: bytes) -> bytes:
        self._table.push(key, value)
        self._arrived(key)
        return _OK

    def _pop(self, peer: _Peer, key: bytes) -> bytes | None:
        return self._when_there(peer, self._table.empty, (key,), lambda: pack(b"ok", self._table.pop(key)))

    def _pop_now(self, peer: _Peer, key: bytes) -> bytes:
        return pack(b"empty") if self._table.empty([key]) else pack(b"ok", self._table.pop(key))

    def _length(self, peer: _Peer, key: bytes) -> bytes:
        return pack(b"ok", b"%d" % len(self._table.queues.get(key, ())))

    def _check(self, peer: _Peer, *keys: bytes) -> bytes:
        return pack(b"ok", b"%d" % (not self._table.missing(keys)))

    def _count(self, peer: _Peer) -> bytes:
        return pack(b"ok", b"%d" % len(self._table.values))

    def _list(self, peer: _Peer) -> bytes:
        return pack(b"ok", *(key for key in self._table.values if key != JOINED))

    def _under(self, peer: _Peer, prefix: bytes) -> bytes:
        return pack(b"ok", *(field for entry in self._table.under(prefix) if entry[0] != JOINED for field in entry))

    def _get(self, peer: _Peer, *keys: bytes) -> bytes | None:
        values = self._table.values
        return self._when_there(peer, self._table.unset, keys, lambda: pack(b"ok", *map(values.__getitem__, keys)))

    def _wait(self, peer: _Peer, *keys: bytes) -> bytes | None:
        return self._when_there(peer, self._table.missing, keys, lambda: _OK)

    def _cancel(self, peer: _Peer) -> bytes | None:
        """End a wait. One that was answered meanwhile gets no second answer."""
        if peer.answer is None:
            return None
        missing = peer.lacking(peer.waits_for)
        self._forget(peer)
        return pack(b"missing", *missing)

    def _when_there(
        self, peer: _Peer, lacking: Lacking, keys: tuple[bytes, ...], answer: Callable[[], bytes]
    ) -> bytes | None:
        missing = lacking(keys)
        if not missing:
            return answer()
        peer.waits_for, peer.lacking, peer.answer = list(keys), lacking, answer
        for key in missing:
            self._waiting.setdefault(key, {})[peer] = None
        return None

    def _arrived(self, key: bytes) -> None:
        """Answer those whose last key this was, the first who came first."""
        for peer in list(self._waiting.get(key, ())):
            if peer.answer is not None and not peer.lacking(peer.waits_for):
                answer = peer.answer
                self._forget(peer)
                self._reply(peer, answer())

    def _forget(self, peer: _Peer) -> None:
        for key in peer.waits_for:
            peers = self._waiting.get(key, {})
            peers.pop(peer, None)
            if not peers:
                self._waiting.pop(key, None)
        peer.waits_for, peer.answer = [], None


_OK = pack(b"ok")
_HANDLERS: dict[bytes, Callable[..., bytes | None]] = {
    b"set": StoreServer._set, b"add": StoreServer._add, b"append": StoreServer._append,
    b"compare_set": StoreServer._compare_set, b"delete": StoreServer._delete, b"check": StoreServer._check,
    b"count": StoreServer._count, b"list": StoreServer._list, b"get": StoreServer._get, b"wait": StoreServer._wait,
    b"cancel": StoreServer._cancel, b"join": StoreServer._join, b"push": StoreServer._push, b"pop": StoreServer._pop,
    b"pop now": StoreServer._pop_now, b"length": StoreServer._length, b"under": StoreServer._under,
}  # fmt: skip
