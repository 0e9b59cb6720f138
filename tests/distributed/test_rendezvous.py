"""Addresses that lead to a store, and handlers of a program's own."""

from __future__ import annotations

import sys

import pytest

import weft.distributed as dist
from weft.distributed.rendezvous import register_rendezvous_handler, rendezvous


def test_the_package_has_the_function_though_there_is_a_module_of_its_name():
    assert dist.rendezvous is rendezvous
    assert sys.modules["weft.distributed.rendezvous"].rendezvous is rendezvous


def test_what_is_given_twice_is_told_before_what_is_missing():
    with pytest.raises(
        AssertionError, match=r"^The url: tcp://\?rank=0 has node-specific arguments\(rank, world_size\)"
    ):
        rendezvous("tcp://?rank=0", rank=0, world_size=1)
    with pytest.raises(ValueError, match=r"port number missing"):
        next(rendezvous("tcp://host", 0, 1))
    with pytest.raises(ValueError, match=r"^port must have value from 0 to 65535 but was 70000\.$"):
        next(rendezvous("env://", 0, 1))
    with pytest.raises(RuntimeError, match=r"^`world_size` must be an integer\. None$"):
        rendezvous("tcp://host:1", 0, None)


@pytest.fixture(autouse=True)
def address(monkeypatch):
    monkeypatch.setenv("MASTER_ADDR", "localhost")
    monkeypatch.setenv("MASTER_PORT", "70000")


def test_a_handler_gets_the_address_with_rank_and_size():
    def handler(url, **options):
        yield url, options, 1

    register_rendezvous_handler("testing", handler)
    url = "testing://a/b?c=1"
    assert next(rendezvous(url, 0, 2, timeout=3)) == ("testing://a/b?c=1&rank=0&world_size=2", {"timeout": 3}, 1)
    assert next(rendezvous(url)) == (url, {}, 1)
    with pytest.raises(RuntimeError, match=r"^Rendezvous handler for testing:// already registered$"):
        register_rendezvous_handler("testing", handler)
