"""A small HTTP server for texts. With `http.server` it would be as long, and start in 39 ms instead of 2.

At most `MOST_CONNECTIONS` are open at a time, since the health port has no password: further ones wait in the system's
queue until one of these is done; after a tenth of a second, the oldest one is closed to make room. A client has
`SECONDS` for its whole request, however it spreads the bytes, and as long for reading the response.
"""

from __future__ import annotations

import os
import socket
import socketserver
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from operator import attrgetter
from pathlib import Path
from time import monotonic
from typing import TypeAlias

from weft._base.types import Arg
from weft._comm.deadline import Deadline
from weft._comm.transport.sockets import is_same_user

MOST_CONNECTIONS = 32
SECONDS = 5.0

_GRACE_SECONDS = 0.1  # before a connection may be closed to make room
_LONGEST_HEAD = 1 << 16
_MOST_LINES = 100
_CHUNK = 1 << 12


@dataclass(frozen=True)
class Response:
    """The response to a request: its text, status line and content type."""

    text: str
    status: str = "200 OK"
    kind: str = "text/plain; charset=utf-8"


_ONLY_GET = Response("only GET\n", "405 Method Not Allowed")


Answer: TypeAlias = Callable[[str, str], Response]
"""Answers the method and the path of a request."""


class _Handler(socketserver.StreamRequestHandler):
    def handle(self) -> None:
        try:
            request = self._request()
            if request is None:
                return
            method, path = request
            answer = _answer_of(self.server)("GET" if method == "HEAD" else method, path)
            body = answer.text.encode()
            head = f"HTTP/1.0 {answer.status}\r\nContent-Type: {answer.kind}\r\nContent-Length: {len(body)}\r\n\r\n"
            self.wfile.write(head.encode() + (b"" if method == "HEAD" else body))
        except OSError:
            pass  # the client is slow or gone, which affects nobody else

    def _request(self) -> tuple[str, str] | None:
        """Method and path of a request, once its head is read; None if it is not a request."""
        # One deadline for the whole head: a client that sends a byte now and then would otherwise keep its connection
        # for ever.
        deadline, head = Deadline(SECONDS), b""
        while not (b"\r\n\r\n" in head or b"\n\n" in head):
            self.connection.settimeout(max(deadline.left() or 0.0, 1e-3))
            piece = self.connection.recv(_CHUNK)
            head += piece
            if deadline.expired or len(head) > _LONGEST_HEAD or head.count(b"\n") > _MOST_LINES:
                return None
            if not piece:
                break
        self.connection.settimeout(SECONDS)
        method, _, rest = head.partition(b"\n")[0].decode("latin-1").partition(" ")
        return (method, rest.partition(" ")[0].partition("?")[0].strip()) if method else None


_answer_of: Callable[[socketserver.BaseServer], Answer] = attrgetter("answer")  # which `_Serving` gives it


class _Bounded(socketserver.ThreadingMixIn):
    """Answers each request in a thread of its own, of which there are not many at a time."""

    daemon_threads = True
    block_on_close = False

    def __init__(self, *args: Arg, **kwargs: Arg) -> None:
        self._open: dict[socket.socket, float] = {}  # connections, oldest first, and since when each is open
        self._freed = threading.Condition()
        super().__init__(*args, **kwargs)

    def process_request(self, request: Arg, client_address: Arg) -> None:
        with self._freed:
            while len(self._open) >= MOST_CONNECTIONS:
                oldest, since = next(iter(self._open.items()))
                if (grace := since + _GRACE_SECONDS - monotonic()) > 0:
                    self._freed.wait(grace)
                    continue
                with suppress(OSError):  # the client has closed it
                    oldest.shutdown(socket.SHUT_RDWR)  # its thread, which owns the socket, closes it
                self._open[oldest] = self._open.pop(oldest) + _GRACE_SECONDS  # the next one, if that thread is busy
                self._freed.wait(_GRACE_SECONDS)
            self._open[request] = monotonic()
        super().process_request(request, client_address)

    def shutdown_request(self, request: Arg) -> None:
        with self._freed:
            self._open.pop(request, None)
            self._freed.notify()
        super().shutdown_request(request)  # type: ignore[misc]


class _TcpServer(_Bounded, socketserver.TCPServer):
    allow_reuse_address = True
    request_queue_size = 128

    def __init__(self, address: tuple[str, int], handler: type[_Handler]) -> None:
        everywhere = not address[0] and socket.has_dualstack_ipv6()
        if everywhere or ":" in address[0]:
            self.address_family = socket.AF_INET6
        self._everywhere = everywhere
        super().__init__(address, handler)

    def server_bind(self) -> None:
        if self._everywhere:  # one socket for IPv4 and IPv6
            self.socket.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        super().server_bind()


class _UnixServer(_Bounded, socketserver.UnixStreamServer):
    request_queue_size = 128


class _OwnUsersServer(_UnixServer):
    def verify_request(self, request: Arg, client_address: Arg) -> bool:
        return is_same_user(request)


class _Serving:
    """Answers requests in its own threads until it is closed."""

    def __init__(self, server: socketserver.BaseServer, answer: Answer) -> None:
        server.answer = answer  # type: ignore[attr-defined]
        self._server = server
        self._thread = threading.Thread(
            target=server.serve_forever, kwargs={"poll_interval": 0.1}, name=type(self).__name__, daemon=True
        )
        self._thread.start()

    def close(self) -> None:
        """Stop listening."""
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


class TextServer(_Serving):
    """Answers every GET at a port with the response that `page(path)` returns; the path has no query."""

    def __init__(self, host: str, port: int, page: Callable[[str], Response]) -> None:
        server = _TcpServer((host, port), _Handler)
        self.port: int = server.server_address[1]
        super().__init__(server, lambda method, path: page(path) if method == "GET" else _ONLY_GET)


class PrivateServer(_Serving):
    """The same at a name in the abstract namespace of Unix sockets, for processes of this user alone (Linux)."""

    def __init__(self, name: str, page: Callable[[str], Response]) -> None:
        server = _OwnUsersServer(f"\0{name}", _Handler)
        super().__init__(server, lambda method, path: page(path) if method == "GET" else _ONLY_GET)


class SocketServer(_Serving):
    """Answers requests at a Unix socket with the response `answer(method, path)`; the path has no query."""

    def __init__(self, socket_path: str, answer: Answer) -> None:
        self._path = socket_path
        _remove_if_deserted(socket_path)
        super().__init__(_UnixServer(socket_path, _Handler), answer)

    def close(self) -> None:
        """Stop listening, and remove the socket."""
        super().close()
        os.unlink(self._path)


def _remove_if_deserted(socket_path: str) -> None:
    """Remove a socket file on which nobody listens any more; a process that was killed leaves one."""
    if not Path(socket_path).is_socket():
        return
    with socket.socket(socket.AF_UNIX) as probe:
        try:
            probe.connect(socket_path)
        except ConnectionRefusedError:
            os.unlink(socket_path)
        except OSError:
            pass  # binding then raises the error
