"""Carries out the acts of a node over a backend and a store, for the threads of the node, and keeps it alive there."""

from __future__ import annotations

import logging
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any, TypeVar

from weft._comm.deadline import Deadline
from weft._comm.store import PrefixStore, Store
from weft.distributed.elastic.rendezvous._member import (
    BELL,
    Get,
    Member,
    Read,
    Remove,
    Request,
    Steps,
    Swap,
    Under,
    Write,
)
from weft.distributed.elastic.rendezvous._round import Node, Notice, Rules, decode_notice, encode_notice
from weft.distributed.elastic.rendezvous.utils import fact
from weft.errors import DistStoreError, PeerGoneError, RendezvousConnectionError, RendezvousError

_log = logging.getLogger(__name__)

Token = Any
"""What a backend names a version of its state by."""

_T = TypeVar("_T")
_NONE = b"-"  # stands for no value, which a place or a record never is
_RETRY_PAUSE = 0.25
_GLANCE = 0.25  # seconds for which the clerk listens for the bell before it looks whether it is to stop
STORE_FAILED = "The connection to the C10d store has failed. See inner exception for details."
"""What PyTorch says of it, with which errors begin."""


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


@contextmanager
def store_failures() -> Iterator[None]:
    """Raise a `RendezvousConnectionError` for what a store raises."""
    try:
        yield
    except RendezvousError:
        raise
    except PeerGoneError as error:
        raise RendezvousConnectionError(
            f"{STORE_FAILED} The node that serves the rendezvous has ended, and the state of the job has gone with it; "
            f"start it again, or keep the state in etcd ({fact(error)})"
        ) from error
    except (RuntimeError, ValueError, OSError) as error:  # what stores of users raise, too
        raise RendezvousConnectionError(f"{STORE_FAILED} {error}") from error


class Ledger:
    """The shared state as one node sees it and writes it; threads of the node may use it at once."""

    def __init__(self, backend: RendezvousBackend, store: Store, run_id: str, node: Node, rules: Rules) -> None:
        self._backend = backend
        self._store = PrefixStore(f"weft.rendezvous.{run_id}.nodes", store)
        self._lock = threading.Lock()
        self._read_at = time.monotonic()
        self.member = Member(node, rules, time.monotonic)
        self.failing_since: float | None = None
        self.failure: RendezvousConnectionError | None = None

    @property
    def notice(self) -> Notice:
        """The notice as it was read last."""
        return self.member.notice

    def take(self, act: Steps[_T]) -> _T:
        """Carry out an act of the member."""
        answer = None
        with self._lock, self._noting_failures():
            while True:
                try:
                    request = act.send(answer)
                except StopIteration as end:
                    return end.value
                answer = self._carried_out(request)

    def insist(self, act: Callable[[], Steps[_T]], patience: float) -> _T:
        """The same, over again while the backend fails, for as long as `patience`."""
        deadline = Deadline(patience)
        while True:
            try:
                return self.take(act())
            except RendezvousConnectionError as error:
                if deadline.expired or isinstance(error.__cause__, PeerGoneError):
                    raise
                _log.info("the rendezvous fails, trying again: %s", error)
            time.sleep(_RETRY_PAUSE)

    def await_bell(self, seconds: float) -> bool:
        """Wait until a node calls the clerk; false where none has."""
        with store_failures():
            try:
                self._store.wait([BELL], timedelta(seconds=seconds))
            except DistStoreError:
                return False
        return True

    def _carried_out(self, request: Request) -> Any:
        match request:
            case Read():
                return self._read(self._backend.get_state())
            case Swap(notice, token):
                answer = self._backend.set_state(encode_notice(notice), token)
                if answer is None:
                    return *self._read(self._backend.get_state()), False
                return *self._read(answer[:2]), answer[2]
        with store_failures():
            match request:
                case Get(key):
                    data = self._store.compare_set(key, _NONE, _NONE)  # which waits for no value, and sets none
                    return None if data == _NONE else data
                case Write(pairs):
                    self._store.multi_set(list(pairs), list(pairs.values()))
                case Remove(key):
                    self._store.delete_key(key)
                case Under(prefix):
                    return self._store.values_under(prefix)

    def _read(self, state: tuple[bytes, Token] | None) -> tuple[Notice, Token | None]:
        now = time.monotonic()
        if self.failing_since is not None:
            self.member.excuse(now - self._read_at)
        self._read_at = now
        return (Notice(), None) if state is None else (decode_notice(state[0]), state[1])

    @contextmanager
    def _noting_failures(self) -> Iterator[None]:
        try:
            yield
        except RendezvousConnectionError as error:
            self.failing_since = self.failing_since or time.monotonic()
            self.failure = error
            raise
        self.failing_since = self.failure = None


class Keeper:
    """A thread that shows the node alive, looks at the others, and works as the clerk where this node is."""

    def __init__(self, ledger: Ledger, interval: float, patience: float) -> None:
        self._ledger = ledger
        self._interval = interval
        self._patience = patience
        self._stopped = threading.Event()
        self._called = threading.Event()
        self._thread = threading.Thread(target=self._run, name="rendezvous keep-alive", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        due = time.monotonic() + self._interval
        while not self._stopped.is_set():
            start = time.monotonic()
            beat, pause = start >= due, self._interval
            try:
                self._ledger.take(self._ledger.member.tend(beat=beat))
                pause = min(self._interval, self._ledger.member.reading_pause())
                if beat:
                    due = start + self._interval
            except RendezvousError as error:
                _log.info("keep-alive of the rendezvous failed, trying again: %s", error)
            now = time.monotonic()
            self._rest(now + pause, now + (now - start))

    def _rest(self, end: float, earliest: float) -> None:
        """Wait until it is time, or a call, but not before `earliest`, so that half of the time is left to others."""
        self._stopped.wait(earliest - time.monotonic())
        while not self._stopped.is_set() and not self._called.is_set() and (left := end - time.monotonic()) > 0:
            if not self._ledger.member.is_clerk:
                self._called.wait(left)
                continue
            try:
                if self._ledger.await_bell(min(left, _GLANCE)):
                    break
            except RendezvousError as error:
                _log.info("the rendezvous fails: %s", error)
                self._stopped.wait(left)
        self._called.clear()

    def call(self) -> None:
        """Have it look now."""
        self._called.set()

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
        self._called.set()
        self._thread.join(timeout=5)
