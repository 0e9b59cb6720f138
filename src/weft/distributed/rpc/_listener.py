"""Where a worker listens, and connections to others: Unix sockets on one host, TCP between hosts."""

from __future__ import annotations

import logging
import os
import secrets
import socket
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, ClassVar, NamedTuple
from weakref import WeakValueDictionary

from weft._comm import sockets
from weft._comm.deadline import Deadline
from weft._comm.greeter import Channel, Greeter
from weft._comm.key import job_key
from weft._comm.proof import Service, call, session_pair
from weft._comm.secure import Certificates, Secure
from weft.distributed._world import host_identity
from weft.errors import DistNetworkError, JobKeyError, PeerGoneError

_log = logging.getLogger(__name__)

LOOPBACK = "127.0.0.1"
NOBODY = ""
"""Who only looks whether a worker lives."""
OBSERVER = "observer"
"""Who asks for figures and is no worker."""

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

    `welcome(channel)`, which must not wait, gets each connection whose peer has proved the job's key; its words are who
    the peer is. TCP is for the loopback interface unless the address is another one, by which others reach this host.
    """

    def __init__(self, options: ConnectOptions, welcome: Callable[[Channel], None]) -> None:
        if sockets.loopback_address(options.address) is None and options.certificates is None:
            _warn_of_plain_text()
        key, token = job_key(), secrets.token_hex(16)
        context = None if options.certificates is None else options.certificates.context(server=True)
        tcp = sockets.listen(options.address, 0)
        self.endpoint: Endpoint = {
            "token": token, "host": _host(), "unix": options.unix, "address": options.address,
            "port": tcp.getsockname()[1], "tls": options.certificates is not None,
        }  # fmt: skip
        self.sockets = [tcp, _listening(token)] if options.unix else [tcp]
        self._greeter = Greeter(self.sockets, _service(token), key, welcome, context=context)

    def close(self) -> None:
        """Listen no more."""
        self._greeter.close()


@cache
def _warn_of_plain_text() -> None:
    _log.warning(
        "remote calls between hosts are not encrypted, so whoever is on the way can read them; give certificates where "
        "the network is not trusted (docs/rpc.md, TLS)"
    )


def _listening(token: str) -> socket.socket:
    sock = socket.socket(socket.AF_UNIX)
    sock.bind(f"\0weft-{token}")  # a name in the kernel, no file
    sock.listen(sockets.BACKLOG)
    return sock


def _service(token: str) -> Service:
    return Service("rpc", token)


class MemoryListener:
    """The same for a worker that is a thread, as all others are: a connection is a pair of sockets.

    Nobody has to prove a key, since nobody else can make such a connection.
    """

    _all: ClassVar[WeakValueDictionary[str, MemoryListener]] = WeakValueDictionary()

    def __init__(self, welcome: Callable[[Channel], None]) -> None:
        token = secrets.token_hex(16)
        self._welcome = welcome
        self.endpoint: Endpoint = {"token": token, "in_memory": True}
        self._all[token] = self

    def close(self) -> None:
        """Listen no more."""
        self._all.pop(self.endpoint["token"], None)

    @classmethod
    def connect(cls, token: str, who: str) -> Channel:
        """A channel to a worker."""
        listener = cls._all.get(token)
        if listener is None:
            raise PeerGoneError("its thread has left")
        (near, far), (here, there) = socket.socketpair(), session_pair()
        listener._welcome(Channel(far, there, words=who))
        return Channel(near, here)


def connect(endpoint: Endpoint, options: ConnectOptions, who: str, deadline: Deadline) -> Channel:
    """A channel to a worker's endpoint, to which this one says that it is `who`.

    `DistNetworkError` where nobody is there, or somebody else; `JobKeyError` where that has another key.
    """
    if "in_memory" in endpoint:
        return MemoryListener.connect(endpoint["token"], who)
    sock = _connected(endpoint, options, deadline)
    try:
        secure = None
        if sock.family != socket.AF_UNIX and options.certificates is not None:
            secure = Secure(sock, options.certificates.context(server=False), deadline)
        session = call(secure or sock, job_key(), _service(endpoint["token"]), deadline, who)
        return Channel(sock, session, None if secure is None else secure.tls)
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
        if not sockets.is_same_user(sock):
            sock.close()
            raise JobKeyError("another user of this host listens in its place")
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
