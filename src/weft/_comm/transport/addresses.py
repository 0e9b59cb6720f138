"""The addresses at which other hosts reach this one: on the route to a peer, or of an interface that the user names.

A host's own name is not looked up. It often resolves to a loopback address (Debian writes 127.0.1.1), or not at all.
"""

from __future__ import annotations

import fcntl
import ipaddress
import os
import socket
import struct
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from weft._comm.transport.sockets import loopback_address
from weft.errors import DistNetworkError

INTERFACES = ("WEFT_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME")
"""Variables that name the interface, or several, separated by commas: the first that has an address is used."""

ADVICE = (
    "if the hosts reach each other by another network, set WEFT_SOCKET_IFNAME (or GLOO_SOCKET_IFNAME) on each host to "
    "the name of its interface there, as `ip addr` shows it"
)
_ELSEWHERE = {socket.AF_INET: "192.0.2.1", socket.AF_INET6: "2001:db8::1"}
"""Addresses for documentation (RFC 5737 and 3849); nothing is sent to them."""
_GET_ADDRESS = 0x8915  # SIOCGIFADDR
_GLOBAL = "00"  # the scope of addresses that are valid beyond a link


def own_address(towards: str | None = None) -> str:
    """The address of this host: of the interface that the environment names, or else on the route to a peer.

    No packet is sent. Without a peer it is the one of the default route. A host without such a route has the address of
    its first interface, and one without interfaces its loopback address.
    """
    if named := _of_named_interface():
        return named[0]
    for family, elsewhere in _ELSEWHERE.items():
        with socket.socket(family, socket.SOCK_DGRAM) as probe, suppress(OSError):
            probe.connect((towards or elsewhere, 9))
            return probe.getsockname()[0]
    others = [address for name in _interfaces() for address in _of_interface(name) if not loopback_address(address)]
    return others[0] if others else "127.0.0.1"


def location(store_host: str | None) -> dict[str, Any]:
    """Where this process is reached, to be sent to its peers, which call `addresses_of` with it.

    `store_host` is the host of the store by which they have met, if it is one. A process on that host may know it by a
    loopback address, so it says that it is reached as the store is.
    """
    addresses = _of_named_interface()
    if not addresses:
        own = own_address(store_host)
        addresses = [""] if store_host is not None and loopback_address(own) else [own]
    return {"network": _network(), "addresses": addresses}


def addresses_of(location: dict[str, Any], store_host: str | None) -> Sequence[str]:
    """The addresses at which this process reaches a peer with this location."""
    if location["network"] == _network():
        return ["127.0.0.1"]
    return [address or store_host or "127.0.0.1" for address in location["addresses"]]


def address_of_own_name() -> str | None:
    """The address of this host that its name resolves to; None if it resolves to no address, or to none of this host.

    Libraries that look their host's name up listen there.
    """
    try:
        entries = socket.getaddrinfo(socket.gethostname(), None, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        return None
    return next((address for address in (str(entry[4][0]) for entry in entries) if is_bindable(address)), None)


def is_bindable(address: str) -> bool:
    """Whether an interface of this host has the address."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.bind((address, 0))
    except OSError:
        return False
    return True


def _network() -> str:
    """A text that is equal for processes that share a loopback interface: the kernel's and the namespace's."""
    with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
        return f"{file.read().strip()} {os.readlink('/proc/self/ns/net')}"


def _of_named_interface() -> list[str]:
    """The addresses of the interface that the environment names; none where it names none."""
    variable = next((name for name in INTERFACES if os.environ.get(name)), None)
    if variable is None:
        return []
    names = [name.strip() for name in os.environ[variable].split(",")]
    for name in names:
        if addresses := _of_interface(name):
            return addresses
    others = ", ".join(f"{name} ({', '.join(_of_interface(name)) or 'no address'})" for name in _interfaces())
    raise DistNetworkError(
        f"{variable}={os.environ[variable]}: this host has no interface of this name with an address; it has {others}"
    )


def _interfaces() -> list[str]:
    return [name for _, name in socket.if_nameindex()]


def _of_interface(name: str) -> list[str]:
    """The addresses of an interface that are valid beyond its link, of IPv4 first."""
    addresses: list[str] = []
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe, suppress(OSError):
        answer = fcntl.ioctl(probe, _GET_ADDRESS, struct.pack("256s", name.encode()[:15]))
        addresses.append(socket.inet_ntoa(answer[20:24]))
    with suppress(OSError), open("/proc/net/if_inet6", encoding="ascii") as file:
        for line in file:
            digits, _, _, scope, _, interface = line.split()
            if interface == name and scope == _GLOBAL:
                addresses.append(str(ipaddress.IPv6Address(bytes.fromhex(digits))))
    return addresses
