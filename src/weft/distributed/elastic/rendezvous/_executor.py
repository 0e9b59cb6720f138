"""Runs the operations of a node on a backend and a store, for all threads of the node."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from datetime import timedelta
from typing import TypeVar

from weft._comm.deadline import Deadline
from weft._comm.stores import keys
from weft._comm.stores.store import PrefixStore, Store
from weft.distributed.elastic.rendezvous._backend import RendezvousBackend, Token, store_failures
from weft.distributed.elastic.rendezvous._member import Member
from weft.distributed.elastic.rendezvous._requests import (
    DeleteKey,
    GetKey,
    Operation,
    ReadStatus,
    Request,
    Scan,
    SetKeys,
    SwapStatus,
    run,
)
from weft.distributed.elastic.rendezvous._round import Node, Rules
from weft.distributed.elastic.rendezvous._status import Status
from weft.errors import DistStoreError, PeerGoneError, RendezvousConnectionError

_log = logging.getLogger(__name__)

_T = TypeVar("_T")
_NO_VALUE = b"-"  # differs from every encoded rank and round
_RETRY_PAUSE = 0.25


class Executor:
    """Runs the operations of one member, one at a time. The backend holds the status; everything else is in a store.

    Attributes:
        member: the node's view, which makes the decisions.
        failing_since: the time of `time.monotonic` since which the backend or the store has failed; None while they
            work.
        failure: the last failure since then.
    """

    def __init__(self, backend: RendezvousBackend, store: Store, run_id: str, node: Node, rules: Rules) -> None:
        self._backend = backend
        self._store = PrefixStore(keys.nodes_of(run_id), backend.store or store)
        self._lock = threading.Lock()
        self._read_at = time.monotonic()
        self.member = Member(node, rules, time.monotonic)
        self.failing_since: float | None = None
        self.failure: RendezvousConnectionError | None = None

    def run(self, operation: Operation[_T]) -> _T:
        """Run an operation of the member; `RendezvousConnectionError` if the backend or the store fails."""
        with self._lock, self._noting_failures():
            return run(operation, self._answer)

    def run_patiently(self, operation: Callable[[], Operation[_T]], patience: float) -> _T:
        """Run an operation, and repeat it while it fails, for at most `patience` seconds."""
        deadline = Deadline(patience)
        while True:
            try:
                return self.run(operation())
            except RendezvousConnectionError as error:
                # A server whose process has ended is told at once; a link that is cut, or a server that is stopped, may
                # come back.
                if deadline.expired or isinstance(error.__cause__, PeerGoneError):
                    raise
                _log.info("the rendezvous fails, trying again: %s", error)
            time.sleep(_RETRY_PAUSE)

    def await_wake(self, seconds: float) -> bool:
        """Wait until a node wakes the leader; False after this many seconds."""
        with store_failures():
            try:
                self._store.wait([keys.WAKE], timedelta(seconds=seconds))
            except DistStoreError:
                return False
        return True

    def _answer(self, request: Request) -> object:
        match request:
            case ReadStatus():
                return self._decoded(self._backend.get_state())
            case SwapStatus(status, token):
                written = status.encode()
                answer = self._backend.set_state(written, token)
                if answer is None:  # the backend does not tell; equal bytes are as good as our own
                    state = self._backend.get_state()
                    return *self._decoded(state), state is not None and state[0] == written
                return *self._decoded(answer[:2]), answer[2]
            case _:
                return self._answer_of_store(request)

    def _answer_of_store(self, request: GetKey | SetKeys | DeleteKey | Scan) -> object:
        with store_failures():
            match request:
                case GetKey(key):
                    data = self._store.compare_set(key, _NO_VALUE, _NO_VALUE)  # reads without waiting; changes nothing
                    return None if data == _NO_VALUE else data
                case SetKeys(pairs):
                    self._store.multi_set(list(pairs), list(pairs.values()))
                case DeleteKey(key):
                    self._store.delete_key(key)
                case Scan(prefix):
                    return self._store.values_under(prefix)
        return None

    def _decoded(self, state: tuple[bytes, Token] | None) -> tuple[Status, Token | None]:
        now = time.monotonic()
        # While nobody could read, nobody could be heard: that time counts as no node's silence, or all would be taken
        # for dead when the backend is back.
        if self.failing_since is not None:
            self.member.note_outage(now - self._read_at)
        self._read_at = now
        return (Status(), None) if state is None else (Status.decode(state[0]), state[1])

    @contextmanager
    def _noting_failures(self) -> Generator[None]:
        try:
            yield
        except RendezvousConnectionError as error:
            self.failing_since = self.failing_since or time.monotonic()
            self.failure = error
            raise
        self.failing_since = self.failure = None
