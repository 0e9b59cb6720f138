"""Stores: keys and values shared by the processes of a job."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from datetime import timedelta

from weft._comm.deadline import Deadline
from weft._comm.stores.table import Table, key_text
from weft.errors import ArgumentError, DistStoreError, QueueEmptyError, UnsupportedStoreError, ValueRangeError

DEFAULT_TIMEOUT = timedelta(seconds=300)
_NO_QUEUES = "queue support is not implemented. A HashStore and a TCPStore have queues"
QUEUE_EMPTY = "queue is empty"


class Store:
    """The interface of all stores. Keys are text, values are bytes (text is encoded as UTF-8).

    `get` and `wait` block until other processes have set the keys, and raise `DistStoreError` naming the missing ones
    after the store's timeout. Threads may share a store; a thread that waits keeps no other from working.
    """

    _timeout: timedelta = DEFAULT_TIMEOUT

    @property
    def timeout(self) -> timedelta:
        """How long `get` and `wait` wait."""
        return self._timeout

    def set_timeout(self, timeout: timedelta | float) -> None:
        """Set how long `get` and `wait` wait: a `timedelta`, or a float of seconds."""
        self._timeout = as_timeout("set_timeout", timeout)

    def _timeout_or_default(self, timeout: timedelta | float | None) -> timedelta:
        """How long a wait with this argument lasts."""
        return self._timeout if timeout is None else as_timeout("wait", timeout)

    def set(self, key: str, value: str | bytes) -> None:
        """Set the value of a key."""
        raise NotImplementedError

    def get(self, key: str) -> bytes:
        """The value of a key; waits until there is one."""
        raise NotImplementedError

    def add(self, key: str, amount: int) -> int:
        """Add to the number under the key (0 if there is none); returns the sum."""
        raise NotImplementedError

    def append(self, key: str, value: str | bytes) -> None:
        """Append to the value of the key."""
        raise NotImplementedError

    def check(self, keys: Sequence[str]) -> bool:
        """Whether all of the keys have values; does not wait."""
        raise NotImplementedError

    def wait(self, keys: Sequence[str], timeout: timedelta | float | None = None) -> None:
        """Wait until all of the keys have values."""
        raise NotImplementedError

    def compare_set(self, key: str, expected_value: str | bytes, desired_value: str | bytes) -> bytes:
        """Set `desired_value` if the value is `expected_value`, or if there is no value and `expected_value` is empty.

        Returns the present value; `expected_value` if there is none.
        """
        raise NotImplementedError

    def delete_key(self, key: str) -> bool:
        """Remove the key; returns whether it existed."""
        raise NotImplementedError

    def num_keys(self) -> int:
        """The number of keys; as in PyTorch, a `TCPStore` and a `FileStore` count one key of their own."""
        raise NotImplementedError

    def list_keys(self) -> list[str]:
        """All keys."""
        raise NotImplementedError

    def values_under(self, prefix: str) -> dict[str, bytes]:
        """The keys with a prefix, and their values; does not wait."""
        return {key: self.get(key) for key in self.list_keys() if key.startswith(prefix) and self.check([key])}

    def multi_get(self, keys: Sequence[str]) -> list[bytes]:
        """The values of the keys; waits until all of them have one."""
        return [self.get(key) for key in keys]

    def multi_set(self, keys: Sequence[str], values: Sequence[str | bytes]) -> None:
        """Set several values."""
        paired(keys, values)
        for key, value in zip(keys, values, strict=True):
            self.set(key, value)

    def queue_push(self, key: str, value: str | bytes) -> None:
        """Append a value to the key's queue. A key's queue and its value are independent of each other.

        `wait` and `check` also accept a key whose queue is not empty.
        """
        raise UnsupportedStoreError(_NO_QUEUES)

    def queue_pop(self, key: str, block: bool = True) -> bytes:
        """Remove and return the first value of the key's queue; waits until there is one.

        Without `block`, an empty queue raises `QueueEmptyError`.
        """
        raise UnsupportedStoreError(_NO_QUEUES)

    def queue_len(self, key: str) -> int:
        """The number of values in the key's queue."""
        raise UnsupportedStoreError(_NO_QUEUES)

    def barrier(self, key: str, world_size: int, timeout: timedelta | float | None = None) -> None:
        """Wait until `world_size` callers have reached the barrier with this key. A key can be used once."""
        # Only the last one sets the key that all wait for, so each rank sends two requests however many there are.
        if self.add(f"{key}/num_members", 1) == world_size:
            self.set(f"{key}/last_member", "1")
        self.wait([f"{key}/last_member"], timeout)

    def clone(self) -> Store:
        """Another client of the same keys; a store within one process returns itself."""
        raise NotImplementedError

    def has_extended_api(self) -> bool:
        """Whether the store has `append`, `multi_get` and `multi_set`."""
        return all(
            getattr(type(self), name) is not getattr(Store, name) for name in ("append", "multi_get", "multi_set")
        )

    def close(self) -> None:
        """Release the store's resources; it cannot be used any more. Also called when nothing refers to it."""


