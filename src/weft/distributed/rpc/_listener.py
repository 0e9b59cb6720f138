"""Where a worker listens, and connections to others: Unix sockets on one host, TCP between hosts."""

from __future__ import annotations

import os
import secrets
import selectors
import socket
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, ClassVar, NamedTuple
from weakref import WeakValueDictionary

from weft._comm import greeting, sockets
from weft._comm.deadline import Deadline
from weft._comm.key import PROOF_SECONDS, job_key
from weft._comm.secure import Certificates, Secure
from weft.distributed._world import host_identity
from weft.errors import DistNetworkError, PeerGoneError

LOOPBACK = "127.0.0.1"
NOBODY = ""
"""Who only looks whether a worker lives."""
OBSERVER = "observer"
"""Who asks for figures and is no worker."""

_MOST_GREETINGS = 64  # callers that may be proving themselves at a time; more push out the one that takes longest
_PUSH_SECONDS = 0.1  # in which one that was pushed out should be gone
_BACKLOG = 1024

Endpoint = Mapping[str, Any]
"""Where a worker listens, as others are told."""


class ConnectOptions(NamedTuple):
    """How a worker can be reached: by what address, whether by Unix sockets too, and with which certificates.

    Or it is a thread of the process that all others are in, too.
    """

    address: str = LOOPBACK
    unix: bool = True
    certificates: Certificates | None = None
    in_memory: bool = False


