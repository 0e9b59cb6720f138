"""Rendezvous over any backend that can compare and set: nodes join, leave, beat, and see each other come and go."""

from __future__ import annotations

import logging
import os
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from itertools import count
from typing import Any

from weft._comm.deadline import Deadline
from weft._comm.sockets import address_text
from weft._comm.store import PrefixStore, Store
from weft._comm.tcp_store import TCPStore
from weft.distributed.elastic.rendezvous._round import (
    Goal,
    Node,
    Round,
    Rules,
    Seen,
    Verdict,
    advance,
    decode,
    encode,
    excused,
    late,
    observe,
)
from weft.distributed.elastic.rendezvous._settings import RendezvousSettings as RendezvousSettings
from weft.distributed.elastic.rendezvous._settings import RendezvousTimeout as RendezvousTimeout
from weft.distributed.elastic.rendezvous._settings import address_of, settings_of
from weft.distributed.elastic.rendezvous.api import (
    RendezvousHandler,
    RendezvousInfo,
    RendezvousParameters,
    RendezvousStoreInfo,
)
from weft.distributed.elastic.rendezvous.utils import WaitNotice, fact, own_address
from weft.errors import (
    ArgumentError,
    PeerGoneError,
    RendezvousClosedError,
    RendezvousConnectionError,
    RendezvousError,
    RendezvousStateError,
    RendezvousTimeoutError,
)

_log = logging.getLogger(__name__)

Token = Any
"""What a backend names a version of its state by."""

_SHORTEST_PAUSE, _LONGEST_PAUSE = 0.01, 0.25
_LONGEST_SILENCE_OF_READS = 1.0

_node_numbers = count()


class RendezvousBackend(ABC):
    """Keeps one value that nodes replace by compare-and-set."""

    @property
    @abstractmethod
    def name(self) -> str:
        """Name of the backend."""

    @abstractmethod
    def get_state(self) -> tuple[bytes, Token] | None:
        """The value and a token for its version; None when nothing was set. `RendezvousConnectionError` if it fails."""

    @abstractmethod
    def set_state(self, state: bytes, token: Token | None = None) -> tuple[bytes, Token, bool] | None:
        """Set the value if the token names the present version.

        Returns the present value, its token, and whether it was set now; None when there is no value.
        """


class _Ledger:
    """The shared state as one node sees it and writes it; threads of the node may use it at once."""

    def __init__(self, backend: RendezvousBackend, node: Node, rules: Rules) -> None:
        self._backend = backend
        self._node = node
        self._rules = rules
        self._lock = threading.Lock()
        self._read_at = time.monotonic()
        self.seen = Seen()
        self.failing_since: float | None = None
        self.failure: RendezvousConnectionError | None = None

    @property
    def state(self) -> Round:
        """The state as it was read last."""
        return self.seen.state

    def read(self) -> None:
        """Look at the state."""
        with self._lock, self._noting_failures():
            self._look()

    def take(self, goal: Goal) -> Verdict:
        """Write what the goal wants, over again until nobody came between."""
        with self._lock, self._noting_failures():
            token = self._look()
            while True:
                state, verdict = advance(self.seen, self._node, goal, time.monotonic(), self._rules)
                if state == self.seen.state:
                    return verdict
                answer = self._backend.set_state(encode(state), token)
                if answer is None:
                    token = self._look()
                    continue
                data, token, was_set = answer
                self._note(decode(data))
                if was_set:
                    return verdict

    def insist(self, goal: Goal, patience: float) -> Verdict:
        """The same, over again while the backend fails, for as long as `patience`."""
        deadline = Deadline(patience)
        while True:
            try:
                return self.take(goal)
            except RendezvousConnectionError as error:
                if deadline.expired or isinstance(error.__cause__, PeerGoneError):
                    raise
                _log.info("the rendezvous fails, trying again: %s", error)
            time.sleep(_LONGEST_PAUSE)

    @contextmanager
    def _noting_failures(self) -> Iterator[None]:
        try:
            yield
        except RendezvousConnectionError as error:
            self.failing_since = self.failing_since or time.monotonic()
            self.failure = error
            raise
        self.failing_since = self.failure = None

    def _look(self) -> Token | None:
        found = self._backend.get_state()
        data, token = found or (None, None)
        self._note(Round() if data is None else decode(data))
        return token

    def _note(self, state: Round) -> None:
        now = time.monotonic()
        seen = self.seen if self.failing_since is None else excused(self.seen, now - self._read_at)
        self.seen = observe(seen, state, now, self._rules)
        self._read_at = now


