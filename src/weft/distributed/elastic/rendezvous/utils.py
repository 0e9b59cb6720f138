"""Addresses and options of a rendezvous, as users write them."""

from __future__ import annotations

import ipaddress
import logging
import re
import socket
from collections.abc import Callable

from weft._comm.deadline import Deadline
from weft._comm.transport.addresses import is_bindable
from weft.errors import ValueRangeError

_log = logging.getLogger(__name__)

_PATIENCE_SECONDS = 5.0
_REMINDER_SECONDS = 60.0


def parse_rendezvous_config(config: str) -> dict[str, str]:
    """Parse `a=1,b=2` into a dict; an empty text gives an empty dict. `ValueError` for anything else."""
    options: dict[str, str] = {}
    if not config.strip():
        return options
    for pair in config.split(","):
        key, sign, value = (part.strip() for part in pair.partition("="))
        if not key:
            raise ValueRangeError(
                "The rendezvous configuration string must be in format <key1>=<value1>,...,<keyN>=<valueN>."
            )
        if not sign or not value:
            raise ValueRangeError(
                f"The rendezvous configuration option '{key}' must have a value specified: --rdzv-conf {key}=VALUE"
            )
        options[key] = value
    return options


class WaitNotice:
    """Tells the user what is waited for, once the wait is long, and again every minute."""

    def __init__(self) -> None:
        self._due = Deadline(_PATIENCE_SECONDS)

    def tell(self, what: Callable[[], str]) -> None:
        """Tell, if it is time. Call this repeatedly while waiting."""
        if self._due.expired:
            self._due = Deadline(_REMINDER_SECONDS)
            _log.warning("waiting for %s", what())


def fact(error: object) -> str:
    """The text of an error without its advice, which follows a semicolon, for errors that give other advice."""
    return str(error).partition("; ")[0]


def parse_rendezvous_endpoint(endpoint: str | None, default_port: int) -> tuple[str, int]:
    """Host and port of `HOST[:PORT]` or `[IPV6]:PORT`; an empty endpoint is this machine."""
    text = (endpoint or "").strip()
    if not text:
        return "localhost", default_port
    whole = ":" not in text or text.endswith("]") or is_ipv6(text)
    host, port = (text, str(default_port)) if whole else text.rsplit(":", 1)
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    if not (is_ipv6(host) or re.fullmatch(r"[\w.-]+", host)):
        raise ValueRangeError(
            f"The hostname of the rendezvous endpoint '{endpoint}' must be a dot-separated list of labels, an IPv4 "
            "address, or an IPv6 address; write HOST:PORT or [IPV6]:PORT in --rdzv-endpoint, HOST in --master-addr"
        )
    if not whole and (not re.fullmatch("[0-9]{1,5}", port) or int(port) > 65535):
        raise ValueRangeError(
            f"The port number of the rendezvous endpoint '{endpoint}' must be an integer between 0 and 65535."
        )
    return host, int(port)


def is_ipv6(text: str) -> bool:
    """Whether a text is an IPv6 address, without brackets."""
    try:
        return ipaddress.ip_address(text).version == 6
    except ValueError:
        return False


def free_port() -> int:
    """A TCP port that was free when this was called."""
    with socket.socket() as probe:
        probe.bind(("", 0))
        return probe.getsockname()[1]


def matches_machine_hostname(host: str) -> bool:
    """Whether a name or an address belongs to this machine."""
    if host in ("localhost", socket.gethostname(), socket.gethostname().partition(".")[0]):
        return True
    try:
        addresses = {
            ipaddress.ip_address(str(entry[4][0]).partition("%")[0]) for entry in socket.getaddrinfo(host, None)
        }
    except (OSError, UnicodeError):
        return False
    return any(address.is_loopback or is_bindable(str(address)) for address in addresses)
