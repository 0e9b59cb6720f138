"""One page of text over HTTP, without the standard library's HTTP server, which takes 40 ms to import."""

from __future__ import annotations

import socket
import socketserver
import threading
from collections.abc import Callable
from dataclasses import dataclass

_LONGEST_LINE = 1 << 13
_MOST_LINES = 100


@dataclass(frozen=True)
class Answer:
    """What a page says now."""

    text: str
    status: str = "200 OK"
    kind: str = "text/plain; charset=utf-8"


class _Handler(socketserver.StreamRequestHandler):
    timeout = 5  # seconds for a client that sends nothing

    def handle(self) -> None:
        try:
            method = self._method()
            if method is None:
                return
            page = self.server.page  # type: ignore[attr-defined]
            answer = page() if method in (b"GET", b"HEAD") else Answer("only GET\n", "405 Method Not Allowed")
            body = answer.text.encode()
            head = f"HTTP/1.0 {answer.status}\r\nContent-Type: {answer.kind}\r\nContent-Length: {len(body)}\r\n\r\n"
            self.wfile.write(head.encode() + (b"" if method == b"HEAD" else body))
        except OSError:
            pass  # the client is slow or gone, which concerns nobody else

    def _method(self) -> bytes | None:
        """The request's method when the whole request has been read, None where it is none."""
        first = self.rfile.readline(_LONGEST_LINE)
        for _ in range(_MOST_LINES):
            if self.rfile.readline(_LONGEST_LINE) in (b"\r\n", b"\n", b""):
                return first.partition(b" ")[0] or None
        return None


class _Server(socketserver.ThreadingTCPServer):
    allow_reuse_address = True
    daemon_threads = True
    block_on_close = False

    def __init__(self, address: tuple[str, int], page: Callable[[], Answer]) -> None:
        self.page = page
        everywhere = not address[0] and socket.has_dualstack_ipv6()
        if everywhere or ":" in address[0]:
            self.address_family = socket.AF_INET6
        self._everywhere = everywhere
        super().__init__(address, _Handler)

    def server_bind(self) -> None:
        if self._everywhere:  # one socket for IPv4 and IPv6
            self.socket.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        super().server_bind()


class TextServer:
    """Answers every GET with what `page` returns then, from threads of its own, until it is closed."""

    def __init__(self, host: str, port: int, page: Callable[[], Answer]) -> None:
        self._server = _Server((host, port), page)
        self.port: int = self._server.server_address[1]
        self._thread = threading.Thread(
            target=self._server.serve_forever,
            kwargs={"poll_interval": 0.1},
            name=f"TextServer:{self.port}",
            daemon=True,
        )
        self._thread.start()

    def close(self) -> None:
        """Stop listening."""
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()