class _Keeper:
    """A thread that shows the node alive and looks at the others."""

    def __init__(self, ledger: _Ledger, interval: float, patience: float) -> None:
        self._ledger = ledger
        self._interval = interval
        self._patience = patience
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="rendezvous keep-alive", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        due = time.monotonic()
        while not self._stopped.wait(min(self._interval, _LONGEST_SILENCE_OF_READS)):
            try:
                if time.monotonic() < due:
                    self._ledger.read()
                else:
                    self._ledger.take(Goal.BEAT)
                    due = time.monotonic() + self._interval
            except RendezvousError as error:
                _log.info("keep-alive of the rendezvous failed, trying again: %s", error)

    def check(self) -> None:
        """Raise `RendezvousConnectionError` once the backend has failed for too long."""
        since, failure = self._ledger.failing_since, self._ledger.failure
        if since is not None and time.monotonic() - since >= self._patience:
            if isinstance(failure, RendezvousConnectionError) and isinstance(failure.__cause__, PeerGoneError):
                raise failure  # says it all
            raise RendezvousConnectionError(
                f"the rendezvous has not answered for {time.monotonic() - since:.0f} s ({fact(failure)}); is the "
                "process that serves --rdzv-endpoint alive, and does the network lead there? Start this node again then"
            ) from failure

    def stop(self) -> None:
        """End the thread; a call to the backend that is under way is not waited for long."""
        self._stopped.set()
        self._thread.join(timeout=5)


