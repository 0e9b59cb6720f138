"""The workers of a job, as its store knows them."""

from __future__ import annotations

import json
from typing import NamedTuple

from weft._comm.deadline import Deadline
from weft._comm.store import Store
from weft.distributed.rpc._place import Record, Ways, reach
from weft.errors import DistNetworkError, DistStoreError, RpcError

_LOOK_SECONDS = 5.0  # for which a worker may take to show that it lives


class WorkerInfo(NamedTuple):
    """Name and number of a worker; `get_worker_info` gives it."""

    name: str
    id: int

    def __repr__(self) -> str:
        return f"WorkerInfo(id={self.id}, name={self.name})"


class Workers:
    """Names, numbers and places."""

    def __init__(self, store: Store, me: WorkerInfo, ways: Ways) -> None:
        self.me = me
        self.store = store
        self._ways = ways
        self._known: dict[str | int, WorkerInfo] = {}

    def enter(self, record: Record) -> None:
        """Tell where this worker listens. `RuntimeError` where a living one has its name or its number."""
        mine = json.dumps({"name": self.me.name, "id": self.me.id, "place": dict(record)})
        for key in (f"id/{self.me.id}", f"name/{self.me.name}"):
            found = self.store.compare_set(key, "", mine).decode()
            while found != mine:
                if found:
                    self._require_dead(found)
                before, found = found, self.store.compare_set(key, found, mine).decode()
                if found == before:  # the store gives back what was expected where there is no value
                    found = self.store.compare_set(key, "", mine).decode()

    def _require_dead(self, entry: str) -> None:
        other = json.loads(entry)
        try:
            reach(other["place"], self._ways, f"{self.me.id} {self.me.name}", Deadline(_LOOK_SECONDS))[0].close()
        except (DistNetworkError, OSError):
            return
        what = f"name {self.me.name}" if other["name"] == self.me.name else f"rank {self.me.id}"
        raise RpcError(
            f"RPC worker {what} is not unique. Worker {other['id']} ({other['name']}) has it already; give each worker "
            "its own name and rank"
        )

    def leave(self) -> None:
        """Forget this worker."""
        self.store.delete_key(f"name/{self.me.name}")
        self.store.delete_key(f"id/{self.me.id}")

    def find(self, to: str | int) -> WorkerInfo | None:
        """The worker of a name or a number, None where there is none."""
        found = self._known.get(to)
        if found is None and (entry := self._entry(to)) is not None:
            found = self._known[to] = WorkerInfo(entry["name"], entry["id"])
        return found

    def forget(self, worker: WorkerInfo) -> None:
        """A worker has ended; another one may come under its name or number."""
        for key in worker:
            if self._known.get(key) == worker:
                del self._known[key]

    def place(self, worker: WorkerInfo) -> Record | None:
        """Where a worker listens now, None where it is gone."""
        entry = self._entry(worker.name)
        return None if entry is None else entry["place"]

    def _entry(self, to: str | int) -> dict | None:
        key = f"name/{to}" if isinstance(to, str) else f"id/{to}"
        try:
            return json.loads(self.store.get(key)) if self.store.check([key]) else None
        except DistStoreError:
            return None  # deleted in between
