"""Rendezvous over any backend with compare-and-set: nodes may join, leave and fail."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable
from datetime import timedelta
from itertools import count

from weft._comm.deadline import Deadline
from weft._comm.stores import keys
from weft._comm.stores.store import PrefixStore, Store
from weft._comm.stores.tcp_store import TCPStore
from weft._comm.transport.addresses import own_address
from weft._comm.transport.sockets import address_text
from weft.distributed.elastic.rendezvous._backend import RendezvousBackend as RendezvousBackend
from weft.distributed.elastic.rendezvous._backend import Token as Token
from weft.distributed.elastic.rendezvous._executor import Executor
from weft.distributed.elastic.rendezvous._keep_alive import KeepAlive
from weft.distributed.elastic.rendezvous._member import JoinState
from weft.distributed.elastic.rendezvous._requests import Operation
from weft.distributed.elastic.rendezvous._round import Node
from weft.distributed.elastic.rendezvous._settings import RendezvousSettings as RendezvousSettings
from weft.distributed.elastic.rendezvous._settings import RendezvousTimeout as RendezvousTimeout
from weft.distributed.elastic.rendezvous._settings import address_of, settings_of
from weft.distributed.elastic.rendezvous.api import (
    RendezvousHandler,
    RendezvousInfo,
    RendezvousParameters,
    RendezvousStoreInfo,
)
from weft.distributed.elastic.rendezvous.utils import WaitNotice
from weft.errors import (
    ArgumentError,
    RendezvousClosedError,
    RendezvousError,
    RendezvousStateError,
    RendezvousTimeoutError,
)

_log = logging.getLogger(__name__)

_node_numbers = count()


class DynamicRendezvousHandler(RendezvousHandler):
    """Brings between `min_nodes` and `max_nodes` nodes together, as often as nodes join, leave, or fail.

    Args:
        node: this launcher.
        settings: limits and times.
        backend: where the shared state is.
        store: for data exchanged by the nodes of a round; workers use it, too, if it is a `TCPStore`.
    """

    def __init__(self, node: Node, settings: RendezvousSettings, backend: RendezvousBackend, store: Store) -> None:
        self._node = node
        self._settings = settings
        self._backend = backend
        self._store = store
        self._executor = Executor(backend, store, settings.run_id, node, settings.rules)
        self._member = self._executor.member
        self._keep_alive: KeepAlive | None = None
        self._server: TCPStore | None = None

    @classmethod
    def from_backend(
        cls,
        run_id: str,
        store: Store,
        backend: RendezvousBackend,
        min_nodes: int,
        max_nodes: int,
        local_addr: str | None = None,
        timeout: RendezvousTimeout | None = None,
        keep_alive_interval: int | float | timedelta = 5,
        keep_alive_max_attempt: int = 3,
        patience: float = 60,
    ) -> DynamicRendezvousHandler:
        """A handler for this process."""
        interval = keep_alive_interval
        if not isinstance(interval, timedelta):
            interval = timedelta(seconds=interval)
        settings = RendezvousSettings(
            run_id,
            min_nodes,
            max_nodes,
            timeout or RendezvousTimeout(),
            interval,
            keep_alive_max_attempt,
            timedelta(seconds=patience),
        )
        return cls(this_node(local_addr or own_address()), settings, backend, store)

    @property
    def settings(self) -> RendezvousSettings:
        """Limits and times."""
        return self._settings

    def get_backend(self) -> str:
        return self._backend.name

    @property
    def use_agent_store(self) -> bool:
        return True

    def get_run_id(self) -> str:
        return self._settings.run_id

    def next_rendezvous(self) -> RendezvousInfo:
        self._server = None
        self._member.leave_round()
        self._await_place()
        number, rank = self._member.number, self._member.rank
        store = PrefixStore(keys.nodes_round(self._settings.run_id, number), self._store)
        return RendezvousInfo(store, rank, self._member.world_size, self._workers_store(rank, store), number)

    def _await_place(self) -> None:
        deadline, notice = Deadline(self._settings.timeout.join.total_seconds()), WaitNotice()
        patience, (pause, _) = self._settings.patience.total_seconds(), self._member.join_pauses
        while (join_state := self._executor.run_patiently(self._member.join, patience)) is JoinState.WAIT:
            if self._keep_alive is None:
                interval = self._settings.keep_alive_interval.total_seconds()
                self._keep_alive = KeepAlive(self._executor, interval, patience)
            # There is no leader yet, or it is silent: the keep-alive thread does the leader's work, and need not wait
            # for its next beat.
            if self._member.should_lead:
                self._keep_alive.wake()
            if deadline.expired:
                missing = self._what_is_missing()
                self._executor.run(self._member.quit())
                raise RendezvousTimeoutError(missing)
            notice.tell(self._what_is_awaited)
            time.sleep(pause)
            # Reads become rarer, so that many waiting nodes do not keep the backend busy.
            pause = min(2 * pause, self._member.join_pauses[1])
        if join_state is JoinState.CLOSED:
            raise RendezvousClosedError(
                f"job {self._settings.run_id!r} has ended on another node, {self._why_closed()}"
            )
        if join_state is JoinState.REFUSED:
            raise RendezvousStateError(
                f"nodes of job {self._settings.run_id!r} disagree about --nnodes: others have "
                f"{self._member.status.limits}, this one has {self._settings.rules.limits}"
            )

    def _why_closed(self) -> str:
        status = self._member.status
        if status.refused is None:
            return "so nobody may join it; see that node's output, and start a new job under another --rdzv-id"
        return (
            f"since nodes disagree about --nnodes: others have {status.limits}, that one has {status.refused}; "
            "start all of them with the same number"
        )

    def _what_is_awaited(self) -> str:
        present, least, most = self._member.status.num_members, self._settings.min_nodes, self._settings.max_nodes
        if self._has_no_place():
            return f"a place among the {most} nodes of job {self._settings.run_id!r}"
        nodes = str(most) if least == most else f"{least} to {most}"
        endpoint = "the same --rdzv-endpoint"
        if isinstance(self._store, TCPStore):
            endpoint = f"--rdzv-endpoint {address_text(self._store.host, self._store.port)}"
            if self._store.host == "localhost":  # other nodes cannot reach it
                endpoint += (
                    f", all with {address_text(self._node.addr, self._store.port)} if they are on other machines"
                )
        return f"other nodes: {present} of {nodes} have come; start them with {endpoint}"

    def _what_is_missing(self) -> str:
        waited = f"within {self._settings.timeout.join.total_seconds():g} s"
        if self._has_no_place():
            most = self._settings.max_nodes
            return f"no place among the {most} nodes of job {self._settings.run_id!r} became free {waited}"
        came = sorted(node.addr for node in self._executor.run(self._member.participants()))
        return (
            f"{len(came)} of at least {self._settings.min_nodes} nodes joined job {self._settings.run_id!r} {waited} "
            f"({', '.join(came)}); start the others with the same --rdzv-id and --rdzv-endpoint, or raise join_timeout "
            "in --rdzv-conf"
        )

    def _has_no_place(self) -> bool:
        """Whether this node still waits although there is a round, or there are enough other nodes for one."""
        status = self._member.status
        return status.complete or status.num_waiting > 0

    def _workers_store(self, rank: int, store: Store) -> RendezvousStoreInfo:
        """The address of the workers' store: the rendezvous server, if it is a `TCPStore`, else a server on rank 0."""
        if isinstance(self._store, TCPStore):
            return RendezvousStoreInfo(self._store.host, self._store.port)
        if rank == 0:
            addr = "127.0.0.1" if self._settings.max_nodes == 1 else self._node.addr
            self._server = TCPStore(addr, 0, is_master=True, wait_for_workers=False)
            return RendezvousStoreInfo.build(rank, store, addr, self._server.port)
        return RendezvousStoreInfo.build(rank, store)

    def is_closed(self) -> bool:
        self._executor.run(self._member.read())
        return self._member.status.closed

    def set_closed(self) -> None:
        self._executor.run(self._member.close())

    def num_nodes_waiting(self) -> int:
        """The number of nodes that wait for a round, as the keep-alive thread last read it. Never blocks.

        Raises `RendezvousConnectionError` if the backend has failed for longer than the settings' `patience`.
        """
        if self._keep_alive is not None:
            self._keep_alive.check()
        return self._member.num_late

    def num_nodes_lost(self) -> int:
        return 0 if self._keep_alive is None else self._member.num_lost

    def shutdown(self) -> bool:
        return self._end(self._member.close)

    def leave(self) -> bool:
        return self._end(self._member.quit)

    def _end(self, operation: Callable[[], Operation[None]]) -> bool:
        if self._keep_alive is not None:
            self._keep_alive.stop()
            self._keep_alive = None
        self._server = None
        since = self._executor.failing_since
        if since is not None and time.monotonic() - since >= self._settings.patience.total_seconds():
            return False
        try:
            self._executor.run_patiently(operation, self._settings.timeout.close.total_seconds())
        except RendezvousError as error:
            _log.info("the rendezvous %s could not be ended: %s", self._settings.run_id, error)
            return False
        return True


def this_node(address: str) -> Node:
    """A new `Node` for this process."""
    return Node(address, os.getpid(), next(_node_numbers))


def create_handler(store: Store, backend: RendezvousBackend, params: RendezvousParameters) -> DynamicRendezvousHandler:
    """A handler with the settings that options of the parameters give, see `settings_of`."""
    _require_store(store)
    return DynamicRendezvousHandler(this_node(address_of(params)), settings_of(params), backend, store)


def _require_store(store: object) -> None:
    if not isinstance(store, Store):
        raise ArgumentError(f"create_handler: store must be a Store, got {type(store).__name__}")
