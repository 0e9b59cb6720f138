"""Hosts, messages and a store in simulated time: events in the order in which they happen, from one seed."""

from __future__ import annotations

import heapq
import statistics
from collections import defaultdict, deque
from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from itertools import count
from random import Random
from typing import Any, NamedTuple


class Costs(NamedTuple):
    """What things take, in seconds; the defaults were measured as docs/scale.md tells."""

    message: float = 1e-3  # on its way, on average
    retry: float = 0.2  # until a lost message is sent again
    loss: float = 0.0  # share of messages that are lost
    operation: float = 30e-6  # of the store: one request
    key: float = 0.8e-6  # of the store: each key of a request that names many, or of the answer
    watch: float = 0.0  # of the store: what a wait for keys that are not there yet costs besides
    heartbeat: float = 6e-6  # of the leader: each heartbeat that it reads


TCP_STORE = Costs()
ETCD = Costs(operation=0.5e-3, key=30e-6, watch=1.4e-3)

Answer = Callable[[Any, int, int], None]
"""Takes the value that a store answers, its size in bytes, and the number of keys that this has cost."""


_SERVER = -1  # stands for the store's server among the numbers of hosts


class Sleep(NamedTuple):
    """A process rests for so many seconds."""

    seconds: float


class Park(NamedTuple):
    """A process rests until somebody calls what it puts into `queue`."""

    queue: deque[Callable[[], None]]


class Ask(NamedTuple):
    """A process sends the store a request, of `size` bytes, and goes on with its answer."""

    request: Any
    size: int


class Call(NamedTuple):
    """A process sends a host a message, of `size` bytes, and goes on when `handle` has given an answer, and its size.

    `handle(answer)` runs at the host when the message comes, and calls `answer(value, size)` then or later.
    """

    to: int
    handle: Callable[[Callable[[Any, int], None]], None]
    size: int


Process = Generator[Sleep | Park | Ask | Call, Any, None]


@dataclass
class Host:
    """What a host, or the store, has sent and received."""

    messages: int = 0
    bytes: int = 0
    lives: bool = True

    def count(self, size: int) -> None:
        """Count a message of so many bytes."""
        self.messages += 1
        self.bytes += size


class Load(NamedTuple):
    """Messages and bytes of the hosts between two moments, and of the store."""

    seconds: float
    median_messages: float
    most_messages: int
    median_bytes: float
    most_bytes: int
    store_messages: int
    store_bytes: int


@dataclass
class Simulation:
    """A number of hosts, and a store on a server, which carries out requests one after another.

    `store.carry_out(request, answer, simulation)` calls `answer` at once or later.
    """

    size: int
    store: Any
    costs: Costs = TCP_STORE
    seed: int = 0
    now: float = 0.0
    hosts: list[Host] = field(init=False)
    server: Host = field(default_factory=Host)

    def __post_init__(self) -> None:
        self.random = Random(self.seed)
        self.hosts = [Host() for _ in range(self.size)]
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._order = count()
        self._server_free = 0.0
        self._latest: defaultdict[tuple[int, int], float] = defaultdict(float)  # messages of one pair keep their order
        self._marks = self._marked()

    def spawn(self, host: int, process: Process) -> None:
        """Let a process run on a host, as long as that lives."""
        self._resume(host, process, None)

    def kill(self, host: int) -> None:
        """End all that runs on a host; nothing comes from it any more."""
        self.hosts[host].lives = False

    def at(self, when: float, event: Callable[[], None]) -> None:
        """Have something happen."""
        heapq.heappush(self._events, (when, next(self._order), event))

    def run(self, until: Callable[[], bool], limit: float = 1e6) -> bool:
        """Let things happen until a condition holds; false where it does not within so many seconds from now."""
        end = self.now + limit
        while not until():
            if not self._events or self._events[0][0] > end:
                self.now = end
                return False
            self.now, _, event = heapq.heappop(self._events)
            event()
        return True

    def mark(self) -> None:
        """Begin to count anew."""
        self._marks = self._marked()

    def load(self, but: frozenset[int] = frozenset()) -> Load:
        """What has been sent and received since the mark, by all hosts that live, without those in `but`."""
        start, server, before = self._marks
        pairs = enumerate(zip(self.hosts, before, strict=True))
        living = [(host, counts) for at, (host, counts) in pairs if host.lives and at not in but]
        messages = [host.messages - counts[0] for host, counts in living]
        sizes = [host.bytes - counts[1] for host, counts in living]
        return Load(
            self.now - start,
            statistics.median(messages),
            max(messages),
            statistics.median(sizes),
            max(sizes),
            self.server.messages - server[0],
            self.server.bytes - server[1],
        )

    def _marked(self) -> tuple[float, tuple[int, int], list[tuple[int, int]]]:
        counts = [(host.messages, host.bytes) for host in self.hosts]
        return self.now, (self.server.messages, self.server.bytes), counts

    # --- processes ---

    def _resume(self, host: int, process: Process, answer: Any) -> None:
        if not self.hosts[host].lives:
            return
        try:
            step = process.send(answer)
        except StopIteration:
            return
        match step:
            case Sleep(seconds):
                self.at(self.now + seconds, lambda: self._resume(host, process, None))
            case Park(queue):
                queue.append(lambda: self.at(self.now, lambda: self._resume(host, process, None)))
            case Ask(request, size):
                self._send(host, _SERVER, size, lambda: self._serve(host, process, request))
            case Call(to, handle, size):
                self._send(
                    host, to, size, lambda: handle(lambda value, size: self._answer(to, host, process, value, size))
                )

    def _answer(self, sender: int, host: int, process: Process, value: Any, size: int) -> None:
        self._send(sender, host, size, lambda: self._resume(host, process, value))

    def _send(self, sender: int, to: int, size: int, arrive: Callable[[], None]) -> None:
        here, there = (self.server if at == _SERVER else self.hosts[at] for at in (sender, to))
        if not here.lives:
            return
        here.count(size)
        when = self.now + self.random.uniform(0.5, 1.5) * self.costs.message
        while self.random.random() < self.costs.loss:
            when += self.costs.retry
        when = self._latest[sender, to] = max(when, self._latest[sender, to])

        def come() -> None:
            if there.lives:
                there.count(size)
                arrive()

        self.at(when, come)

    # --- the store ---

    def occupy_server(self, seconds: float) -> float:
        """Let the server work for so long once it is free; returns when it is done."""
        self._server_free = max(self.now, self._server_free) + seconds
        return self._server_free

    def _serve(self, host: int, process: Process, request: Any) -> None:
        def answer(value: Any, size: int, keys: int) -> None:
            done = self.occupy_server(keys * self.costs.key)
            self.at(done, lambda: self._answer(_SERVER, host, process, value, size))

        self.at(self.occupy_server(self.costs.operation), lambda: self.store.carry_out(request, answer, self))
