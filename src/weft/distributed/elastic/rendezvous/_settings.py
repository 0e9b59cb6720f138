"""The settings of a handler: limits and times, read from the options of its parameters."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass
from datetime import timedelta
from typing import ClassVar

from weft._comm.transport.addresses import own_address
from weft.distributed.elastic.rendezvous._round import Rules
from weft.distributed.elastic.rendezvous.api import RendezvousParameters, check_limits
from weft.distributed.elastic.rendezvous.utils import parse_rendezvous_endpoint
from weft.errors import ValueRangeError

OPTIONS = frozenset(
    {
        "join_timeout",
        "last_call_timeout",
        "close_timeout",
        "heartbeat_timeout",
        "read_timeout",
        "keep_alive_interval",
        "keep_alive_max_attempt",
    }
)
"""The options that `settings_of` reads."""


class RendezvousTimeout:
    """The timeouts of a rendezvous.

    `join` is for all of it; `last_call` for further nodes once there are enough; `close` for telling the others that
    the job or this node has ended; `heartbeat` for one response of the backend.
    """

    _DEFAULTS: ClassVar = {
        "join": timedelta(seconds=600),
        "last_call": timedelta(seconds=30),
        "close": timedelta(seconds=30),
        "heartbeat": timedelta(seconds=5),
    }

    def __init__(
        self,
        join: timedelta | None = None,
        last_call: timedelta | None = None,
        close: timedelta | None = None,
        heartbeat: timedelta | None = None,
    ) -> None:
        self.join = self._checked("join", join)
        self.last_call = self._checked("last_call", last_call)
        self.close = self._checked("close", close)
        self.heartbeat = self._checked("heartbeat", heartbeat)

    def _checked(self, name: str, timeout: timedelta | None) -> timedelta:
        if timeout is None:
            return self._DEFAULTS[name]
        if timeout <= timedelta(0):
            raise ValueRangeError(f"The {name} timeout ({timeout}) must be positive.")
        return timeout


@dataclass(frozen=True)
class RendezvousSettings:
    """The settings of a handler.

    A node that misses `keep_alive_max_attempt` heartbeats counts as dead. The backend may fail for `patience` seconds.
    """

    run_id: str
    min_nodes: int
    max_nodes: int
    timeout: RendezvousTimeout
    keep_alive_interval: timedelta
    keep_alive_max_attempt: int
    patience: timedelta = timedelta(seconds=60)

    def __post_init__(self) -> None:
        if not self.run_id:
            raise ValueRangeError("The run id must be a non-empty string.")
        check_limits(self.min_nodes, self.max_nodes, "nodes")
        if self.keep_alive_interval <= timedelta(0) or self.keep_alive_max_attempt < 1:
            raise ValueRangeError(
                "keep_alive_interval must be more than 0 s, and keep_alive_max_attempt at least 1, got "
                f"{self.keep_alive_interval.total_seconds():g} and {self.keep_alive_max_attempt}"
            )

    @property
    def rules(self) -> Rules:
        """The limits of rounds."""
        silence = self.keep_alive_interval.total_seconds() * self.keep_alive_max_attempt
        return Rules(self.min_nodes, self.max_nodes, self.timeout.last_call.total_seconds(), silence)


def settings_of(params: RendezvousParameters) -> RendezvousSettings:
    """The settings given by options of the parameters.

    In seconds: `join_timeout` (600), `last_call_timeout` (30), `close_timeout` (30), `heartbeat_timeout` (5),
    `keep_alive_interval` (5), and `read_timeout` (60), the time for which the backend may fail. The number
    `keep_alive_max_attempt` (3) is that of missed heartbeats.
    """
    timeout = RendezvousTimeout(
        _seconds(params, "join_timeout"),
        _seconds(params, "last_call_timeout"),
        _seconds(params, "close_timeout"),
        _seconds(params, "heartbeat_timeout"),
    )
    return RendezvousSettings(
        params.run_id,
        params.min_nodes,
        params.max_nodes,
        timeout,
        timedelta(seconds=params.get_as_float("keep_alive_interval", 5.0)),
        3 if (attempts := params.get_as_int("keep_alive_max_attempt")) is None else attempts,
        timedelta(seconds=params.read_seconds()),
    )


def _seconds(params: RendezvousParameters, key: str) -> timedelta | None:
    return None if params.get(key) is None else timedelta(seconds=params.get_as_float(key, 0.0))


def address_of(params: RendezvousParameters) -> str:
    """This node's address: as given, or that of the route to a numeric endpoint. No name is looked up."""
    if params.local_addr:
        return params.local_addr
    try:
        host = str(ipaddress.ip_address(parse_rendezvous_endpoint(params.endpoint.partition(",")[0], 0)[0]))
    except ValueError:
        return own_address()
    return own_address(host)
