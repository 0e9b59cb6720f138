"""The requests of a node's operations to the shared state, and the function that runs an operation.

An operation is a generator: it yields requests, is sent their answers, and returns its result. It opens no sockets and
reads no clock, so the same code runs in threads over a store, in tests, and in the simulation of `bench/scale`.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from typing import Any, NamedTuple, TypeAlias, TypeVar

from weft.distributed.elastic.rendezvous._backend import Token
from weft.distributed.elastic.rendezvous._status import Status

_R = TypeVar("_R")
_T = TypeVar("_T")


class ReadStatus(NamedTuple):
    """Read the status, and a token for its version."""


class SwapStatus(NamedTuple):
    """Replace the status if the token is that of the present version. Answers status, token and success."""

    status: Status
    token: Token


class GetKey(NamedTuple):
    """Read the value of a key without waiting; None if there is none."""

    key: str


class SetKeys(NamedTuple):
    """Set the values of keys."""

    pairs: Mapping[str, bytes]


class DeleteKey(NamedTuple):
    """Delete a key."""

    key: str


class Scan(NamedTuple):
    """Read the keys with a prefix, and their values."""

    prefix: str


Request = ReadStatus | SwapStatus | GetKey | SetKeys | DeleteKey | Scan

Operation: TypeAlias = Generator[Request, Any, _T]


def run(operation: Generator[_R, object, _T], answer: Callable[[_R], object]) -> _T:
    """Run an operation; `answer` answers its requests. Returns the operation's result."""
    value = None
    while True:
        try:
            request = operation.send(value)
        except StopIteration as end:
            return end.value
        value = answer(request)