def as_timeout(method: str, timeout: object) -> timedelta:
    """A time-out as a `timedelta`; as in PyTorch, a float is one in seconds, and an int is none."""
    if isinstance(timeout, float):
        return timedelta(seconds=timeout)
    if not isinstance(timeout, timedelta):
        raise ArgumentError(
            f"{method}(): timeout must be a timedelta, or a float of seconds, not {type(timeout).__name__} {timeout!r}"
        )
    return timeout


def as_key(key: object) -> bytes:
    """A key as bytes."""
    if isinstance(key, str):
        # A key that `list_keys` has decoded, of no UTF-8, finds its value again.
        return key.encode(errors="surrogateescape")
    if isinstance(key, bytes):
        return key
    raise ArgumentError(f"a key must be a str, not {type(key).__name__}")


def as_keys(keys: Sequence[str]) -> list[bytes]:
    """Keys as bytes."""
    if isinstance(keys, (str, bytes)):
        raise ArgumentError(f"keys must be a sequence of str, got the {type(keys).__name__} {keys!r}; write [{keys!r}]")
    return [as_key(key) for key in keys]


def as_value(value: object) -> bytes:
    """A value as bytes."""
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, (bytes, bytearray)):
        return bytes(value)
    if isinstance(value, memoryview):
        return value.tobytes()
    raise ArgumentError(f"a value must be a str or bytes, not {type(value).__name__}")


def as_amount(amount: object) -> int:
    """A number to add."""
    if not isinstance(amount, int) or not -(1 << 63) <= amount < 1 << 63:
        raise ArgumentError(f"add(): the amount must be an int of 64 bits, got {amount!r}")
    return int(amount)


def paired(keys: Sequence[str], values: Sequence[str | bytes]) -> None:
    """Refuse different numbers of keys and values."""
    if len(keys) != len(values):
        raise DistStoreError(
            f"multi_set: keys and values must be equally many, got {len(keys)} keys and {len(values)} values"
        )


def wait_error(keys: Sequence[bytes], timeout: timedelta) -> DistStoreError:
    """The error of a wait that has timed out."""
    listing = ", ".join(f"/{key_text(key)}" for key in keys[:16]) + (
        f" and {len(keys) - 16} more" if len(keys) > 16 else ""
    )
    return DistStoreError(
        f"wait timeout after {timeout / timedelta(milliseconds=1):.0f}ms, keys: {listing}; no process has set them: "
        "look whether the one that should is running, or give set_timeout() or wait() a longer timeout"
    )


class HashStore(Store):
    """A store within one process, for its threads."""

    def __init__(self) -> None:
        self._table = Table()
        self._changed = threading.Condition()

    def set(self, key: str, value: str | bytes) -> None:
        entry_key, data = as_key(key), as_value(value)
        with self._changed:
            self._table.values[entry_key] = data
            self._changed.notify_all()

    def get(self, key: str) -> bytes:
        return self.multi_get([key])[0]

    def add(self, key: str, amount: int) -> int:
        entry_key, increment = as_key(key), as_amount(amount)
        with self._changed:
            self._changed.notify_all()
            return self._table.add(entry_key, increment)

    def append(self, key: str, value: str | bytes) -> None:
        entry_key, data = as_key(key), as_value(value)
        with self._changed:
            self._table.append(entry_key, data)
            self._changed.notify_all()

    def has_extended_api(self) -> bool:
        return True

    def check(self, keys: Sequence[str]) -> bool:
        wanted = as_keys(keys)
        with self._changed:
            return not self._table.missing(wanted)

    def wait(self, keys: Sequence[str], timeout: timedelta | float | None = None) -> None:
        wanted = as_keys(keys)
        with self._changed:
            self._await(self._table.missing, wanted, self._timeout_or_default(timeout))

    def multi_get(self, keys: Sequence[str]) -> list[bytes]:
        wanted = as_keys(keys)
        with self._changed:
            self._await(self._table.unset, wanted, self._timeout)
            return [self._table.values[key] for key in wanted]

    def _await(self, lacking: Callable[[list[bytes]], list[bytes]], keys: list[bytes], timeout: timedelta) -> None:
        deadline = Deadline(timeout.total_seconds())
        while missing := lacking(keys):
            if deadline.expired:
                raise wait_error(missing, timeout)
            self._changed.wait(deadline.left())

    def compare_set(self, key: str, expected_value: str | bytes, desired_value: str | bytes) -> bytes:
        entry_key, old, new = as_key(key), as_value(expected_value), as_value(desired_value)
        with self._changed:
            self._changed.notify_all()
            return self._table.compare_set(entry_key, old, new)

    def delete_key(self, key: str) -> bool:
        entry_key = as_key(key)
        with self._changed:
            return self._table.delete(entry_key)

    def num_keys(self) -> int:
        return len(self._table.values)

    def list_keys(self) -> list[str]:
        with self._changed:
            return [key_text(key) for key in self._table.values]

    def values_under(self, prefix: str) -> dict[str, bytes]:
        start = as_key(prefix)
        with self._changed:
            return {key_text(key): value for key, value in self._table.under(start)}

    def queue_push(self, key: str, value: str | bytes) -> None:
        entry_key, data = as_key(key), as_value(value)
        with self._changed:
            self._table.push(entry_key, data)
            self._changed.notify_all()

    def queue_pop(self, key: str, block: bool = True) -> bytes:
        entry_key = as_key(key)
        with self._changed:
            if block:
                self._await(self._table.empty, [entry_key], self._timeout)
            elif self._table.empty([entry_key]):
                raise QueueEmptyError(QUEUE_EMPTY)
            return self._table.pop(entry_key)

    def queue_len(self, key: str) -> int:
        entry_key = as_key(key)
        with self._changed:
            return len(self._table.queues.get(entry_key, ()))

    def clone(self) -> HashStore:
        """The same store."""
        return self


