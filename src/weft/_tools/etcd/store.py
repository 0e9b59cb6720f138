"""A store in etcd."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

from weft._comm.deadline import Deadline
from weft._comm.stores.store import Store, as_amount, as_key, as_keys, as_value, paired, wait_error
from weft._tools.etcd.client import EtcdClient, VersionedValue

_SHORTEST_WAIT = 0.005  # seconds


class EtcdStore(Store):
    """Keys under a prefix of etcd. They are removed when the client has not been used for two hours.

    A change is made exactly once, even if etcd's response is lost and the request repeated. `delete_key` may then say
    that a key which it has deleted did not exist.
    """

    def __init__(self, client: EtcdClient, prefix: str) -> None:
        self._client = client
        self._prefix = prefix

    def set(self, key: str, value: str | bytes) -> None:
        self._client.put(self._whole(key), as_value(value))

    def get(self, key: str) -> bytes:
        return self.multi_get([key])[0]

    def add(self, key: str, amount: int) -> int:
        more = as_amount(amount)
        while True:
            entry = self._client.get(self._whole(key))
            total = (int(entry.value) if entry else 0) + more
            if self._client.swap(self._whole(key), entry.revision if entry else 0, str(total).encode())[0]:
                return total

    def append(self, key: str, value: str | bytes) -> None:
        more = as_value(value)
        while True:
            before, revision = self._client.get(self._whole(key)) or (b"", 0)
            if self._client.swap(self._whole(key), revision, before + more)[0]:
                return

    def check(self, keys: Sequence[str]) -> bool:
        as_keys(keys)
        return None not in self._read(keys)[0]

    def wait(self, keys: Sequence[str], timeout: timedelta | float | None = None) -> None:
        self._await_values(keys, self._timeout_or_default(timeout))

    def multi_get(self, keys: Sequence[str]) -> list[bytes]:
        values = self._await_values(keys, self._timeout)
        return [values[key] for key in keys]

    def _await_values(self, keys: Sequence[str], limit: timedelta) -> dict[str, bytes]:
        as_keys(keys)
        deadline, values, missing = Deadline(limit.total_seconds()), dict[str, bytes](), list(keys)
        while missing:
            entries, revision = self._read(missing)
            values |= {key: entry.value for key, entry in zip(missing, entries, strict=True) if entry}
            missing = [key for key in missing if key not in values]
            if missing and deadline.expired:
                raise wait_error(as_keys(missing), limit)
            if missing:
                self._client.await_change(self._whole(missing[0]), revision, deadline.left() or _SHORTEST_WAIT)
        return values

    def compare_set(self, key: str, expected_value: str | bytes, desired_value: str | bytes) -> bytes:
        old, new = as_value(expected_value), as_value(desired_value)
        while True:
            entry = self._client.get(self._whole(key))
            if (entry.value if entry else b"") != old:
                return entry.value if entry else old
            if self._client.swap(self._whole(key), entry.revision if entry else 0, new)[0]:
                return new

    def delete_key(self, key: str) -> bool:
        return self._client.delete(self._whole(key))

    def num_keys(self) -> int:
        return len(self.list_keys())

    def list_keys(self) -> list[str]:
        return [key.removeprefix(self._prefix) for key in self._client.keys(self._prefix)]

    def values_under(self, prefix: str) -> dict[str, bytes]:
        entries = self._client.entries(self._whole(prefix))
        return {key.removeprefix(self._prefix): value for key, value in entries.items()}

    def multi_set(self, keys: Sequence[str], values: Sequence[str | bytes]) -> None:
        paired(keys, values)
        self._client.put_all({self._whole(key): as_value(value) for key, value in zip(keys, values, strict=True)})

    def _read(self, keys: Sequence[str]) -> tuple[list[VersionedValue | None], int]:
        return self._client.get_all([self._whole(key) for key in keys])

    def _whole(self, key: str) -> str:
        return self._prefix + as_key(key).decode(errors="surrogateescape")
