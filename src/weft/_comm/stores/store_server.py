"""The server of `TCPStore`: one thread that owns the table and answers all connections."""

from __future__ import annotations

import logging
import selectors
import socket
import threading
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import ClassVar

from weft._comm.deadline import Deadline
from weft._comm.stores.table import Table
from weft._comm.transport.acceptor import Acceptor, Channel
from weft._comm.transport.authentication import PROOF_SECONDS, peer_name, store_service
from weft._comm.transport.tags import Tags
from weft._comm.transport.wire import MOST_BYTES, Frames, frame, pack, unpack
from weft.errors import DistNetworkError, WeftError

_log = logging.getLogger(__name__)
_CHUNK = 1 << 16
_MOST_LOST = 1024  # sessions that are kept although their connections have ended

JOINED = b"\xffjoined"
"""The server's own key: the number of clients that have joined. No user's key is equal to it, since it is not UTF-8."""


Lacking = Callable[[Iterable[bytes]], list[bytes]]


class _Client:
    """One connection."""

    __slots__ = ("answer", "frames", "lacking", "once", "out", "session", "sock", "tags", "waits_for")

    def __init__(self, channel: Channel) -> None:
        self.sock = channel.sock
        self.frames = Frames(MOST_BYTES, channel.session.incoming)
        self.tags: Tags = channel.session.outgoing
        self.out = bytearray()
        self.waits_for: list[bytes] = []  # the keys of a wait that is not answered yet
        self.lacking: Lacking = list  # the function that returns those of the keys still missing
        self.answer: Callable[[], bytes] | None = None
        self.session: _Session | None = None  # the session, if its requests may be repeated
        self.once = False  # whether the present request must not be executed twice


@dataclass
class _Session:
    """A client's latest request that must not be executed twice, even if connections are lost."""

    name: bytes
    client: _Client
    number: bytes = b""
    answer: bytes | None = None


