"""The registry of a job's workers, in its store."""

from __future__ import annotations

import json
import re
from typing import NamedTuple, TypeAlias

from weft._comm.deadline import Deadline
from weft._comm.stores import keys
from weft._comm.stores.store import Store
from weft._comm.transport.key import fingerprint
from weft.distributed.rpc._listener import LIVENESS_CHECK, ConnectOptions, Endpoint, connect
from weft.errors import DistError, DistNetworkError, DistStoreError, JobKeyError, RpcError

_NAME = re.compile(r"[A-Za-z0-9_:-]{1,127}")
_LEARN_AT_ONCE = 256  # largest number of workers that are all looked up at the start
_LOOK_SECONDS = 5.0  # in which a worker must answer a liveness check


class _WorkerInfo(NamedTuple):
    name: str
    id: int
    incarnation: int = 0


class WorkerInfo(_WorkerInfo):
    """Name and number of a worker; `get_worker_info` returns it. `RuntimeError` for an invalid name.

    `incarnation` is the number of workers that have had the number before: a worker that leaves and joins again is
    another worker.
    """

    __slots__ = ()

    def __new__(cls, name: str, id: int, incarnation: int = 0) -> WorkerInfo:
        check_name(name)
        return super().__new__(cls, name, id, incarnation)

    def __repr__(self) -> str:
        return f"WorkerInfo(id={self.id}, name={self.name})"


AnyWorker: TypeAlias = WorkerInfo | str | int
"""What names a worker in a call."""


def check_name(name: object) -> None:
    """Raise `RuntimeError` unless a name can be that of a worker."""
    if not isinstance(name, str):
        raise RpcError(f"Argument {name} must be of type <class 'str'> but got type {type(name)}")
    if not _NAME.fullmatch(name):
        raise RpcError(
            "Worker name must match ^[A-Za-z0-9-_:]*$, and must be non-empty and shorter than 128 chars, but got "
            f"{name!r}"
        )


class WorkerEntry(NamedTuple):
    """A worker, and its endpoint."""

    worker: WorkerInfo
    endpoint: Endpoint


