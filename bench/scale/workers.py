"""Workers of remote calls in simulated time: they join and leave; the rounds of leaving are the project's own."""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable, Generator
from typing import Any

from bench.scale.simulation import TCP_STORE, Ask, Call, Costs, Load, Process, Simulation, Sleep
from bench.scale.store import Store, WaitForKeys, request_size
from weft.distributed.elastic.agent.server._exchange import GetKeys
from weft.distributed.elastic.rendezvous._requests import GetKey, SetKeys
from weft.distributed.rpc._rounds import Rounds, Sums
from weft.distributed.rpc._traffic import Counts, Traffic
from weft.distributed.rpc._workers import WorkerInfo
from weft.futures import Future

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
        self._rounds = Rounds(self.size)
        self._traffic = [Traffic() for _ in range(self.size)]
        for at, traffic in enumerate(self._traffic):
            after, before = (at + 1) % self.size, (at - 1) % self.size
            traffic.count(WorkerInfo(f"worker{after}", after), made=1)
            traffic.count(WorkerInfo(f"worker{before}", before), served=1)
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
        yield from self._ask(SetKeys({f"size of {at}": b"10000 worker0"}))
        if at:  # who has told the size first is looked at: whether it lives, and has the same key
            yield from self._ask(GetKey("size"))
            yield from self._ask(GetKey("name/worker0"))
            yield Call(0, lambda answer: answer(None, 100), 100)
        yield from self._ask(SetKeys({f"met/{at}": b"1"}))
        self._met += 1
        if self._met == self.size:
            yield from self._ask(SetKeys({"all": b"1"}))
        yield from self._ask(WaitForKeys(["all"], 300.0))
        yield from self._ask(GetKeys(self._entries))
        yield from self._ask(GetKey("has devices"))

    def _leave(self, at: int) -> Process:
        yield self._control(0, "come", at, lambda answer: (self._rounds.come(at), answer(None, _FRAME)))
        before, pause = None, 0.001
        for number in range(1000):
            counts = self._traffic[at].counts(0)
            sums: Sums = yield self._report(number, at, counts)
            if sums.over:
                return
            if sums.counts == before:
                yield Sleep(pause)
                pause = min(2 * pause, 0.25)
            before = sums.counts

    def _report(self, number: int, at: int, counts: Counts) -> Call:
        def handle(answer: Callable[[Any, int], None]) -> None:
            def tell(future: Future[Sums]) -> None:
                answer(future.value(), _FRAME + len(pickle.dumps(tuple(future.value()))))

            self._rounds.report(number, at, counts).add_done_callback(tell)

        return self._control(0, "report", (number, at, tuple(counts)), handle)

    def _control(self, to: int, name: str, content: Any, handle: Callable[..., Any]) -> Call:
        return Call(to, handle, _FRAME + len(name) + len(pickle.dumps(content)))

    def _ask(self, request: Any) -> Generator[Any, Any, Any]:
        return (yield Ask(request, request_size(request)))