class StoreServer:
    """Serves a store on a listening socket, which it owns, until `stop`.

    Nothing is answered before a client has proved the key. A malformed request closes the client's own connection only.
    """

    def __init__(self, listener: socket.socket, key: bytes, proof_seconds: float = PROOF_SECONDS) -> None:
        self.port: int = listener.getsockname()[1]
        self._table = Table()
        self._table.values[JOINED] = b"0"
        self._waiting: dict[bytes, dict[_Client, None]] = {}  # in order of arrival
        self._sessions: dict[bytes, _Session] = {}
        self._lost: deque[_Session] = deque()  # sessions without a connection; it may be reopened
        self._accepted: deque[Channel] = deque()  # authenticated connections that are not registered yet
        self._joined_changed = threading.Condition()
        self._selector = selectors.DefaultSelector()
        self._wake_sender, self._wake_receiver = socket.socketpair()
        self._selector.register(self._wake_receiver, selectors.EVENT_READ)
        self._thread = threading.Thread(target=self._run, name=f"weft store {self.port}", daemon=True)
        self._thread.start()
        self._acceptor = Acceptor([listener], store_service(self.port), key, self._accept, seconds=proof_seconds)

    def stop(self) -> None:
        """Close all connections and the port."""
        self._acceptor.close()
        self._wake_sender.close()
        if threading.current_thread() is not self._thread:
            self._thread.join()

    def await_clients(self, count: int, deadline: Deadline) -> int:
        """Wait until `count` clients have joined, or until the deadline; returns their number."""
        with self._joined_changed:
            self._joined_changed.wait_for(lambda: self._joined() >= count, deadline.left())
            return self._joined()

    def _joined(self) -> int:
        return int(self._table.values[JOINED])

    # --- connections --------------------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            while self._run_once():
                pass
        finally:
            for entry in list(self._selector.get_map().values()):
                (self._wake_receiver if entry.data is None else entry.data.sock).close()
            for channel in self._accepted:
                channel.sock.close()
            self._selector.close()

    def _run_once(self) -> bool:
        """Handle the next events; False when the server must stop."""
        for entry, _ in self._selector.select():
            if entry.data is not None:
                self._serve(entry.data)
            elif not self._wake_receiver.recv(_CHUNK):
                return False
        while self._accepted:
            client = _Client(self._accepted.popleft())
            self._selector.register(client.sock, selectors.EVENT_READ, client)
        return True

    def _accept(self, channel: Channel) -> None:
        # The acceptor's thread: only the server's own one may use the selector.
        self._accepted.append(channel)
        self._wake_sender.send(b"+")

    def _serve(self, client: _Client) -> None:
        if client.sock.fileno() < 0:
            return  # it was dropped earlier in this turn
        try:
            if client.out:
                self._flush(client)
                return
            piece = client.sock.recv(_CHUNK)
        except BlockingIOError:
            return
        except OSError:
            piece = b""
        if not piece:
            self._drop(client)
            return
        client.frames.feed(piece)
        self._handle(client)

    def _handle(self, client: _Client) -> None:
        """Answer the complete frames. If a client reads too slowly, its frames wait until it has read."""
        try:
            # A client that does not read gets no more answers, which would pile up here.
            while not client.out and client.sock.fileno() >= 0 and (payload := client.frames.next()) is not None:
                self._request(client, payload)
        except DistNetworkError as error:
            self._drop(client, str(error))

    def _send(self, client: _Client, payload: bytes) -> None:
        if len(payload) > MOST_BYTES:
            payload = pack(b"network", b"the answer of %d bytes is too long; ask for fewer keys" % len(payload))
        client.out += frame(payload, client.tags)
        self._flush(client)

    def _flush(self, client: _Client) -> None:
        try:
            sent = client.sock.send(client.out)
        except BlockingIOError:
            sent = 0
        except OSError:
            self._drop(client)
            return
        behind = sent == len(client.out)
        del client.out[:sent]
        wanted = selectors.EVENT_READ if behind else selectors.EVENT_WRITE
        if self._selector.get_key(client.sock).events != wanted:
            self._selector.modify(client.sock, wanted, client)
            # Frames that came meanwhile are in its buffer already, so no event announces them.
            if behind:
                self._handle(client)

    def _drop(self, client: _Client, why: str = "") -> None:
        if client.sock.fileno() < 0:
            return
        if why:
            _log.warning("store on port %d: %s was sent away: %s", self.port, peer_name(client.sock), why)
        self._forget(client)
        self._selector.unregister(client.sock)
        client.sock.close()
        if client.session is not None:
            self._lost.append(client.session)
        # A session outlives its connection, as its request may be repeated; how many do is bounded, since anybody who
        # has the key may make more.
        while len(self._lost) > _MOST_LOST:
            oldest = self._lost.popleft()
            if oldest.client.sock.fileno() < 0:
                self._sessions.pop(oldest.name, None)

    # --- requests -----------------------------------------------------------------------------------------------

    def _request(self, client: _Client, payload: bytes) -> None:
        operation, *fields = unpack(payload) or [b""]
        try:
            answer = self._answer(client, operation, fields)
        except WeftError as error:
            if isinstance(error, DistNetworkError):
                raise
            answer = pack(b"value", str(error).encode())
        except (TypeError, ValueError) as error:  # too many fields, or not a number
            raise DistNetworkError(f"its request {operation!r} is malformed: {error}") from error
        if answer is not None:
            self._reply(client, answer)

    def _answer(self, client: _Client, operation: bytes, fields: list[bytes]) -> bytes | None:
        """The answer to a request; None if it is sent later."""
        if operation == b"once":
            name, number, operation, *fields = fields
            session = self._session(client, name)
            # It was carried out and only its answer was lost: an `add` must not add twice.
            if session.number == number and session.answer is not None:
                return session.answer
            session.number, session.answer, client.once = number, None, True
        handler = self._HANDLERS.get(operation)
        if handler is None or (client.answer is not None and operation != b"cancel"):
            raise DistNetworkError(f"it sent the unknown request {operation[:20]!r}")
        return handler(self, client, *fields)

    def _session(self, client: _Client, name: bytes) -> _Session:
        """The session with this name, which continues over this connection."""
        session = self._sessions.setdefault(name, _Session(name, client))
        if session.client is not client:
            before, session.client = session.client, client
            before.session = None
            # The client has given that connection up; a wait that is left on it would take values from queues for
            # nobody.
            self._drop(before)
        client.session = session
        return session

    def _reply(self, client: _Client, answer: bytes) -> None:
        if client.once and client.session is not None:
            client.session.answer, client.once = answer, False
        self._send(client, answer)

    def _set(self, client: _Client, *pairs: bytes) -> bytes:
        for key, value in zip(pairs[::2], pairs[1::2], strict=True):
            self._table.values[key] = value
            self._notify_waiters(key)
        return _OK

    def _add(self, client: _Client, key: bytes, amount: bytes) -> bytes:
        total = self._table.add(key, int(amount))
        self._notify_waiters(key)
        return pack(b"ok", b"%d" % total)

    def _join(self, client: _Client) -> bytes:
        with self._joined_changed:
            answer = self._add(client, JOINED, b"1")
            self._joined_changed.notify_all()
        return answer

    def _append(self, client: _Client, key: bytes, value: bytes) -> bytes:
        self._table.append(key, value)
        self._notify_waiters(key)
        return _OK

    def _compare_set(self, client: _Client, key: bytes, expected: bytes, desired: bytes) -> bytes:
        value = self._table.compare_set(key, expected, desired)
        self._notify_waiters(key)
        return pack(b"ok", value)

    def _delete(self, client: _Client, key: bytes) -> bytes:
        return pack(b"ok", b"%d" % self._table.delete(key))

    def _push(self, client: _Client, key: bytes, value: bytes) -> bytes:
        self._table.push(key, value)
        self._notify_waiters(key)
        return _OK

    def _pop(self, client: _Client, key: bytes) -> bytes | None:
        return self._answer_when_set(client, self._table.empty, (key,), lambda: pack(b"ok", self._table.pop(key)))

    def _pop_now(self, client: _Client, key: bytes) -> bytes:
        return pack(b"empty") if self._table.empty([key]) else pack(b"ok", self._table.pop(key))

    def _length(self, client: _Client, key: bytes) -> bytes:
        return pack(b"ok", b"%d" % len(self._table.queues.get(key, ())))

    def _check(self, client: _Client, *keys: bytes) -> bytes:
        return pack(b"ok", b"%d" % (not self._table.missing(keys)))

    def _count(self, client: _Client) -> bytes:
        return pack(b"ok", b"%d" % len(self._table.values))

    def _list(self, client: _Client) -> bytes:
        return pack(b"ok", *(key for key in self._table.values if key != JOINED))

    def _under(self, client: _Client, prefix: bytes) -> bytes:
        return pack(b"ok", *(field for entry in self._table.under(prefix) if entry[0] != JOINED for field in entry))

    def _get(self, client: _Client, *keys: bytes) -> bytes | None:
        values = self._table.values
        return self._answer_when_set(
            client, self._table.unset, keys, lambda: pack(b"ok", *map(values.__getitem__, keys))
        )

    def _wait(self, client: _Client, *keys: bytes) -> bytes | None:
        return self._answer_when_set(client, self._table.missing, keys, lambda: _OK)

    def _cancel(self, client: _Client) -> bytes | None:
        """End a wait; no answer if it was answered meanwhile."""
        if client.answer is None:
            return None
        missing = client.lacking(client.waits_for)
        self._forget(client)
        return pack(b"missing", *missing)

    def _answer_when_set(
        self, client: _Client, lacking: Lacking, keys: tuple[bytes, ...], answer: Callable[[], bytes]
    ) -> bytes | None:
        missing = lacking(keys)
        if not missing:
            return answer()
        client.waits_for, client.lacking, client.answer = list(keys), lacking, answer
        for key in missing:
            self._waiting.setdefault(key, {})[client] = None
        return None

    def _notify_waiters(self, key: bytes) -> None:
        """Answer the waits that this key completes, in the order in which they began."""
        for client in list(self._waiting.get(key, ())):
            # Asked again for each: an earlier waiter may have taken the value from the queue.
            if client.answer is not None and not client.lacking(client.waits_for):
                answer = client.answer
                self._forget(client)
                self._reply(client, answer())

    def _forget(self, client: _Client) -> None:
        for key in client.waits_for:
            peers = self._waiting.get(key, {})
            peers.pop(client, None)
            if not peers:
                self._waiting.pop(key, None)
        client.waits_for, client.answer = [], None

    _HANDLERS: ClassVar[dict[bytes, Callable[..., bytes | None]]] = {
        b"set": _set,
        b"add": _add,
        b"append": _append,
        b"compare_set": _compare_set,
        b"delete": _delete,
        b"check": _check,
        b"count": _count,
        b"list": _list,
        b"get": _get,
        b"wait": _wait,
        b"cancel": _cancel,
        b"join": _join,
        b"push": _push,
        b"pop": _pop,
        b"pop now": _pop_now,
        b"length": _length,
        b"under": _under,
    }


_OK = pack(b"ok")
