"""A small HTTP server for texts. With `http.server` it would be as long, and start in 39 ms instead of 2."""

from __future__ import annotations

import os
import socket
import socketserver
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from weft._comm.transport.sockets import is_same_user

_LONGEST_LINE = 1 << 13
_MOST_LINES = 100


@dataclass(frozen=True)
class Response:
    """The response to a request: its text, status line and content type."""

    text: str
    status: str = "200 OK"
    kind: str = "text/plain; charset=utf-8"


_ONLY_GET = Response("only GET\n", "405 Method Not Allowed")


class _Handler(socketserver.StreamRequestHandler):
    timeout = 5  # seconds until a client that sends nothing is dropped

    def handle(self) -> None:
        try:
            request = self._request()
            if request is None:
                return
            method, path = request
            answer = self.server.answer("GET" if method == "HEAD" else method, path)  # type: ignore[attr-defined]
            body = answer.text.encode()
            head = f"HTTP/1.0 {answer.status}\r\nContent-Type: {answer.kind}\r\nContent-Length: {len(body)}\r\n\r\n"
            self.wfile.write(head.encode() + (b"" if method == "HEAD" else body))
        except OSError:
            pass  # the client is slow or gone, which affects nobody else

    def _request(self) -> tuple[str, str] | None:
        """Method and path of a request, once its head is read; None if it is not a request."""
        first = self.rfile.readline(_LONGEST_LINE)
        for _ in range(_MOST_LINES):
            if self.rfile.readline(_LONGEST_LINE) in (b"\r\n", b"\n", b""):
                method, _, rest = first.decode("latin-1").partition(" ")
                return (method, rest.partition(" ")[0].partition("?")[0].strip()) if method else None
        return None


class _TcpServer(socketserver.ThreadingTCPServer):
    allow_reuse_address = True
    daemon_threads = True
    block_on_close = False

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


class _UnixServer(socketserver.ThreadingUnixStreamServer):
    daemon_threads = True
    block_on_close = False


class _OwnUsersServer(_UnixServer):
    def verify_request(self, request: Any, client_address: Any) -> bool:
        return is_same_user(request)


class _Serving:
    """Answers requests in its own threads until it is closed."""

    def __init__(self, server: socketserver.BaseServer, answer: Callable[[str, str], Response]) -> None:
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

    def __init__(self, socket_path: str, answer: Callable[[str, str], Response]) -> None:
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
