"""An HTTP endpoint that tells whether the agent of this host is alive."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

from weft.distributed.elastic._http import Answer, TextServer

_log = logging.getLogger(__name__)


class HealthCheckServer:
    """Answers 200 while `alive_callback` gives a time at most `timeout` seconds ago, and 503 otherwise.

    The callback returns when the agent last made progress, in seconds since the epoch. The server listens on all
    addresses, since what asks stands outside of the host; port 0 takes a free one, which `port` tells after `start`.
    """

    def __init__(self, alive_callback: Callable[[], float], port: int, timeout: float) -> None:
        self._alive_callback = alive_callback
        self._port = port
        self._timeout = timeout
        self._server: TextServer | None = None

    @property
    def alive_callback(self) -> Callable[[], float]:
        """What tells the time of the last progress."""
        return self._alive_callback

    @property
    def port(self) -> int:
        """The port that is listened on."""
        return self._server.port if self._server else self._port

    def start(self) -> None:
        """Begin to answer. A port that cannot be had is logged; the job does not depend on it."""
        if self._server is not None:
            return
        try:
            self._server = TextServer("", self._port, self._answer)
        except (OSError, OverflowError) as error:
            _log.error("no health check server on port %s: %s", self._port, error)

    def stop(self) -> None:
        """Stop answering. Calling it again does nothing."""
        if self._server is not None:
            self._server.close()
            self._server = None

    def _answer(self) -> Answer:
        try:
            silent = time.time() - self._alive_callback()
        except Exception as error:  # a callback that fails is what the endpoint is there to tell
            return Answer(f"the callback failed: {error!r}\n", "503 Service Unavailable")
        if silent <= self._timeout:
            return Answer("alive\n")
        return Answer(f"no progress for {silent:.0f} s, allowed are {self._timeout} s\n", "503 Service Unavailable")


def create_healthcheck_server(alive_callback: Callable[[], float], port: int, timeout: float) -> HealthCheckServer:
    """A health check server that has not been started."""
    return HealthCheckServer(alive_callback, port, timeout)