class DynamicRendezvousHandler(RendezvousHandler):
    """Brings between `min_nodes` and `max_nodes` nodes together, as often as nodes come, go, or fail.

    Args:
        node: this launcher.
        settings: limits and times.
        backend: where the shared state is.
        store: what nodes of a round exchange data by; workers use it, too, if it is a `TCPStore`.
    """

    def __init__(self, node: Node, settings: RendezvousSettings, backend: RendezvousBackend, store: Store) -> None:
        self._node = node
        self._settings = settings
        self._backend = backend
        self._store = store
        self._ledger = _Ledger(backend, node, settings.rules)
        self._keeper: _Keeper | None = None
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
        patience = self._settings.patience.total_seconds()
        self._ledger.insist(Goal.LEAVE, patience)
        if self._keeper is None:
            self._keeper = _Keeper(self._ledger, self._settings.keep_alive_interval.total_seconds(), patience)
        self._await_place()
        state = self._ledger.state
        rank = state.world.index(self._node)
        store = PrefixStore(f"weft.rendezvous.{self._settings.run_id}.{state.number}", self._store)
        return RendezvousInfo(store, rank, len(state.world), self._workers_store(rank, store), state.number)

    def _await_place(self) -> None:
        deadline = Deadline(self._settings.timeout.join.total_seconds())
        pause, before, notice = _SHORTEST_PAUSE, self._ledger.state, WaitNotice()
        patience = self._settings.patience.total_seconds()
        while (verdict := self._ledger.insist(Goal.JOIN, patience)) is Verdict.WAIT:
            if deadline.expired:
                self._ledger.take(Goal.QUIT)
                raise RendezvousTimeoutError(self._what_is_missing(before))
            notice.tell(self._what_is_awaited)
            pause = _SHORTEST_PAUSE if self._ledger.state != before else min(2 * pause, _LONGEST_PAUSE)
            before = self._ledger.state
            time.sleep(pause)
        if verdict is Verdict.CLOSED:
            raise RendezvousClosedError(
                f"job {self._settings.run_id!r} has ended on another node, {self._why_closed()}"
            )
        if verdict is Verdict.REFUSED:
            raise RendezvousStateError(
                f"nodes of job {self._settings.run_id!r} disagree about --nnodes: others have "
                f"{self._ledger.state.limits}, this one has {(self._settings.min_nodes, self._settings.max_nodes)}"
            )

    def _why_closed(self) -> str:
        state = self._ledger.state
        if state.refused is None:
            return "so nobody may join it; see that node's output, and start a new job under another --rdzv-id"
        return (
            f"since nodes disagree about --nnodes: others have {state.limits}, that one has {state.refused}; "
            "start all of them with the same number"
        )

    def _what_is_awaited(self) -> str:
        state, least, most = self._ledger.state, self._settings.min_nodes, self._settings.max_nodes
        if self._node not in state.participants:
            return f"a place among the {most} nodes of job {self._settings.run_id!r}"
        nodes = str(most) if least == most else f"{least} to {most}"
        where = "the same --rdzv-endpoint"
        if isinstance(self._store, TCPStore):
            where = f"--rdzv-endpoint {address_text(self._store.host, self._store.port)}"
            if self._store.host == "localhost":  # which nobody else reaches
                where += f", all with {address_text(self._node.addr, self._store.port)} if they are on other machines"
        return f"other nodes: {len(state.participants)} of {nodes} have come; start them with {where}"

    def _what_is_missing(self, state: Round) -> str:
        waited = f"within {self._settings.timeout.join.total_seconds():g} s"
        if self._node in state.participants:
            came = ", ".join(sorted(node.addr for node in state.participants))
            return (
                f"{len(state.participants)} of at least {self._settings.min_nodes} nodes joined job "
                f"{self._settings.run_id!r} {waited} ({came}); start the others with the same --rdzv-id and "
                "--rdzv-endpoint, or raise join_timeout in --rdzv-conf"
            )
        return (
            f"no place among the {self._settings.max_nodes} nodes of job {self._settings.run_id!r} became free {waited}"
        )

    def _workers_store(self, rank: int, store: Store) -> RendezvousStoreInfo:
        """The rendezvous server itself if it speaks the stores' protocol, else a server in the node of rank 0."""
        if isinstance(self._store, TCPStore):
            return RendezvousStoreInfo(self._store.host, self._store.port)
        if rank == 0:
            addr = "127.0.0.1" if self._settings.max_nodes == 1 else self._node.addr
            self._server = TCPStore(addr, 0, is_master=True, wait_for_workers=False)
            return RendezvousStoreInfo.build(rank, store, addr, self._server.port)
        return RendezvousStoreInfo.build(rank, store)

    def is_closed(self) -> bool:
        self._ledger.read()
        return self._ledger.state.closed

    def set_closed(self) -> None:
        self._ledger.take(Goal.CLOSE)

    def num_nodes_waiting(self) -> int:
        """How many nodes came late, by what the keep-alive thread saw last; never waits for the backend.

        Raises `RendezvousConnectionError` when the backend has failed for longer than the settings' `patience`.
        """
        if self._keeper is not None:
            self._keeper.check()
        return late(self._ledger.state, self._settings.rules)

    def num_nodes_lost(self) -> int:
        state = self._ledger.state
        if state.closed or self._keeper is None:
            return 0
        if self._node not in state.participants:
            return 1  # the others took this node for dead
        return state.lost if state.complete else 0

    def shutdown(self) -> bool:
        return self._end(Goal.CLOSE)

    def leave(self) -> bool:
        return self._end(Goal.QUIT)

    def _end(self, goal: Goal) -> bool:
        if self._keeper is not None:
            self._keeper.stop()
            self._keeper = None
        self._server = None
        since = self._ledger.failing_since
        if since is not None and time.monotonic() - since >= self._settings.patience.total_seconds():
            return False
        try:
            self._ledger.insist(goal, self._settings.timeout.close.total_seconds())
        except RendezvousError as error:
            _log.info("the rendezvous %s could not be ended: %s", self._settings.run_id, error)
            return False
        return True


def this_node(address: str) -> Node:
    """A new node of this process."""
    return Node(address, os.getpid(), next(_node_numbers))


def create_handler(store: Store, backend: RendezvousBackend, params: RendezvousParameters) -> DynamicRendezvousHandler:
    """A handler by options of the parameters, as of `settings_of`."""
    if not isinstance(store, Store):
        raise ArgumentError(f"create_handler: store must be a Store, got {type(store).__name__}")
    return DynamicRendezvousHandler(this_node(address_of(params)), settings_of(params), backend, store)
