"""How workers leave together, without sockets: a model of calls, nested calls and deaths, in every order.

The rounds are those of `shutdown()`; around them stand workers whose messages arrive, and whose functions go on, in an
order that hypothesis chooses.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from weft.distributed.rpc._rounds import Rounds
from weft.distributed.rpc._traffic import Traffic
from weft.distributed.rpc._workers import WorkerInfo

_STEPS = 5000  # more than any of these jobs takes, unless somebody waits for ever


@dataclass
class Function:
    """What a worker runs for a caller: it makes further calls one by one, and waits for each or for none."""

    caller: int
    call: int
    depth: int
    calls: int
    waits_for: int | None = None


@dataclass
class Worker:
    """A worker: its calls that have no answer, the functions that it runs, and how far it is in `shutdown()`."""

    number: int
    rounds: Rounds
    traffic: Traffic = field(default_factory=Traffic)
    pending: dict[int, int] = field(default_factory=dict)  # whom each call went to
    functions: list[Function] = field(default_factory=list)
    to_do: int = 0  # calls before `shutdown()`
    leader: int | None = None
    round: int = 0
    answer: object = None
    state: str = "works"  # or leaves, has left, is dead

    @property
    def lives(self):
        return self.state in ("works", "leaves")


class Job:
    """Some workers, and the messages between them: in order between two of them, in any order else."""

    def __init__(self, size, random):
        self.random = random
        self.size = size
        self.workers = [Worker(number, Rounds(size), to_do=random.randrange(4)) for number in range(size)]
        self.links = {(a, b): deque() for a in range(size) for b in range(size)}
        self.names = [WorkerInfo(f"w{number}", number) for number in range(size)]
        self.calls = 0

    def run(self, deaths):
        """Let things happen until all have left or died; returns False where some wait for ever."""
        for _ in range(_STEPS):
            events = [event for worker in self.workers if worker.lives for event in self.enabled(worker)]
            events += [(self.deliver, link) for link, queue in self.links.items() if queue]
            if deaths and self.random.random() < 0.02:
                deaths -= 1
                living = [worker for worker in self.workers if worker.lives]
                if len(living) > 1:
                    events = [(self.die, self.random.choice(living))]
            if not events:
                return not any(worker.lives for worker in self.workers)
            act, subject = self.random.choice(events)
            act(subject)
        return False

    def enabled(self, worker):
        """What a worker can do now."""
        for function in worker.functions:
            if function.waits_for not in worker.pending:
                yield (lambda _, f=function, w=worker: self.go_on(w, f)), None
        if worker.state == "works":
            yield self.work, worker
        elif not worker.pending and worker.answer is None:
            yield self.report, worker
        elif worker.answer is not None and worker.answer.done():
            yield self.read, worker

    # --- work ---

    def call(self, worker, depth):
        to = self.random.randrange(self.size)
        self.calls += 1
        if self.workers[to].lives:
            worker.traffic.count(self.names[to], made=1)
            worker.pending[self.calls] = to
            self.links[worker.number, to].append(("call", worker.number, self.calls, depth))
        return self.calls

    def note(self, worker, depth):
        """Tell another worker something that has no answer, as that a reference is gone."""
        to = self.random.randrange(self.size)
        if self.workers[to].lives:
            worker.traffic.count(self.names[to], made=1)
            self.links[worker.number, to].append(("note", worker.number, depth))

    def work(self, worker):
        if worker.to_do:
            worker.to_do -= 1
            self.call(worker, depth=3)
        else:
            worker.state, worker.leader = "leaves", -1
            self.follow_next(worker)

    def go_on(self, worker, function):
        if function.calls:
            function.calls -= 1
            call = self.call(worker, function.depth - 1)
            function.waits_for = call if self.random.random() < 0.5 else None
        else:
            worker.functions.remove(function)
            self.note(worker, depth=2)
            self.links[worker.number, function.caller].append(("answer", function.call))
            worker.traffic.count(self.names[function.caller], served=1)

    def deliver(self, link):
        kind, *content = self.links[link].popleft()
        worker = self.workers[link[1]]
        if not worker.lives:
            assert worker.state == "is dead" or kind == "lost", f"a message came to worker {link[1]}, which had left"
        elif kind == "lost":
            self.learn_of_loss(worker, *content)
        elif kind == "call":
            caller, call, depth = content
            worker.functions.append(Function(caller, call, depth, self.random.randrange(3) if depth else 0))
        elif kind == "note":
            caller, depth = content
            worker.traffic.count(self.names[caller], served=1)
            if depth:  # what was kept goes, and holds references itself
                self.note(worker, depth - 1)
        else:
            worker.pending.pop(content[0], None)

    # --- the end ---

    def follow_next(self, worker):
        """Turn to the next leader that lives, in the end to oneself."""
        worker.leader = next(n for n in range(worker.leader + 1, self.size) if self.workers[n].lives)
        worker.round, worker.answer = 0, None
        leader = self.workers[worker.leader]
        for other in self.workers:
            if other.state in ("is dead", "has left"):
                leader.rounds.lost(self.names[other.number])

    def report(self, worker):
        leader = self.workers[worker.leader]
        if not leader.lives:
            self.follow_next(worker)
            return
        counts = worker.traffic.counts(len(worker.functions))
        worker.answer = leader.rounds.report(worker.round, worker.number, counts)
        worker.round += 1

    def read(self, worker):
        sums, worker.answer = worker.answer.value(), None
        if sums.over:
            self.require_that_nothing_goes_on()
            worker.state = "has left"
            self.close(worker)

    def require_that_nothing_goes_on(self):
        for worker in self.workers:
            if worker.lives:
                assert not worker.functions, f"worker {worker.number} still runs something"
                assert not worker.pending, f"worker {worker.number} still waits for an answer"
        for (a, b), queue in self.links.items():
            if self.workers[a].lives and self.workers[b].lives:
                assert not queue, f"{list(queue)} is still on its way from {a} to {b}"

    def die(self, worker):
        """What it has sent, and what was sent to it, is lost."""
        worker.state = "is dead"
        worker.functions.clear()
        for other in self.workers:
            self.links[worker.number, other.number].clear()
            self.links[other.number, worker.number].clear()
        self.close(worker)

    def close(self, worker):
        """Its connections end, which those at the other ends learn one after another."""
        for other in self.workers:
            self.links[worker.number, other.number].append(("lost", worker.number))

    def learn_of_loss(self, worker, lost):
        """Calls to who is dead fail, its own are of no use any more, and nobody follows it."""
        worker.functions = [f for f in worker.functions if f.caller != lost]
        worker.pending = {call: to for call, to in worker.pending.items() if to != lost}
        worker.traffic.lost(self.names[lost])
        worker.rounds.lost(self.names[lost])
        if worker.leader == lost:
            self.follow_next(worker)


@settings(deadline=None, max_examples=400)
@given(st.integers(1, 5), st.integers(0, 2**32))
def test_all_leave_when_nothing_goes_on_any_more(size, seed):
    assert Job(size, Random(seed)).run(deaths=0)


@settings(deadline=None, max_examples=400)
@given(st.integers(2, 5), st.integers(1, 3), st.integers(0, 2**32))
def test_survivors_leave_whoever_dies(size, deaths, seed):
    assert Job(size, Random(seed)).run(deaths)
