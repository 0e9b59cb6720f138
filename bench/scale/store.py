"""The store of a simulated job: what it answers, when, and how many bytes that are."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from tests.distributed.elastic.shared_state import SharedState

from bench.scale.simulation import Answer, Simulation
from weft.distributed.elastic.agent.server._exchange import GetKeys
from weft.distributed.elastic.rendezvous._requests import (
    DeleteKey,
    GetKey,
    ReadStatus,
    Scan,
    SetKeys,
    SwapStatus,
)

NODES = "nodes/"
"""What the keys of the rendezvous begin with."""


class WaitForKeys(NamedTuple):
    """Wait until all keys are there, so many seconds at most; answers whether they are."""

    keys: list[str]
    seconds: float


class Store:
    """Answers at once, or when keys have come."""

    def __init__(self) -> None:
        self.shared = SharedState()
        self._waiting: dict[str, list[Callable[[str], None]]] = {}

    def carry_out(self, request: Any, answer: Answer, sim: Simulation) -> None:
        """Do what a request wants, and call `answer(value, bytes, keys)`."""
        match request:
            case WaitForKeys(keys, seconds):
                self._wait(set(keys), seconds, answer, sim)
            case GetKeys(keys):
                values = [self.shared.values[key] for key in keys]
                answer(values, sum(map(len, values)), len(keys))
            case SetKeys(pairs):
                self.shared.answer(request)
                answer(None, 4, len(pairs))
                for key in pairs:
                    for arrived in self._waiting.pop(key, ()):
                        arrived(key)
            case Scan():
                entries: Any = self.shared.answer(request)
                answer(entries, sum(len(key) + len(value) + 8 for key, value in entries.items()), len(entries))
            case _:
                value = self.shared.answer(request)
                answer(value, _answer_size(request, value), 0)

    def _wait(self, keys: set[str], seconds: float, answer: Answer, sim: Simulation) -> None:
        missing = keys - self.shared.values.keys()
        waits = bool(missing)
        if not waits:
            answer(True, 4, len(keys))
            return

        sim.occupy_server(sim.costs.watch)

        def arrived(key: str) -> None:
            nonlocal waits
            missing.discard(key)
            if waits and not missing:
                waits = False
                answer(True, 4, len(keys))

        def expired() -> None:
            nonlocal waits
            if waits:
                waits = False
                sim.server.count(8)  # the waiter says that it waits no longer
                answer(False, 8, 0)

        for key in list(missing):
            self._waiting.setdefault(key, []).append(arrived)
        sim.at(sim.now + seconds, expired)


def request_size(request: Any) -> int:
    """Bytes of a request to a `TCPStore`; the status is the value of a key, in base64."""
    match request:
        case ReadStatus():
            return 40
        case SwapStatus(status, _):
            return 40 + 2 * _in_base64(status.encode())
        case SetKeys(pairs):
            return sum(len(key) + len(value) + 8 for key, value in pairs.items())
        case DeleteKey(key) | Scan(key) | GetKey(key):
            return len(key) + 8
        case WaitForKeys(keys) | GetKeys(keys):
            return sum(len(key) + 4 for key in keys)
    raise AssertionError(request)


def _answer_size(request: Any, value: Any) -> int:
    match request:
        case ReadStatus() | SwapStatus():
            return _in_base64(value[0].encode())
        case GetKey():
            return len(value or b"-")
    return 4


def _in_base64(data: bytes) -> int:
    return len(data) * 4 // 3


def of_rendezvous(request: Any) -> Any:
    """A request of a member, with keys as the launcher's store has them."""
    match request:
        case SetKeys(pairs):
            return SetKeys({NODES + key: value for key, value in pairs.items()})
        case DeleteKey(key) | GetKey(key) | Scan(key):
            return type(request)(NODES + key)
    return request
