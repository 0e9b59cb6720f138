"""The main loop of an agent: rendezvous, start, monitor, restart. Subclasses start the processes."""

from __future__ import annotations

import logging
import signal
import sys
import time
from abc import abstractmethod
from collections.abc import Generator
from contextlib import contextmanager
from datetime import timedelta
from typing import TypeVar

from weft._base.types import Result
from weft._comm.deadline import Deadline
from weft._comm.stores import keys
from weft._comm.stores.store import Store
from weft.distributed.elastic.agent.server._exchange import (
    EXCHANGE_SECONDS,
    AwaitKeys,
    Exchange,
    ExchangeRequest,
    GetKeys,
    assign_ranks,
    poll_seconds,
    tree_barrier,
)
from weft.distributed.elastic.agent.server._ranks import RoleInfo
from weft.distributed.elastic.agent.server._report import Reporter
from weft.distributed.elastic.agent.server._worker_group import (
    DEFAULT_ROLE,
    ElasticAgent,
    RunResult,
    Worker,
    WorkerGroup,
    WorkerSpec,
    WorkerState,
)
from weft.distributed.elastic.events import Event
from weft.distributed.elastic.metrics import prof
from weft.distributed.elastic.multiprocessing._signals import SignalException
from weft.distributed.elastic.rendezvous._requests import SetKeys, run
from weft.distributed.elastic.rendezvous.utils import WaitNotice
from weft.errors import (
    DistError,
    DistNetworkError,
    DistStoreError,
    PeerGoneError,
    RendezvousConnectionError,
    RendezvousGracefulExitError,
    WorkerError,
)

_log = logging.getLogger(__name__)

_FAREWELL_SECONDS = 5.0

_T = TypeVar("_T")


class _MembersChangedError(DistError):
    """A node has left or joined while others waited for it."""


