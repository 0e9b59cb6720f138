"""Where other hosts reach this one."""

from __future__ import annotations

import socket

import pytest

from weft._comm.transport import addresses
from weft._comm.transport.addresses import address_of_own_name, addresses_of, is_bindable, location, own_address
from weft.errors import DistNetworkError


@pytest.fixture(autouse=True)
def no_interface(monkeypatch):
    for name in addresses.INTERFACES:
        monkeypatch.delenv(name, raising=False)


def test_the_address_is_that_on_the_route():
    assert own_address("127.0.0.1") == "127.0.0.1"
    assert own_address("::1") == "::1"
    assert is_bindable(own_address())


@pytest.mark.parametrize("name", addresses.INTERFACES)
def test_an_interface_that_is_named_comes_first(monkeypatch, name):
    monkeypatch.setenv(name, " nothing , lo ")
    assert own_address() == "127.0.0.1"
    assert location(None)["addresses"][0] == "127.0.0.1"


def test_an_interface_that_is_not_there_is_an_error_with_those_that_are(monkeypatch):
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "nothing")
    with pytest.raises(
        DistNetworkError,
        match=r"^GLOO_SOCKET_IFNAME=nothing: this host has no interface of this name with an address; .*lo \(127.0.0.1",
    ):
        own_address()


def test_peers_of_one_network_meet_at_its_loopback_interface():
    assert addresses_of(location(None), None) == ["127.0.0.1"]


def test_peers_elsewhere_take_the_addresses_or_that_of_the_store():
    elsewhere = {"network": "another", "addresses": ["192.0.2.7", "2001:db8::7"]}
    assert addresses_of(elsewhere, "192.0.2.1") == ["192.0.2.7", "2001:db8::7"]
    beside_the_store = location("127.0.0.1") | {"network": "another"}
    assert addresses_of(beside_the_store, "192.0.2.1") == ["192.0.2.1"]


def test_the_name_of_this_host(monkeypatch):
    monkeypatch.setattr(socket, "gethostname", lambda: "localhost")
    assert address_of_own_name() in ("127.0.0.1", "::1")
    monkeypatch.setattr(socket, "gethostname", lambda: "no.such.name.invalid")
    assert address_of_own_name() is None
    monkeypatch.setattr(socket, "gethostname", lambda: "192.0.2.1")  # of nobody here
    assert address_of_own_name() is None
