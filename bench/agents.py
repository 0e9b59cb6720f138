"""Agents of a job in simulated time, which join, start anew and leave; what they decide is the project's own."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterable
from typing import Any, NamedTuple

from tests.distributed.elastic.shared_state import SharedState

from bench.simulation import MEASURED, Ask, Costs, Load, Park, Process, Simulation, Sleep
from weft._comm.tree import children
from weft.distributed.elastic.agent.server._ranks import RoleInfo, glance_seconds, ranks
from weft.distributed.elastic.rendezvous._member import (
    BELL,
    Get,
    Member,
    Read,
    Remove,
    Steps,
    Swap,
    Under,
    Verdict,
    Write,
)
from weft.distributed.elastic.rendezvous._round import Node, Rules, encode_notice

_INTERVAL, _SILENCE = 5.0, 15.0  # seconds, as by default
_CLERK_GLANCE = 0.25


class Await(NamedTuple):
    """Wait until all keys are there, so many seconds at most; answers whether they are."""

    keys: list[str]
    seconds: float


class GetAll(NamedTuple):
    """The values of keys that are there."""

    keys: list[str]


class Store:
    """The store of a job: answers at once, or when keys have come."""

    def __init__(self) -> None:
        self.shared = SharedState()
        self._waiting: dict[str, list[Callable[[], None]]] = {}

    def carry_out(self, request: Any, answer: Callable[[Any, int, int], None], sim: Simulation) -> None:
        match request:
            case Await(keys, seconds):
                self._await(set(keys), seconds, answer, sim)
            case GetAll(keys):
                values = [self.shared.values[key] for key in keys]
                answer(values, sum(map(len, values)), len(keys))
            case _:
                value = self.shared.answer(request)
                answer(value, _answer_size(request, value), len(value) if isinstance(value, dict) else 0)
                if isinstance(request, Write):
                    for key in request.pairs:
                        for arrived in self._waiting.pop(key, ()):
                            arrived()

    def _await(self, keys: set[str], seconds: float, answer: Callable[[Any, int, int], None], sim: Simulation) -> None:
        missing = keys - self.shared.values.keys()
        open_ = bool(missing)
        if not open_:
            answer(True, 4, len(keys))
            return

        def arrived(key: str) -> None:
            nonlocal open_
            missing.discard(key)
            if open_ and not missing:
                open_ = False
                answer(True, 4, len(keys))

        def expired() -> None:
            nonlocal open_
            if open_:
                open_ = False
                sim.server.count(8)  # the waiter says that it waits no longer
                answer(False, 8, 0)

        for key in list(missing):
            self._waiting.setdefault(key, []).append(lambda key=key: arrived(key))
        sim.at(sim.now + seconds, expired)


def request_size(request: Any) -> int:
    """Bytes of a request to a `TCPStore`; the notice is the value of a key, in base64."""
    match request:
        case Read():
            return 40
        case Swap(notice, _):
            return 40 + 2 * _in_base64(encode_notice(notice))
        case Write(pairs):
            return sum(len(key) + len(value) + 8 for key, value in pairs.items())
        case Remove(key) | Under(key) | Get(key):
            return len(key) + 8
        case Await(keys) | GetAll(keys):
            return sum(len(key) + 4 for key in keys)
    raise AssertionError(request)


def _answer_size(request: Any, value: Any) -> int:
    match request:
        case Read() | Swap():
            return _in_base64(encode_notice(value[0]))
        case Get():
            return len(value or b"-")
        case Under():
            return sum(len(key) + len(found) + 8 for key, found in value.items())
    return 4


def _in_base64(data: bytes) -> int:
    return len(data) * 4 // 3


class Agent:
    """One agent: a process that wants places and starts workers, and one that keeps it alive, as in the launcher."""

    def __init__(self, sim: Simulation, at: int, rules: Rules) -> None:
        self.at = at
        self.sim = sim
        self.node = Node(f"10.{at >> 16}.{at >> 8 & 255}.{at & 255}", 1000 + at, 0)
        self.member = Member(self.node, rules, lambda: sim.now)
        self.joined: float | None = None  # when it had its ranks last; None while it has none
        self.left = False
        self.restarts = False  # its workers have failed
        self.ends = False  # its workers have finished
        self._called = False
        self._busy = False
        self._next: deque[Callable[[], None]] = deque()  # the acts that wait for the one that is under way

    def start(self) -> None:
        """Let it live from now on."""
        self.sim.spawn(self.at, self._main())

    def _main(self) -> Process:
        first = True
        while True:
            self.joined, self.restarts = None, False
            yield from self._join(first)
            first = False
            if not (yield from self._exchange()):
                continue
            self.joined = self.sim.now
            while not (self.ends or self.restarts or self._changed()):
                yield Sleep(0.1)  # it waits for its workers, and looks what the keeper has read
            if self.ends and (yield from self._come_together("finished")):
                break
        yield from self._come_together("seen")
        yield from self._act(self.member.close())
        self.left = True

    def _changed(self) -> bool:
        notice = self.member.notice
        return notice.number != self.member.number or notice.lost > 0 or notice.late(self.member._rules) > 0

    def _join(self, first: bool) -> Process:
        self.member.leave()
        pause = self.member.pauses()[0]
        while (yield from self._act(self.member.join())) is Verdict.WAIT:
            if first:
                first = False
                self.sim.spawn(self.at, self._keep())
            self._called = self._called or self.member.is_vacant()
            yield Sleep(pause)
            pause = min(2 * pause, self.member.pauses()[1])

    def _keep(self) -> Process:
        due = self.sim.now + _INTERVAL
        while not self.left:
            start = self.sim.now
            beat = start >= due
            yield from self._act(self.member.tend(beat=beat))
            if beat:
                due = start + _INTERVAL
            took = self.sim.now - start
            end = self.sim.now + min(_INTERVAL, self.member.reading_pause())
            yield Sleep(took)
            while not self._called and (left := end - self.sim.now) > 1e-9 and not self.left:
                if not self.member.is_clerk:
                    yield Sleep(min(left, 0.25) if self.joined is None else left)
                elif (yield from self._ask(Await([f"nodes/{BELL}"], min(left, _CLERK_GLANCE)))):
                    break
            self._called = False

    # --- between agents of a round ---

    def _exchange(self) -> Generator[Any, Any, bool]:
        """Tell the first agent of the workers, and hear from it which ranks they have."""
        rank, size = self.member.rank, self.member.notice.size
        yield from self._ask(Write({self._key("role", rank): RoleInfo("default", rank, 8).encode()}))
        if rank == 0:
            keys = [self._key("role", at) for at in range(size)]
            if not (yield from self._wait(keys)):
                return False
            told = ranks([RoleInfo.decode(data) for data in (yield from self._ask(GetAll(keys)))])
            yield from self._ask(Write({self._key("ranks", at): found.encode() for at, found in enumerate(told)}))
        mine = [self._key("ranks", rank)]
        return (yield from self._wait(mine)) and bool((yield from self._ask(GetAll(mine))))

    def _come_together(self, what: str) -> Generator[Any, Any, bool]:
        rank, size = self.member.rank, self.member.notice.size
        below = [self._key(what, child) for child in children(rank, size)]
        if below and not (yield from self._wait(below)):
            return False
        yield from self._ask(Write({self._key(what, rank or "all"): b"1"}))
        return (yield from self._wait([self._key(what, "all")]))

    def _wait(self, keys: list[str]) -> Generator[Any, Any, bool]:
        while not (yield from self._ask(Await(keys, glance_seconds(self.member.notice.size)))):
            if self._changed():
                return False
        return True

    def _key(self, what: str, at: int | str) -> str:
        return f"{self.member.number}/weft/agent/{what}/{at}"

    # --- messages ---

    def _act(self, act: Steps) -> Generator[Any, Any, Any]:
        """Carry out an act, unless another one of this agent is under way."""
        if self._busy:
            yield Park(self._next)  # it stays busy, for this act
        self._busy = True
        answer = None
        try:
            while True:
                request = act.send(answer)
                answer = yield from self._ask(_below("nodes/", request))
                if isinstance(request, Under):
                    yield Sleep(len(answer) * self.sim.costs.presence)
                    answer = {key.removeprefix("nodes/"): value for key, value in answer.items()}
        except StopIteration as end:
            return end.value
        finally:
            self._busy = bool(self._next)
            if self._next:
                self._next.popleft()()

    def _ask(self, request: Any) -> Generator[Any, Any, Any]:
        return (yield Ask(request, request_size(request)))


def _below(prefix: str, request: Any) -> Any:
    match request:
        case Write(pairs):
            return Write({prefix + key: value for key, value in pairs.items()})
        case Remove(key):
            return Remove(prefix + key)
        case Get(key):
            return Get(prefix + key)
        case Under(key):
            return Under(prefix + key)
    return request


class Job:
    """A number of agents over one store."""

    def __init__(self, size: int, costs: Costs = MEASURED, seed: int = 0, spare: int = 0) -> None:
        self.sim = Simulation(size, Store(), costs, seed)
        rules = Rules(max(size - spare, 1), size, 30.0, _SILENCE)
        self.agents = [Agent(self.sim, at, rules) for at in range(size)]

    def living(self) -> Iterable[Agent]:
        return (agent for agent in self.agents if self.sim.hosts[agent.at].lives)

    def clerk(self) -> int:
        """On which host the clerk is."""
        notice = self.sim.store.shared.notice
        return next(agent.at for agent in self.agents if agent.node == notice.clerk)

    def until_joined(self, number: int) -> bool:
        """Let things happen until all who live have ranks in a round; false where that takes too long."""
        waiting = set(self.living())

        def joined() -> bool:
            while waiting:
                agent = next(iter(waiting))
                if self.sim.hosts[agent.at].lives and (agent.joined is None or agent.member.number < number):
                    return False
                waiting.discard(agent)
            return True

        return self.sim.run(joined, 300)

    def join(self) -> tuple[Load, Load]:
        """All start within a tenth of a second, and join; what it costs the others, and the clerk."""
        for agent in self.agents:
            self.sim.at(self.sim.random.uniform(0, 0.1), agent.start)
        assert self.until_joined(0), "the agents did not come together"
        return self._loads()

    def idle(self, seconds: float = 10.0) -> tuple[Load, Load]:
        """Nothing happens but signs of life."""
        self.sim.mark()
        self.sim.run(lambda: False, seconds)
        return self._loads()

    def restart(self) -> tuple[Load, Load]:
        """The workers of one agent fail; all start anew."""
        self.sim.mark()
        number = self.agents[-1].member.number
        self.agents[-1].restarts = True
        assert self.until_joined(number + 1), "the agents did not start anew"
        return self._loads()

    def death(self, at: int) -> tuple[Load, Load]:
        """An agent dies; all others start anew."""
        number = self.agents[-1].member.number
        self.sim.mark()
        self.sim.kill(at)
        assert self.until_joined(number + 1), "the others did not start anew"
        return self._loads()

    def leave(self) -> tuple[Load, Load]:
        """The workers of all agents finish within a tenth of a second; all agents leave."""
        self.sim.mark()
        for agent in self.living():
            self.sim.at(
                self.sim.now + self.sim.random.uniform(0, 0.1), lambda agent=agent: setattr(agent, "ends", True)
            )
        waiting = set(self.living())

        def left() -> bool:
            while waiting and next(iter(waiting)).left:
                waiting.discard(next(iter(waiting)))
            return not waiting

        clerk = self.clerk()
        assert self.sim.run(left, 300), "the agents did not leave"
        return self._loads(clerk)

    def _loads(self, clerk: int | None = None) -> tuple[Load, Load]:
        clerk = self.clerk() if clerk is None else clerk
        special = {clerk, *(agent.at for agent in self.agents if agent.member.rank == 0)}
        everybody = frozenset(range(len(self.agents)))
        return self.sim.load(frozenset(special)), self.sim.load(everybody - special)
