"""How workers leave together, without sockets: a model of calls, nested calls and deaths, in every order.

What a worker does at the end is decided by the code of `shutdown()`; around it stand workers whose messages arrive, and
whose functions go on, in an order that hypothesis chooses.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Generator
from dataclasses import dataclass, field
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from weft._comm import tree
from weft.distributed.rpc._call_counts import CallCounter, Counts, bits
from weft.distributed.rpc._termination import (
    Ask,
    Await,
    Ended,
    FinishCalls,
    Query,
    Report,
    SendReport,
    Watch,
    detect_termination,
)
from weft.distributed.rpc._workers import WorkerInfo

_STEPS = 20_000  # more than any of these jobs takes, unless somebody waits for ever


@dataclass
class Function:
    """What a worker runs for a caller: it makes further calls one by one, and waits for each or for none."""

    caller: int
    call: int
    depth: int
    calls: int
    rest: int = 0  # for how many steps it does nothing
    waits_for: int | None = None


@dataclass
class Worker:
    """A worker: its calls that have no answer, the functions that it runs, and how far it is in `shutdown()`."""

    number: int
    call_counts: CallCounter = field(default_factory=CallCounter)
    pending: dict[int, int] = field(default_factory=dict)  # whom each call went to
    functions: list[Function] = field(default_factory=list)
    to_do: int = 0  # calls before `shutdown()`
    state: str = "works"  # or leaves, has left, is dead
    part: Generator | None = None  # `detect_termination`, and what it waits for
    step: object = None
    events: deque = field(default_factory=deque)
    watched: int = -1
    answers: dict = field(default_factory=dict)  # to what it has asked: by the first of each part

    @property
    def lives(self):
        return self.state in ("works", "leaves")


class Job:
    """Some workers, and the messages between them: in order between two of them, in any order else."""

    def __init__(self, size, random):
        self.random = random
        self.size = size
        self.workers = [Worker(number, to_do=random.randrange(4)) for number in range(size)]
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
        elif self.is_ready(worker):
            yield self.go_through, worker

    # --- work ---

    def call(self, worker, depth):
        to = self.random.randrange(self.size)
        self.calls += 1
        if self.workers[to].lives:
            worker.call_counts.count(self.names[to], sent=1)
            worker.pending[self.calls] = to
            self.links[worker.number, to].append(("call", worker.number, self.calls, depth))
        return self.calls

    def note(self, worker, depth):
        """Tell another worker something that has no answer, as that a reference is gone."""
        to = self.random.randrange(self.size)
        if self.workers[to].lives:
            worker.call_counts.count(self.names[to], sent=1)
            self.links[worker.number, to].append(("note", worker.number, depth))

    def work(self, worker):
        if worker.to_do:
            worker.to_do -= 1
            self.call(worker, depth=3)
        else:
            worker.state, worker.part = "leaves", detect_termination(worker.number, self.size)
            self.advance(worker, None)

    def go_on(self, worker, function):
        if function.rest:
            function.rest -= 1
        elif function.calls:
            function.calls -= 1
            call = self.call(worker, function.depth - 1)
            function.waits_for = call if self.random.random() < 0.5 else None
        else:
            worker.functions.remove(function)
            self.note(worker, depth=2)
            self.links[worker.number, function.caller].append(("answer", function.call))
            worker.call_counts.count(self.names[function.caller], served=1)

    def deliver(self, link):
        kind, *content = self.links[link].popleft()
        worker = self.workers[link[1]]
        if not worker.lives:
            assert worker.state == "is dead" or kind == "lost", f"a message came to worker {link[1]}, which had left"
        elif kind == "lost":
            self.learn_of_loss(worker, *content)
        elif kind == "query":
            worker.events.append(Query(*content))
        elif kind == "report":
            worker.answers[link[0]] = content[0]
        elif kind == "call":
            caller, call, depth = content
            calls, rest = self.random.randrange(3) if depth else 0, self.random.choice([0, 0, 30])
            worker.functions.append(Function(caller, call, depth, calls, rest))
        elif kind == "note":
            caller, depth = content
            worker.call_counts.count(self.names[caller], served=1)
            if depth:  # what was kept goes, and holds references itself
                self.note(worker, depth - 1)
        else:
            worker.pending.pop(content[0], None)

    # --- the end ---

    def is_ready(self, worker):
        """Whether there is what a worker's step waits for."""
        match worker.step:
            case Await(seconds):
                return worker.events or seconds is not None
            case FinishCalls():
                return not worker.pending
            case Ask(parts):
                return all(part.start in worker.answers for part in parts)

    def go_through(self, worker):
        match worker.step:
            case Await():
                self.advance(worker, worker.events.popleft() if worker.events else None)
            case FinishCalls():
                self.advance(worker, worker.call_counts.counts(len(worker.functions)))
            case Ask(parts):
                self.advance(worker, [worker.answers[part.start] for part in parts])

    def advance(self, worker, outcome):
        """Let a worker take its next step: up to where it waits for something."""
        try:
            worker.step = worker.part.send(outcome)
        except StopIteration as end:
            self.leave(worker, end.value)
            return
        match worker.step:
            case Watch(number):
                worker.watched = number
                if not self.workers[number].lives:
                    worker.events.append(Ended(number))
                self.advance(worker, None)
            case SendReport(query, report):
                self.links[worker.number, query.reply].append(("report", report))
                self.advance(worker, None)
            case Ask(parts, ended):
                worker.answers = {}
                for part in parts:
                    if self.workers[part.start].lives:
                        self.links[worker.number, part.start].append(("query", part.stop, ended, worker.number))
                    else:
                        worker.answers[part.start] = None

    def leave(self, worker, ended):
        self.require_that_nothing_goes_on()
        assert all(not self.workers[number].lives for number in ended)
        worker.state = "has left"
        self.close(worker)

    def require_that_nothing_goes_on(self):
        for worker in self.workers:
            if worker.lives:
                assert not worker.functions, f"worker {worker.number} still runs something"
                assert not worker.pending, f"worker {worker.number} still waits for an answer"
        for (a, b), queue in self.links.items():
            if self.workers[a].lives and self.workers[b].lives:
                on_way = [message for message in queue if message[0] not in ("query", "report", "lost")]
                assert not on_way, f"{on_way} is still on its way from {a} to {b}"

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
        """Calls to who is dead fail; functions that it has called go on, and are answered in vain."""
        worker.pending = {call: to for call, to in worker.pending.items() if to != lost}
        worker.call_counts.lost(self.names[lost])
        worker.answers.setdefault(lost, None)
        if worker.watched == lost:
            worker.events.append(Ended(lost))


@pytest.fixture(autouse=True, scope="module")
def deep_trees():
    """Few workers, and trees of several levels."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tree, "FAN_OUT", 2)
        yield


@settings(deadline=None, max_examples=400)
@given(st.integers(1, 7), st.integers(0, 2**32))
def test_all_leave_when_nothing_goes_on_any_more(size, seed):
    assert Job(size, Random(seed)).run(deaths=0)


@settings(deadline=None, max_examples=400)
@given(st.integers(2, 7), st.integers(1, 4), st.integers(0, 2**32))
def test_survivors_leave_whoever_dies(size, deaths, seed):
    assert Job(size, Random(seed)).run(deaths)


def test_a_call_of_a_dead_worker_does_not_stand_for_one_that_is_under_way():
    """Worker 2 has called 1 and died, which 1 does not know yet; something is on its way from 0 to 1."""
    note = Counts(sent=1, served=0, running=0, peers=bits([1]))
    call = Counts(sent=0, served=1, running=0, peers=bits([2]))
    assert not Report(note.plus(call), frozenset([2])).balanced
    assert Report(note.plus(call), frozenset()).balanced  # as it is where 2 lives, which has sent that many, too
