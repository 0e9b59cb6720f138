"""Workers of remote calls in simulated time: they join and leave; what they do at the end is the project's own code."""

from __future__ import annotations

import json
import pickle
from collections import deque
from collections.abc import Callable, Generator
from typing import Any

from bench.scale import simulation
from bench.scale.simulation import TCP_STORE, Call, Costs, Load, Park, Process, Simulation, Sleep
from bench.scale.store import Store, WaitForKeys, request_size
from weft.distributed.elastic.agent.server._exchange import GetKeys
from weft.distributed.elastic.rendezvous._requests import GetKey, SetKeys
from weft.distributed.rpc._call_counts import CallCounter
from weft.distributed.rpc._termination import Ask, Await, FinishCalls, Query, Report, SendReport, detect_termination
from weft.distributed.rpc._workers import _LEARN_AT_ONCE, WorkerInfo

_FRAME = 60  # bytes around what a control says: its name and number, and the frame


class Workers:
    """A group of fixed size."""

    def __init__(self, size: int, costs: Costs = TCP_STORE, seed: int = 0) -> None:
        self.sim = Simulation(size, Store(), costs, seed)
        self.size = size
        self.done = 0
        self._met = 0
        self._entries = [f"id/{peer}" for peer in range(size)]  # one list for all, who ask for them at once

    def join(self) -> tuple[Load, Load]:
        """`init_rpc` of all, begun within a tenth of a second."""
        return self._all(self._join)

    def leave(self) -> tuple[Load, Load]:
        """`shutdown` of all, called within a tenth of a second, after each has called its neighbour."""
        self._events: list[deque[Query]] = [deque() for _ in range(self.size)]
        self._waiting: list[deque[Callable[[], None]]] = [deque() for _ in range(self.size)]
        self._counters = [CallCounter() for _ in range(self.size)]
        for at, counter in enumerate(self._counters):
            after, before = (at + 1) % self.size, (at - 1) % self.size
            counter.count(WorkerInfo(f"worker{after}", after), sent=1)
            counter.count(WorkerInfo(f"worker{before}", before), served=1)
        return self._all(self._leave)

    def _all(self, process: Callable[[int], Process]) -> tuple[Load, Load]:
        """All but the first worker, and the first."""
        self.done = 0
        self.sim.mark()

        def run(at: int) -> Process:
            yield from process(at)
            self.done += 1

        for at in range(self.size):
            self.sim.at(self.sim.now + self.sim.random.uniform(0, 0.1), lambda at=at: self.sim.spawn(at, run(at)))
        assert self.sim.run(lambda: self.done == self.size, 300), "the workers did not come to an end"
        others = frozenset(range(1, self.size))
        return self.sim.load(frozenset({0})), self.sim.load(others)

    def _join(self, at: int) -> Process:
        """The requests of `_join.py`, by hand: what it decides needs one answer after another."""
        place = {"host": "10.0.0.1", "tcp": 43210, "unix": "weft-rpc-12345-0", "boot": "0" * 36}
        entry = json.dumps({"name": f"worker{at}", "id": at, "incarnation": 0, "place": place}).encode()
        for key in (f"incarnations/{at}", f"id/{at}", f"name/worker{at}"):
            yield from self._ask(SetKeys({key: entry}))
        yield from self._ask(SetKeys({f"size of {at}": b"10000 00112233445566778899aabbccddeeff worker0"}))
        yield from self._ask(SetKeys({f"met/{at}": b"1"}))
        self._met += 1
        if self._met == self.size:
            yield from self._ask(SetKeys({"all": b"1"}))
        yield from self._ask(WaitForKeys(["all"], 300.0))
        if self.size <= _LEARN_AT_ONCE:
            yield from self._ask(GetKeys(self._entries))
        yield from self._ask(GetKey("has devices"))

    def _leave(self, at: int) -> Process:
        """The steps of a worker. To watch another costs a connection, and no message."""
        steps, outcome = detect_termination(at, self.size), None
        while True:
            try:
                step = steps.send(outcome)
            except StopIteration:
                return
            outcome = None
            match step:
                case FinishCalls():
                    outcome = self._counters[at].counts(0)
                case Await(float(seconds)):
                    yield Sleep(seconds)
                case Await():
                    while not self._events[at]:
                        yield Park(self._waiting[at])
                    outcome = self._events[at].popleft()
                case SendReport(query, report):
                    query.reply(report, _FRAME + len(pickle.dumps(report)))
                case Ask(parts, ended):
                    reports: dict[int, Report] = {}
                    for part in parts:
                        self.sim.spawn(at, self._query(at, part, ended, reports))
                    while len(reports) < len(parts):
                        yield Park(self._waiting[at])
                    outcome = [reports[part.start] for part in parts]

    def _query(self, at: int, part: range, ended: frozenset[int] | None, reports: dict[int, Report]) -> Process:
        def handle(answer: Callable[[Any, int], None]) -> None:
            self._events[part.start].append(Query(part.stop, ended, answer))
            self._wake(part.start)

        size = _FRAME + len(pickle.dumps(("query", (part.stop, ended))))
        reports[part.start] = yield Call(part.start, handle, size)
        self._wake(at)

    def _wake(self, at: int) -> None:
        while self._waiting[at]:
            self._waiting[at].popleft()()

    def _ask(self, request: Any) -> Generator[Any, Any, Any]:
        return (yield simulation.Ask(request, request_size(request)))
