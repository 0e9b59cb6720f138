"""An HTTP endpoint that reports whether the agent of this host makes progress."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

from weft.distributed.elastic._http import Response, TextServer

_log = logging.getLogger(__name__)


def _no_page(path: str) -> Response | None:
    del path
    return None


class HealthCheckServer:
    """Answers 200 if `alive_callback()` is at most `timeout` seconds ago, else 503.

    The callback returns the time of the agent's last progress, in seconds since the epoch. The server listens on all
    addresses, since requests come from other hosts. Port 0 takes a free one, which is `port` after `start`. Paths
    for which `page` gives a response are answered by it.
    """

    def __init__(
        self,
        alive_callback: Callable[[], float],
        port: int,
        timeout: float,
        *,
        page: Callable[[str], Response | None] = _no_page,
    ) -> None:
        self._page = page
        self._alive_callback = alive_callback
        self._port = port
        self._timeout = timeout
        self._server: TextServer | None = None

    @property
    def alive_callback(self) -> Callable[[], float]:
        """The function that returns the time of the last progress."""
        return self._alive_callback

    @property
    def port(self) -> int:
        """The port on which the server listens."""
        return self._server.port if self._server else self._port

    def start(self) -> None:
        """Start to answer. If the port cannot be bound, this is only logged: the job does not depend on it."""
        if self._server is not None:
            return
        try:
            self._server = TextServer("", self._port, self._answer)
        except (OSError, OverflowError) as error:
            _log.error("no health check server on port %s: %s", self._port, error)

    def stop(self) -> None:
        """Stop answering. Further calls do nothing."""
        if self._server is not None:
            self._server.close()
            self._server = None

    def _answer(self, path: str) -> Response:
        if (response := self._page(path)) is not None:
            return response
        try:
            silent = time.time() - self._alive_callback()
        except Exception as error:  # the endpoint reports a failing callback
            return Response(f"the callback failed: {error!r}\n", "503 Service Unavailable")
        if silent <= self._timeout:
            return Response("alive\n")
        return Response(f"no progress for {silent:.0f} s, allowed are {self._timeout} s\n", "503 Service Unavailable")


def create_healthcheck_server(
    alive_callback: Callable[[], float],
    port: int,
    timeout: float,
    *,
    page: Callable[[str], Response | None] = _no_page,
) -> HealthCheckServer:
    """A health check server that has not been started."""
    return HealthCheckServer(alive_callback, port, timeout, page=page)
