"""Listening and connecting: IPv4 and IPv6, with or without a name service, until a deadline."""

from __future__ import annotations

import errno
import ipaddress
import os
import socket
import struct
import threading
import time
from operator import index
from typing import Any, SupportsIndex

from weft._comm.deadline import Deadline
from weft.errors import DistNetworkError, PeerGoneError

BACKLOG = 1024
_LAST_PORT = 65535
_FIRST_PAUSE = 0.01
_LONGEST_PAUSE = 0.5
_KEEPALIVE = {"TCP_KEEPIDLE": 10, "TCP_KEEPINTVL": 5, "TCP_KEEPCNT": 4, "TCP_USER_TIMEOUT": 30_000}
"""Seconds of silence before probes, between them, and their number; and milliseconds without acknowledgement."""

_CREDENTIALS = struct.Struct("iII")  # process, user and group

Address = tuple[socket.AddressFamily, tuple[Any, ...]]  # host and port, and more in IPv6


def listen(host: str, port: int) -> socket.socket:
    """A listening socket: on the loopback interface if `host` names it, else on all. Port 0 picks a free port.

    On all, since the name by which others reach this host may resolve to another address here, as in a container or
    behind a service. `DistNetworkError` if the port is taken or may not be used.
    """
    _check_port(port, 0)
    try:
        if address := loopback_address(host):
            family = socket.AF_INET6 if ":" in address else socket.AF_INET
            return socket.create_server((address, port), family=family, backlog=BACKLOG)
        return _listen_everywhere(port)
    except OSError as error:
        advice = (
            "choose another port (0 picks a free one), or end the process that has it; one process alone may be rank 0 "
            "of a job"
        )
        raise DistNetworkError(
            f"The server socket has failed to listen on any local network address. port: {port}, host: {host!r}: "
            f"{error.strerror}" + (f"; {advice}" if error.errno == errno.EADDRINUSE else "")
        ) from error


def _check_port(port: int, first: int) -> None:
    if not first <= port <= _LAST_PORT:
        raise DistNetworkError(f"port must lie between {first} and {_LAST_PORT}, got {port}")


def is_port(port: object) -> bool:
    """Whether this is the number of a port, or 0, which stands for a free one."""
    return isinstance(port, SupportsIndex) and 0 <= index(port) <= _LAST_PORT


def loopback_address(host: str) -> str | None:
    """The loopback address that `host` stands for, or None if it is another address or name."""
    if host == "localhost":
        return "127.0.0.1"
    try:
        return host if ipaddress.ip_address(host).is_loopback else None
    except ValueError:
        return None


def _listen_everywhere(port: int) -> socket.socket:
    try:
        return socket.create_server(("", port), family=socket.AF_INET6, dualstack_ipv6=True, backlog=BACKLOG)
    except (OSError, ValueError) as error:
        if isinstance(error, OSError) and error.errno in {errno.EADDRINUSE, errno.EACCES}:
            raise
        return socket.create_server(("", port), backlog=BACKLOG)  # a host without IPv6


def connect(host: str, port: int, deadline: Deadline, *, retry: bool = True) -> socket.socket:
    """A TCP connection. All addresses of the host are tried until the deadline, as the server may start later.

    Without `retry`, each address is tried once. `PeerGoneError` if the last attempts were all refused, else
    `DistNetworkError`; both say what was tried.
    """
    _check_port(port, 1)
    if not host:
        raise DistNetworkError("the host to connect to is empty; give its name or address")
    pause = _FIRST_PAUSE
    tried: dict[str, str] = {}
    while True:
        refusals: list[bool] = []
        for address in _addresses(host, port, deadline, tried):
            try:
                return _connect_to(address, deadline)
            except OSError as error:
                tried[address_text(*address[1][:2])] = error.strerror or "no answer"
                refusals.append(isinstance(error, ConnectionRefusedError))
        left = deadline.left()
        if not retry or (left is not None and left <= 0):
            # Refused by every address: the host is there and nobody listens, as after the end of a process. Silence may
            # be the network's.
            kind = PeerGoneError if refusals and all(refusals) else DistNetworkError
            raise kind(_unreachable(host, port, deadline, tried))
        time.sleep(pause if left is None else min(pause, left))
        pause = min(2 * pause, _LONGEST_PAUSE)


def _connect_to(address: Address, deadline: Deadline) -> socket.socket:
    family, endpoint = address
    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        left = deadline.left()
        sock.settimeout(None if left is None else max(left, 1e-3))
        sock.connect(endpoint)
        if sock.getsockname() == sock.getpeername():  # TCP may connect a free port of this host to itself
            raise ConnectionRefusedError(errno.ECONNREFUSED, "Connection refused")
        # Requests are short and answered at once; Nagle's algorithm would hold them back for more.
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    except BaseException:
        sock.close()
        raise
    return sock


def set_keepalive(sock: socket.socket) -> None:
    """Let a connection fail within half a minute after its peer vanishes, or stops acknowledging data."""
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in _KEEPALIVE.items():
        if hasattr(socket, name):  # not every system has all of them
            sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)


def is_same_user(sock: socket.socket) -> bool:
    """Whether the process at the other end of a Unix socket, or the one that made it listen, belongs to this user."""
    _, user, _ = _CREDENTIALS.unpack(sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size))
    return user == os.geteuid()


def _addresses(host: str, port: int, deadline: Deadline, tried: dict[str, str]) -> list[Address]:
    """The addresses of a host. A name is looked up in a thread, since the system's resolver takes no deadline."""
    try:
        return _resolve(host, port, socket.AI_NUMERICHOST)
    except (OSError, OverflowError, ValueError):
        pass
    addresses: list[Address] = []

    def look_up() -> None:
        try:
            addresses.extend(_resolve(host, port, 0))
        except (OSError, OverflowError, ValueError) as error:
            tried[f"name {host!r}"] = getattr(error, "strerror", None) or str(error)

    tried[f"name {host!r}"] = "the name service does not answer"
    thread = threading.Thread(target=look_up, name=f"look up {host}", daemon=True)
    thread.start()
    thread.join(deadline.left())
    if addresses:
        tried.pop(f"name {host!r}", None)
    # Also where no name service knows it.
    elif host == "localhost":
        return [(socket.AF_INET, ("127.0.0.1", port))]
    return addresses


def _resolve(host: str, port: int, flags: int) -> list[Address]:
    entries = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=flags)
    return [(socket.AddressFamily(entry[0]), entry[4]) for entry in entries]


def address_text(host: str, port: int) -> str:
    """A host and a port, for messages."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _unreachable(host: str, port: int, deadline: Deadline, tried: dict[str, str]) -> str:
    attempts = ", ".join(f"{what}: {why}" for what, why in tried.items())
    late = f"timed out after {1000 * (deadline.seconds or 0):.0f}ms while trying" if deadline.expired else "failed"
    return (
        f"The client socket has {late} to connect to ({host}, {port}). Tried {attempts}; is the address right, is its "
        "process running, and does the network let this host reach it?"
    )
