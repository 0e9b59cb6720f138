"""Requests of a node's operations to the shared state, and how an operation is carried out.

An operation is a generator: it yields requests, gets each answer sent, and returns its result. It opens no socket and
reads no clock, so that threads over a store, tests, and the simulation of `bench/scale` carry out the same code.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from typing import Any, NamedTuple, TypeVar

from weft.distributed.elastic.rendezvous._status import Status

_R = TypeVar("_R")
_T = TypeVar("_T")


class ReadStatus(NamedTuple):
    """The status, and a token of its version."""


class SwapStatus(NamedTuple):
    """Replace the status if the token names the present version; answers the status then, its token, and success."""

    status: Status
    token: Any


class GetKey(NamedTuple):
    """The value of a key at once, None where there is none."""

    key: str


class SetKeys(NamedTuple):
    """Set the values of keys."""

    pairs: Mapping[str, bytes]


class DeleteKey(NamedTuple):
    """Forget a key."""

    key: str


class Scan(NamedTuple):
    """The keys that begin with a prefix, and their values."""

    prefix: str


Request = ReadStatus | SwapStatus | GetKey | SetKeys | DeleteKey | Scan

Operation = Generator[Request, Any, _T]


def run(operation: Generator[_R, Any, _T], answer: Callable[[_R], Any]) -> _T:
    """Carry out an operation, whose requests `answer` answers; returns its result."""
    value = None
    while True:
        try:
            request = operation.send(value)
        except StopIteration as end:
            return end.value
        value = answer(request)