class Workers:
    """Names, numbers and endpoints of the workers."""

    def __init__(self, store: Store, me: WorkerInfo, options: ConnectOptions) -> None:
        self.me = me
        self.store = store
        self._options = options
        self.key = "none" if options.in_memory else fingerprint()
        """The fingerprint of this worker's job key."""
        self.size: int | None = None
        """The number of workers, if it is fixed and all have joined; else None."""
        self.registered = False
        """Whether the store has this worker's endpoint."""
        self.names: dict[int, str] = {}
        """The names of all workers of such a job by number, including ended ones; empty until `learn` is called."""
        self._entries: dict[str | int, WorkerEntry] = {}  # removed when a worker is lost

    def register(self, endpoint: Endpoint) -> None:
        """Publish this worker's endpoint.

        `RuntimeError` if a living worker has its name or its number; `JobKeyError` if that worker also has another key.
        """
        mine = json.dumps({**self.me._asdict(), "endpoint": dict(endpoint)})
        before = self._claim(_key(self.me.id), mine)
        try:
            before = before | self._claim(_key(self.me.name), mine)
        # Otherwise the number of a worker that was refused for its name would stay taken.
        except BaseException:
            self.store.delete_key(_key(self.me.id))
            raise
        self.registered = True
        for number in before - {self.me.id}:  # numbers of earlier holders of this name
            self.store.delete_key(_key(number))

    def _claim(self, key: str, mine: str) -> set[int]:
        """Claim a key for this worker; returns the numbers of its earlier holders, which are dead."""
        holders: set[int] = set()
        holder = self.store.compare_set(key, "", mine).decode()
        # Several workers may try to replace a dead one at the same time; compare-and-set lets one of them win, and the
        # others then see a living holder.
        while holder != mine:
            if holder:
                holders.add(self._require_dead(holder).worker.id)
            before, holder = holder, self.store.compare_set(key, holder, mine).decode()
            if holder == before:  # if there is no value, the store returns the expected one
                holder = self.store.compare_set(key, "", mine).decode()
        return holders

    def _is_reachable(self, entry: WorkerEntry) -> bool:
        try:
            connect(entry.endpoint, self._options, LIVENESS_CHECK, Deadline(_LOOK_SECONDS))[0].close()
        # A worker that is stopped may go on; taking its name would make two workers of one.
        except TimeoutError:
            pass  # it is alive but busy
        except JobKeyError as error:
            raise JobKeyError(f"{self.me} cannot join {entry.worker}: {error}") from error
        except (DistNetworkError, OSError):
            return False
        return True

    def _require_dead(self, text: str) -> WorkerEntry:
        entry = _entry(text)
        if not self._is_reachable(entry):
            return entry
        other = entry.worker
        what = f"name {self.me.name}" if other.name == self.me.name else f"rank {self.me.id}"
        raise RpcError(
            f"RPC worker {what} is not unique. Worker {other.id} ({other.name}) has it already; give each worker "
            "its own name and rank"
        )

    def leave(self) -> None:
        """Remove this worker's endpoint."""
        self.store.delete_key(_key(self.me.name))
        self.store.delete_key(_key(self.me.id))

    def all_joined(self, size: int) -> None:
        """Note that all workers have joined. Up to 256 are looked up now, so that they are known after the store ends.

        In larger jobs they are looked up when they are called: a store cannot send all entries to thousands of workers.
        """
        self.size = size
        if size <= _LEARN_AT_ONCE:
            self.learn(size)

    def learn(self, size: int) -> None:
        """Look up all workers of a job of this size."""
        for text in self.store.multi_get([_key(number) for number in range(size)]):
            worker = self._remember(_entry(text)).worker
            self.names[worker.id] = worker.name

    def find(self, to: str | int) -> WorkerInfo | None:
        """The worker with a name or a number, or None. One that was found before may have ended since.

        `RuntimeError` if the store does not answer.
        """
        entry = self._entries.get(to) or self._look_up(to)
        return None if entry is None else entry.worker

    def everybody(self) -> list[WorkerInfo]:
        """All workers of a job of fixed size; otherwise those that are now in the store."""
        try:
            if self.size is not None:
                if not self.names:
                    self.learn(self.size)
                return [WorkerInfo(name, number) for number, name in sorted(self.names.items())]
            entries = self.store.values_under(keys.WORKER_NAMES).values()
            workers = [_entry(text).worker for text in entries]
        # Statistics and error texts are made from this; an incomplete answer serves them better than a failure.
        except DistError:  # a worker has left meanwhile, or the store has ended
            workers = [entry.worker for entry in self._entries.values()]
        return sorted({self.me, *workers}, key=lambda one: one.id)

    def find_again(self, worker: WorkerInfo) -> WorkerInfo | None:
        """The worker that now has this worker's name, or None; `worker` itself if the store does not answer."""
        try:
            entry = self._look_up(worker.name)
        except RpcError:
            return worker
        return None if entry is None else entry.worker

    def forget(self, worker: WorkerInfo) -> None:
        """Forget a worker that has ended; another one may take its name or number."""
        for key in (worker.name, worker.id):
            entry = self._entries.get(key)
            if entry is not None and entry.worker == worker:
                self._entries.pop(key, None)

    def endpoint(self, worker: WorkerInfo) -> Endpoint | None:
        """The endpoint of a worker; None if it has left."""
        entry = self._entries.get(worker.name)
        if entry is None or entry.worker != worker:
            entry = self._look_up(worker.name)
        return None if entry is None or entry.worker != worker else entry.endpoint

    def _look_up(self, to: str | int) -> WorkerEntry | None:
        key = _key(to)
        try:
            return self._remember(_entry(self.store.get(key))) if self.store.check([key]) else None
        except DistStoreError:
            return None  # deleted meanwhile
        except DistError as error:
            raise RpcError(f"{self.me} cannot look for worker {to}: {error}") from error

    def _remember(self, entry: WorkerEntry) -> WorkerEntry:
        self._entries[entry.worker.name] = self._entries[entry.worker.id] = entry
        return entry


def _key(to: str | int) -> str:
    return keys.worker_name(to) if isinstance(to, str) else keys.worker_number(to)


def _entry(text: str | bytes) -> WorkerEntry:
    fields = json.loads(text)
    endpoint = fields.pop("endpoint")
    return WorkerEntry(WorkerInfo(**fields), endpoint)
