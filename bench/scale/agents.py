"""Agents of a job in simulated time, which join, restart and leave; what they decide is the project's own."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterable
from typing import Any

from bench.scale.simulation import TCP_STORE, Ask, Costs, Load, Park, Process, Simulation, Sleep
from bench.scale.store import NODES, Store, WaitForKeys, of_rendezvous, request_size
from weft._comm.stores import keys
from weft.distributed.elastic.agent.server._exchange import (
    AwaitKeys,
    Exchange,
    assign_ranks,
    poll_seconds,
    tree_barrier,
)
from weft.distributed.elastic.agent.server._ranks import RoleInfo
from weft.distributed.elastic.rendezvous._keep_alive import LISTEN_SECONDS
from weft.distributed.elastic.rendezvous._member import JoinState, Member
from weft.distributed.elastic.rendezvous._requests import Operation, Scan, SetKeys
from weft.distributed.elastic.rendezvous._round import Node, Rules

_INTERVAL, _SILENCE, _LAST_CALL = 5.0, 15.0, 30.0  # seconds, as by default
_MONITOR_SECONDS = 0.1  # between looks at the membership, as by default
_STOP_POLL_SECONDS = 0.25  # the longest rest of a keep-alive thread that can be woken up
_LOCAL_WORKERS = 8
_PATIENCE = 300.0  # simulated seconds for an event


class Agent:
    """One agent: a process that wants places and starts workers, and one that keeps it alive, as in the launcher."""

    def __init__(self, sim: Simulation, at: int, rules: Rules) -> None:
        self.at = at
        self.sim = sim
        self.node = Node(f"10.{at >> 16}.{at >> 8 & 255}.{at & 255}", 1000 + at, 0)
        self.member = Member(self.node, rules, lambda: sim.now)
        self.joined = False  # whether it has its ranks
        self.left = False
        self.restarts = False  # its workers have failed
        self.ends = False  # its workers have finished
        self._keeps_alive = False
        self._woken = False
        self._busy = False
        self._next: deque[Callable[[], None]] = deque()  # the operations that wait for the one that is under way

    def start(self) -> None:
        """Let it live from now on."""
        self.sim.spawn(self.at, self._main())

    def _main(self) -> Process:
        while True:
            self.joined, self.restarts = False, False
            yield from self._join()
            info = RoleInfo("default", self.member.rank, _LOCAL_WORKERS)
            if (yield from self._run_exchange(assign_ranks(info, self.member.world_size))) is None:
                continue
            self.joined = True
            while not (self.ends or self.restarts or self._members_changed()):
                yield Sleep(_MONITOR_SECONDS)
            if self.ends and (yield from self._barrier(keys.FINISHED)):
                break
        yield from self._barrier(keys.SEEN)
        yield from self._run(self.member.close())
        self.left = True

    def _members_changed(self) -> bool:
        return self.member.num_lost > 0 or self.member.num_late > 0

    # --- the rendezvous ---

    def _join(self) -> Process:
        """As `DynamicRendezvousHandler.next_rendezvous` does."""
        self.member.leave_round()
        pause, _ = self.member.join_pauses
        while (yield from self._run(self.member.join())) is JoinState.WAIT:
            if not self._keeps_alive:
                self._keeps_alive = True
                self.sim.spawn(self.at, self._keep_alive())
            self._woken = self._woken or self.member.should_lead
            yield Sleep(pause)
            pause = min(2 * pause, self.member.join_pauses[1])

    def _keep_alive(self) -> Process:
        """As the thread of `KeepAlive` does."""
        due = self.sim.now + _INTERVAL
        while not self.left:
            start = self.sim.now
            beat = start >= due
            yield from self._run(self.member.tick(beat=beat))
            if beat:
                due = start + _INTERVAL
            end = self.sim.now + min(_INTERVAL, self.member.poll_seconds)
            yield Sleep(self.sim.now - start)
            yield from self._rest(end)

    def _rest(self, end: float) -> Process:
        while not self._woken and not self.left and (left := end - self.sim.now) > 1e-9:
            if not self.member.leads:
                yield Sleep(left if self.joined else min(left, _STOP_POLL_SECONDS))
            elif (yield from self._ask(WaitForKeys([NODES + keys.WAKE], min(left, LISTEN_SECONDS)))):
                break
        self._woken = False

    def _run(self, operation: Operation) -> Generator[Any, Any, Any]:
        """Carry out an operation, when no other one of this agent is under way."""
        if self._busy:
            yield Park(self._next)  # it stays busy, for this operation
        self._busy = True
        answer = None
        try:
            while True:
                request = operation.send(answer)
                answer = yield from self._ask(of_rendezvous(request))
                if isinstance(request, Scan):
                    yield Sleep(len(answer) * self.sim.costs.heartbeat)
        except StopIteration as end:
            return end.value
        finally:
            self._busy = bool(self._next)
            if self._next:
                self._next.popleft()()

    # --- between agents of a round ---

    def _barrier(self, key: str) -> Generator[Any, Any, bool | None]:
        return self._run_exchange(tree_barrier(key, self.member.rank, self.member.world_size))

    def _run_exchange(self, exchange: Exchange) -> Generator[Any, Any, Any]:
        """Carry out an exchange; None where nodes have come or gone meanwhile."""
        prefix, answer = f"{self.member.number}/", None
        try:
            while True:
                match exchange.send(answer):
                    case SetKeys(pairs):
                        answer = yield from self._ask(SetKeys({prefix + key: value for key, value in pairs.items()}))
                    case AwaitKeys(awaited):
                        if not (yield from self._wait([prefix + key for key in awaited])):
                            return None
                        answer = []
                    case request:
                        answer = yield from self._ask(type(request)([prefix + key for key in request.keys]))
        except StopIteration as end:
            return end.value

    def _wait(self, awaited: list[str]) -> Generator[Any, Any, bool]:
        while not (yield from self._ask(WaitForKeys(awaited, poll_seconds(self.member.world_size)))):
            if self._members_changed():
                return False
        return True

    def _ask(self, request: Any) -> Generator[Any, Any, Any]:
        return (yield Ask(request, request_size(request)))


class Job:
    """A number of agents over one store."""

    def __init__(self, size: int, costs: Costs = TCP_STORE, seed: int = 0, spare: int = 0) -> None:
        self.sim = Simulation(size, Store(), costs, seed)
        rules = Rules(max(size - spare, 1), size, _LAST_CALL, _SILENCE)
        self.agents = [Agent(self.sim, at, rules) for at in range(size)]

    def living(self) -> Iterable[Agent]:
        return (agent for agent in self.agents if self.sim.hosts[agent.at].lives)

    def leader(self) -> int:
        """On which host the leader is."""
        node = self.sim.store.shared.status.leader
        return next(agent.at for agent in self.agents if agent.node == node)

    def until_joined(self, number: int) -> bool:
        """Let things happen until all who live have ranks in a round; false where that takes too long."""
        waiting = set(self.living())

        def joined() -> bool:
            while waiting:
                agent = next(iter(waiting))
                if self.sim.hosts[agent.at].lives and (not agent.joined or agent.member.number < number):
                    return False
                waiting.discard(agent)
            return True

        return self.sim.run(joined, _PATIENCE)

    def join(self) -> tuple[Load, Load]:
        """All start within a tenth of a second, and join; what it costs the others, and the leader."""
        for agent in self.agents:
            self.sim.at(self.sim.random.uniform(0, 0.1), agent.start)
        assert self.until_joined(0), "the agents did not come together"
        return self._loads()

    def idle(self, seconds: float = 10.0) -> tuple[Load, Load]:
        """Nothing happens but heartbeats."""
        self.sim.mark()
        self.sim.run(lambda: False, seconds)
        return self._loads()

    def restart(self) -> tuple[Load, Load]:
        """The workers of one agent fail; all restart."""
        self.sim.mark()
        number = self.agents[-1].member.number
        self.agents[-1].restarts = True
        assert self.until_joined(number + 1), "the agents did not restart"
        return self._loads()

    def death(self, at: int) -> tuple[Load, Load]:
        """An agent dies; all others restart."""
        number = self.agents[-1].member.number
        self.sim.mark()
        self.sim.kill(at)
        assert self.until_joined(number + 1), "the others did not restart"
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

        leader = self.leader()
        assert self.sim.run(left, _PATIENCE), "the agents did not leave"
        return self._loads(leader)

    def _loads(self, leader: int | None = None) -> tuple[Load, Load]:
        leader = self.leader() if leader is None else leader
        special = {leader, *(agent.at for agent in self.agents if agent.member.rank == 0)}
        everybody = frozenset(range(len(self.agents)))
        return self.sim.load(frozenset(special)), self.sim.load(everybody - special)