class Listener:
    """Listens until it is closed.

    `greeted(socket, cipher, who)` gets each connection whose peer has proved the job's key. TCP is for the loopback
    interface unless the address is another one, by which others reach this host.
    """

    def __init__(self, options: ConnectOptions, greeted: Callable[[socket.socket, Secure | None, str], None]) -> None:
        token = secrets.token_hex(16)
        self._key = job_key()
        self._greeted = greeted
        self._context = None if options.certificates is None else options.certificates.context(server=True)
        self._places = threading.Semaphore(_MOST_GREETINGS)
        self._unproved: dict[socket.socket, object] = {}  # in the order of coming
        self._tcp = sockets.listen(options.address, 0)
        self._unix = socket.socket(socket.AF_UNIX)
        self._unix.bind(f"\0weft-{token}")  # a name in the kernel, no file
        self._unix.listen(_BACKLOG)
        self.endpoint: Endpoint = {
            "token": token, "host": _host(), "unix": options.unix, "address": options.address,
            "port": self._tcp.getsockname()[1], "tls": options.certificates is not None,
        }  # fmt: skip
        self._end, self._ended = os.pipe()
        self._thread = threading.Thread(target=self._listen, name="weft rpc, listening", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Listen no more."""
        os.close(self._ended)
        self._thread.join()
        os.close(self._end)
        self._push_out(list(self._unproved))

    def _listen(self) -> None:
        with selectors.DefaultSelector() as ready, self._unix, self._tcp:
            for source in (self._unix, self._tcp, self._end):
                ready.register(source, selectors.EVENT_READ)
            while True:
                for event, _ in ready.select():
                    source = event.fileobj
                    if not isinstance(source, socket.socket):
                        return
                    with suppress(OSError):  # who has called may be gone again
                        self._admit(source.accept()[0])

    def _admit(self, sock: socket.socket) -> None:
        seconds = 0.0
        while not self._places.acquire(timeout=seconds):
            self._push_out(list(self._unproved)[:1])
            seconds = _PUSH_SECONDS
        self._unproved[sock] = None
        threading.Thread(target=self._greet, args=(sock,), name="weft rpc, greeting", daemon=True).start()

    def _push_out(self, callers: list[socket.socket]) -> None:
        for sock in callers:
            if self._unproved.pop(sock, self) is None:  # else it has proved the key just now, or has gone
                with suppress(OSError):
                    sock.shutdown(socket.SHUT_RDWR)

    def _greet(self, sock: socket.socket) -> None:
        try:
            cipher, words = self._heard(sock, Deadline(PROOF_SECONDS))
        finally:
            pushed_out = self._unproved.pop(sock, self) is self
            self._places.release()
        if words is None or pushed_out:
            sock.close()
        else:
            self._greeted(sock, cipher, words.partition(" ")[2])

    def _heard(self, sock: socket.socket, deadline: Deadline) -> tuple[Secure | None, str | None]:
        cipher, token = None, self.endpoint["token"]
        if sock.family != socket.AF_UNIX:
            sockets.attend(sock)
            if self._context is not None:
                try:
                    cipher = Secure(sock, self._context, deadline, server=True)
                except (DistNetworkError, OSError):
                    return None, None
        return cipher, greeting.received(
            cipher or sock, self._key, lambda said: said.partition(" ")[0] == token, deadline
        )


class MemoryListener:
    """The same for a worker that is a thread, as all others are: a connection is a pair of sockets.

    Nobody has to prove a key, since nobody else can make such a connection.
    """

    _all: ClassVar[WeakValueDictionary[str, MemoryListener]] = WeakValueDictionary()

    def __init__(self, greeted: Callable[[socket.socket, Secure | None, str], None]) -> None:
        token = secrets.token_hex(16)
        self._greeted = greeted
        self.endpoint: Endpoint = {"token": token, "in_memory": True}
        self._all[token] = self

    def close(self) -> None:
        """Listen no more."""
        self._all.pop(self.endpoint["token"], None)

    @classmethod
    def connect(cls, token: str, who: str) -> socket.socket:
        """A connection to a worker."""
        listener = cls._all.get(token)
        if listener is None:
            raise PeerGoneError("its thread has left")
        near, far = socket.socketpair()
        listener._greeted(far, None, who)
        return near


def connect(
    endpoint: Endpoint, options: ConnectOptions, who: str, deadline: Deadline
) -> tuple[socket.socket, Secure | None]:
    """A connection to a worker's endpoint, to which this one says that it is `who`, and its cipher.

    `DistNetworkError` where nobody is there, or somebody else; `JobKeyError` where that has another key.
    """
    if "in_memory" in endpoint:
        return MemoryListener.connect(endpoint["token"], who), None
    sock = _connected(endpoint, options, deadline)
    try:
        cipher = None
        if sock.family != socket.AF_UNIX and options.certificates is not None:
            cipher = Secure(sock, options.certificates.context(server=False), deadline, server=False)
        if greeting.call_on(cipher or sock, job_key(), f"{endpoint['token']} {who}", deadline):
            return sock, cipher
        raise PeerGoneError("another worker listens there now")
    except BaseException:
        sock.close()
        raise


def _connected(endpoint: Endpoint, options: ConnectOptions, deadline: Deadline) -> socket.socket:
    here = endpoint["host"] == _host()
    if here and endpoint["unix"] and options.unix:
        sock = socket.socket(socket.AF_UNIX)
        try:
            sock.connect(f"\0weft-{endpoint['token']}")
        except OSError as error:
            sock.close()
            raise PeerGoneError(f"its process has ended ({error.strerror})") from error
        return sock
    if endpoint["address"] == LOOPBACK and not here:
        raise DistNetworkError(
            "it is on another host and listens to its own one only; set WEFT_RPC_HOST there to an address by which "
            "others reach it"
        )
    if endpoint["tls"] != (options.certificates is not None):
        with_tls, without = ("it", "this worker") if endpoint["tls"] else ("this worker", "it")
        raise DistNetworkError(
            f"{with_tls} has TLS certificates and {without} has none; give them to all, or to nobody"
        )
    sock = sockets.connect(endpoint["address"], endpoint["port"], deadline, retry=False)
    sockets.attend(sock)
    return sock


def _host() -> str:
    """What workers have in common that reach each other by Unix sockets and can share memory."""
    return f"{host_identity()} {os.readlink('/proc/self/ns/net')}"