class SimpleElasticAgent(ElasticAgent):
    """An agent for one role; the base of agents that start processes in their own way.

    Args:
        spec: the workers.
        exit_barrier_timeout: seconds to wait, after the workers of this node have succeeded, for those of others.
        shutdown_timeout: seconds between the signal that ends workers and SIGKILL.
    """

    def __init__(self, spec: WorkerSpec, exit_barrier_timeout: float = 300, shutdown_timeout: int = 30) -> None:
        self._worker_group = WorkerGroup(spec)
        self._remaining_restarts = spec.max_restarts
        self._exit_barrier_timeout = exit_barrier_timeout
        self._shutdown_timeout = shutdown_timeout
        self._in_exit_barrier = False
        self._report = Reporter(self._worker_group)
        self._started_at: float | None = None

    def get_worker_group(self, role: str = DEFAULT_ROLE) -> WorkerGroup:
        return self._worker_group

    @abstractmethod
    def _start_workers(self, worker_group: WorkerGroup) -> dict[int, Result]:
        """Start the workers; returns their ids by local rank."""

    @abstractmethod
    def _stop_workers(self, worker_group: WorkerGroup) -> None:
        """Stop the workers in any state, also if there are none."""

    @abstractmethod
    def _monitor_workers(self, worker_group: WorkerGroup) -> RunResult:
        """Check the workers."""

    @abstractmethod
    def _shutdown(self, death_sig: signal.Signals = signal.SIGTERM, timeout: int = 30) -> None:
        """End the workers by the signal, and after `timeout` seconds by SIGKILL; release all resources."""

    def _await_change(self, timeout: float) -> None:
        """Return when a worker may have ended, or after `timeout` seconds."""
        time.sleep(timeout)

    @property
    def _restarts(self) -> int:
        return self._worker_group.spec.max_restarts - self._remaining_restarts

    @prof
    def run(self, role: str = DEFAULT_ROLE) -> RunResult:
        self._started_at = time.monotonic()
        death_sig = signal.SIGTERM
        try:
            result = self._invoke_run(role)
            self._report.result(result, self._restarts)
            self._report.workers(result, self._restarts, self._seconds)
            self._report.record(self.get_event_succeeded())
            return result
        # As with PyTorch, a node for which a job has no place ends well.
        except RendezvousGracefulExitError as reason:
            _log.info("[%s] this node is not needed: %s", self._worker_group.spec.role, reason)
            self._report.record(self.get_event_succeeded())
            return RunResult(WorkerState.SUCCEEDED)
        except Exception as error:
            if isinstance(error, SignalException):
                death_sig = error.sigval
            self._report.record(self.get_event_failed())
            raise
        finally:
            self._shutdown(death_sig, timeout=self._shutdown_timeout)

    @property
    def _seconds(self) -> float:
        """The time since the agent was started."""
        return 0.0 if self._started_at is None else time.monotonic() - self._started_at

    def get_event_succeeded(self) -> Event:
        """The event of an agent whose workers have all ended, with or without success."""
        return self._report.event("SUCCEEDED", self._restarts, self._seconds)

    def get_event_failed(self) -> Event:
        """The event of an agent that has failed, with the exception that is being handled."""
        error = sys.exception()
        raw_error = None if error is None else f"{type(error).__name__}: {error}"
        return self._report.event("FAILED", self._restarts, self._seconds, raw_error=raw_error)

    @contextmanager
    def record_duration(self, state: str) -> Generator[None]:
        """Record the event `torchelastic.worker.status.<state>` of the agent with the time that the block takes."""
        began = time.perf_counter()
        try:
            yield
        finally:
            duration_ms = (time.perf_counter() - began) * 1000
            self._report.record(self._report.event(state, self._restarts, self._seconds, duration_ms=duration_ms))

    def _invoke_run(self, role: str = DEFAULT_ROLE) -> RunResult:
        group, spec = self._worker_group, self._worker_group.spec
        _log.info("[%s] starting workers for entrypoint: %s", spec.role, spec.get_entrypoint_name())
        self._initialize_workers(group)
        while True:
            self._await_change(spec.monitor_interval)
            result = self._monitor_workers(group)
            group.state = result.state
            self._report.state(group.state, self._remaining_restarts)
            if self._is_over(result):
                return result

    def _is_over(self, result: RunResult) -> bool:
        """Whether the run has its result. Workers are restarted if that is necessary."""
        group, role = self._worker_group, self._worker_group.spec.role
        match result.state:
            case WorkerState.SUCCEEDED:
                # Other nodes may still fail and restart, and then need the workers of this one, which have finished.
                if self._exit_barrier():
                    return True
                _log.info("[%s] finished here, but the job starts anew on other nodes", role)
            case WorkerState.FAILED | WorkerState.UNHEALTHY if self._remaining_restarts > 0:
                left, most = self._remaining_restarts, group.spec.max_restarts
                _log.warning("[%s] workers %s, %d/%d restarts left", role, result.state.name, left, most)
                self._remaining_restarts -= 1
            case WorkerState.FAILED | WorkerState.UNHEALTHY:
                self._stop_workers(group)
                group.state = result.state = WorkerState.FAILED
                return True
            case WorkerState.HEALTHY:
                if not self._members_changed():
                    return False
                _log.info("[%s] nodes came or went, restarting workers", role)
            case _:
                raise WorkerError(f"[{role}] lost track of the workers ({result.state.name}); start this node again")
        self._restart_workers(group)
        return False

    def _members_changed(self) -> bool:
        handler = self._worker_group.spec.rdzv_handler
        return handler.num_nodes_waiting() > 0 or handler.num_nodes_lost() > 0

    @prof
    def _rendezvous(self, worker_group: WorkerGroup) -> None:
        """Find the other nodes, and the workers' ranks."""
        spec = worker_group.spec
        while True:
            with self.record_duration("RENDEZVOUS"):
                info = spec.rdzv_handler.next_rendezvous()
            try:
                with self.record_duration("ASSIGN_WORKER_RANKS"):
                    workers = self._assign_worker_ranks(info.store, info.rank, info.world_size, spec)
                break
            # A node that dies between its place in the round and the exchange would be waited for until the deadline.
            except _MembersChangedError:
                _log.info("[%s] a node was lost during the rendezvous, joining the next round", spec.role)
        self._tell_change(worker_group.group_world_size, info.world_size)
        store_info = info.bootstrap_store_info
        worker_group.workers = workers
        worker_group.store = info.store
        worker_group.group_rank = info.rank
        worker_group.group_world_size = info.world_size
        worker_group.master_addr = spec.master_addr or store_info.master_addr
        worker_group.master_port = spec.master_port or store_info.master_port
        worker_group.round = self._restarts if info.round is None else info.round

    def _tell_change(self, before: int | None, nodes: int) -> None:
        """Tell the user that workers are restarted because the number of nodes has changed."""
        if before is not None and before != nodes:
            _log.warning(
                "a node has %s; starting the workers again with %d node%s",
                "joined" if nodes > before else "left",
                nodes,
                "" if nodes == 1 else "s",
            )

    @prof
    def _assign_worker_ranks(
        self, store: Store, group_rank: int, group_world_size: int, spec: WorkerSpec
    ) -> list[Worker]:
        """Send this agent's number of workers to the agent of rank 0, and receive their global ranks."""
        info, advice = RoleInfo(spec.role, group_rank, spec.local_world_size), ""
        if spec.master_addr is not None:
            advice = f"; start them with --master-addr {spec.master_addr} --master-port {spec.master_port}"
        exchange = assign_ranks(info, group_world_size, advice)
        ranks = self._run_exchange(exchange, store, group_world_size, EXCHANGE_SECONDS)
        return [
            Worker(at, ranks.first + at, ranks.role_first + at, ranks.world_size, ranks.role_world_size)
            for at in range(spec.local_world_size)
        ]

    def _run_exchange(self, exchange: Exchange[_T], store: Store, size: int, seconds: float) -> _T:
        """Run an exchange between the agents of `size` nodes; all its waits together last at most `seconds`.

        Raises `_MembersChangedError` if nodes join or leave meanwhile.
        """
        deadline = Deadline(seconds)

        def answer(request: ExchangeRequest) -> object:
            match request:
                case SetKeys(pairs):
                    store.multi_set(list(pairs), list(pairs.values()))
                case GetKeys(wanted):
                    return store.multi_get(wanted)
                case AwaitKeys():
                    return self._missing_keys(store, request, timedelta(seconds=poll_seconds(size)), deadline)
            return None

        return run(exchange, answer)

    def _missing_keys(self, store: Store, awaited: AwaitKeys, poll: timedelta, deadline: Deadline) -> list[str]:
        """The keys that do not exist at the deadline. Every `poll`, this checks whether nodes have joined or left.

        Network failures are tolerated for as long as the rendezvous tolerates them.
        """
        wanted, notice = awaited.keys, WaitNotice()

        def purpose() -> str:
            return awaited.purpose.replace("{present}", str(sum(store.check([key]) for key in wanted)))

        while True:
            try:
                notice.tell(purpose)
                store.wait(wanted, min(poll, timedelta(seconds=deadline.left() or 0.001)))
                return []
            # The process that serves the store has ended: nothing will answer, however long one waits.
            except PeerGoneError:
                raise
            except (DistStoreError, DistNetworkError, RendezvousConnectionError, TimeoutError):
                if deadline.expired:
                    return [key for key in wanted if not store.check([key])]
                # A node that has died writes no key, so only the rendezvous can tell that waiting is in vain.
                if self._members_changed():
                    raise _MembersChangedError("the nodes of the job have changed") from None

    @prof
    def _initialize_workers(self, worker_group: WorkerGroup) -> None:
        """Do a rendezvous, then start the workers; they count as healthy until a check says otherwise."""
        self._rendezvous(worker_group)
        for local_rank, worker_id in self._start_workers(worker_group).items():
            worker = worker_group.workers[local_rank]
            worker.id = worker_id
            self._report.record(self._report.event("START", self._restarts, self._seconds, worker=worker))
        worker_group.state = WorkerState.HEALTHY

    @prof
    def _restart_workers(self, worker_group: WorkerGroup) -> None:
        """Stop the workers, do a rendezvous, and start them."""
        self._stop_workers(worker_group)
        worker_group.state = WorkerState.STOPPED
        self._initialize_workers(worker_group)

    def _exit_barrier(self) -> bool:
        """Wait for the workers of other nodes. False if these are restarted, so that this node must restart, too.

        If other nodes do not finish in time, this logs a warning and does not wait any longer.
        """
        group = self._worker_group
        assert group.store is not None, "workers ran without a rendezvous"
        rank, size, seconds = group.group_rank or 0, group.group_world_size or 1, self._exit_barrier_timeout
        # The watchdog's progress stands still here, and the health check must not take that for a hang.
        self._in_exit_barrier = True
        try:
            if not self._run_exchange(tree_barrier(keys.FINISHED, rank, size), group.store, size, seconds):
                _log.warning("other nodes did not finish within %g s", seconds)
                return True
            self._say_farewell(group.store, rank, size)
        except _MembersChangedError:
            return False
        # The workers of this node have succeeded; that the others cannot be heard of does not change the result.
        except DistError as error:
            _log.warning("finished here; other nodes cannot be waited for: %s", error)
        finally:
            self._in_exit_barrier = False
        return True

    def _say_farewell(self, store: Store, rank: int, size: int) -> None:
        """Wait until all nodes have read that all have finished, before the store is closed."""
        try:
            self._run_exchange(tree_barrier(keys.SEEN, rank, size), store, size, _FAREWELL_SECONDS)
        except (DistError, TimeoutError) as error:
            _log.info("another node has left already: %s", error)
