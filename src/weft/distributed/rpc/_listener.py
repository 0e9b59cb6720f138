"""Listeners of workers, and connections to other workers: by Unix sockets on one host, by TCP between hosts."""

from __future__ import annotations

import logging
import os
import secrets
import socket
from collections.abc import Callable, Mapping
from functools import cache
from typing import ClassVar, NamedTuple, TypeAlias
from weakref import WeakValueDictionary

from weft._base.types import Json
from weft._comm.deadline import Deadline
from weft._comm.transport import sockets
from weft._comm.transport.acceptor import Acceptor, Channel
from weft._comm.transport.authentication import Service, authenticate, trusted_session_pair
from weft._comm.transport.key import job_key
from weft._comm.transport.tls import Certificates, TlsClient
from weft.distributed._world import host_identity
from weft.errors import DistNetworkError, JobKeyError, PeerGoneError

_log = logging.getLogger(__name__)

LOOPBACK = "127.0.0.1"
LIVENESS_CHECK = ""
"""The identity of a caller that only checks whether a worker is alive."""
OBSERVER = "observer"
"""The identity of a caller that asks for the status and is not a worker."""

Endpoint: TypeAlias = Mapping[str, Json]
"""The addresses on which a worker listens, as published in the store."""


class ConnectOptions(NamedTuple):
    """How a worker can be reached: its address, whether also by Unix sockets, and its certificates.

    `in_memory` means that all workers are threads of one process.
    """

    address: str = LOOPBACK
    unix: bool = True
    certificates: Certificates | None = None
    in_memory: bool = False


class Listener:
    """Accepts connections until it is closed.

    `on_accept(channel)`, which must not block, is called with each connection whose peer has proved that it knows the
    job's key. TCP listens on the loopback interface only, unless the address is one that other hosts can reach.
    """

    def __init__(self, options: ConnectOptions, on_accept: Callable[[Channel], None]) -> None:
        if sockets.loopback_address(options.address) is None and options.certificates is None:
            _warn_of_plain_text()
        # The token is part of what both ends prove: a port may be taken over by another worker, or another job, after
        # this one has ended.
        key, token = job_key(), secrets.token_hex(16)
        context = None if options.certificates is None else options.certificates.context(server=True)
        tcp = sockets.listen(options.address, 0)
        self.endpoint: Endpoint = {
            "token": token,
            "host": _host(),
            "unix": options.unix,
            "address": options.address,
            "port": tcp.getsockname()[1],
            "tls": options.certificates is not None,
        }
        self.sockets = [tcp, _unix_listener(token)] if options.unix else [tcp]
        self._acceptor = Acceptor(self.sockets, _service(token), key, on_accept, context=context)

    def close(self) -> None:
        """Stop listening."""
        self._acceptor.close()


@cache
def _warn_of_plain_text() -> None:
    _log.warning(
        "remote calls between hosts are not encrypted, so whoever is on the way can read them; give certificates where "
        "the network is not trusted (docs/rpc.md, TLS)"
    )


def _unix_listener(token: str) -> socket.socket:
    sock = socket.socket(socket.AF_UNIX)
    # In the abstract namespace there is no file that a killed worker would leave behind.
    sock.bind(f"\0weft-{token}")
    sock.listen(sockets.BACKLOG)
    return sock


def _service(token: str) -> Service:
    return Service("rpc", token)


class MemoryListener:
    """Accepts connections if all workers are threads of one process: a connection is a pair of sockets.

    The key need not be proved, since no other process can open such a connection.
    """

    _all: ClassVar[WeakValueDictionary[str, MemoryListener]] = WeakValueDictionary()

    def __init__(self, on_accept: Callable[[Channel], None]) -> None:
        token = secrets.token_hex(16)
        self._on_accept = on_accept
        self.endpoint: Endpoint = {"token": token, "in_memory": True}
        self._all[token] = self

    def close(self) -> None:
        """Stop listening."""
        self._all.pop(self.endpoint["token"], None)

    @classmethod
    def connect(cls, token: str, identity: str) -> Channel:
        """A channel to a worker."""
        listener = cls._all.get(token)
        if listener is None:
            raise PeerGoneError("its thread has left")
        (client, server), (client_session, server_session) = socket.socketpair(), trusted_session_pair()
        listener._on_accept(Channel(server, server_session, identity=identity))
        return Channel(client, client_session)


def connect(endpoint: Endpoint, options: ConnectOptions, identity: str, deadline: Deadline) -> Channel:
    """A channel to a worker's endpoint, with this worker's `identity`.

    `DistNetworkError` if nothing, or another worker, listens there; `JobKeyError` if it has another key.
    """
    if "in_memory" in endpoint:
        return MemoryListener.connect(endpoint["token"], identity)
    sock = _open_socket(endpoint, options, deadline)
    try:
        tls_client = None
        if sock.family != socket.AF_UNIX and options.certificates is not None:
            tls_client = TlsClient(sock, options.certificates.context(server=False), deadline)
        session = authenticate(tls_client or sock, job_key(), _service(endpoint["token"]), deadline, identity)
        return Channel(sock, session, None if tls_client is None else tls_client.tls)
    except BaseException:
        sock.close()
        raise


def _open_socket(endpoint: Endpoint, options: ConnectOptions, deadline: Deadline) -> socket.socket:
    here = endpoint["host"] == _host()
    if here and endpoint["unix"] and options.unix:
        sock = socket.socket(socket.AF_UNIX)
        try:
            sock.connect(f"\0weft-{endpoint['token']}")
        except OSError as error:
            sock.close()
            raise PeerGoneError(f"its process has ended ({error.strerror})") from error
        # Names in the abstract namespace have no permissions: whoever binds one first gets the connections.
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
    # A worker listens before it is in the store, so a refused connection means that it has ended; trying again would
    # only delay the error.
    sock = sockets.connect(endpoint["address"], endpoint["port"], deadline, retry=False)
    sockets.set_keepalive(sock)
    return sock


def _host() -> str:
    """A text that is equal for workers that can reach each other by Unix sockets and share memory."""
    # Containers on one host may share its identity without sharing abstract sockets, which belong to a network
    # namespace.
    return f"{host_identity()} {os.readlink('/proc/self/ns/net')}"