def is_of_threads(store: Store) -> bool:
    """Whether all users of a store are threads of this process."""
    while isinstance(store, PrefixStore):
        store = store.underlying_store
    return isinstance(store, HashStore)


def _as_store(store: object) -> Store:
    if store is None:
        raise ValueRangeError("store argument cannot be None: PrefixStore is a part of another store")
    if not isinstance(store, Store):
        raise ArgumentError(f"PrefixStore: store must be a Store, not {type(store).__name__}")
    return store


class PrefixStore(Store):
    """A part of another store: adds `prefix/` to every key."""

    def __init__(self, prefix: str, store: Store) -> None:
        self._prefix = as_key(prefix).decode(errors="surrogateescape")
        self._store = _as_store(store)

    @property
    def underlying_store(self) -> Store:
        """The store that holds the keys."""
        return self._store

    @property
    def timeout(self) -> timedelta:
        return self._store.timeout

    def set_timeout(self, timeout: timedelta | float) -> None:
        self._store.set_timeout(timeout)

    def set(self, key: str, value: str | bytes) -> None:
        self._store.set(self._whole(key), value)

    def get(self, key: str) -> bytes:
        return self._store.get(self._whole(key))

    def add(self, key: str, amount: int) -> int:
        return self._store.add(self._whole(key), amount)

    def append(self, key: str, value: str | bytes) -> None:
        self._store.append(self._whole(key), value)

    def has_extended_api(self) -> bool:
        return self._store.has_extended_api()

    def check(self, keys: Sequence[str]) -> bool:
        return self._store.check(self._all(keys))

    def wait(self, keys: Sequence[str], timeout: timedelta | float | None = None) -> None:
        self._store.wait(self._all(keys), timeout)

    def compare_set(self, key: str, expected_value: str | bytes, desired_value: str | bytes) -> bytes:
        return self._store.compare_set(self._whole(key), expected_value, desired_value)

    def delete_key(self, key: str) -> bool:
        return self._store.delete_key(self._whole(key))

    def num_keys(self) -> int:
        return self._store.num_keys()

    def list_keys(self) -> list[str]:
        start = f"{self._prefix}/"
        return [key.removeprefix(start) for key in self._store.list_keys() if key.startswith(start)]

    def values_under(self, prefix: str) -> dict[str, bytes]:
        start = f"{self._prefix}/"
        return {key.removeprefix(start): value for key, value in self._store.values_under(self._whole(prefix)).items()}

    def multi_get(self, keys: Sequence[str]) -> list[bytes]:
        return self._store.multi_get(self._all(keys))

    def multi_set(self, keys: Sequence[str], values: Sequence[str | bytes]) -> None:
        self._store.multi_set(self._all(keys), values)

    def queue_push(self, key: str, value: str | bytes) -> None:
        self._store.queue_push(self._whole(key), value)

    def queue_pop(self, key: str, block: bool = True) -> bytes:
        return self._store.queue_pop(self._whole(key), block)

    def queue_len(self, key: str) -> int:
        return self._store.queue_len(self._whole(key))

    def clone(self) -> PrefixStore:
        """The same part of the same store."""
        return PrefixStore(self._prefix, self._store)

    def _whole(self, key: str) -> str:
        return f"{self._prefix}/{as_key(key).decode(errors='surrogateescape')}"

    def _all(self, keys: Sequence[str]) -> list[str]:
        as_keys(keys)
        return [self._whole(key) for key in keys]
