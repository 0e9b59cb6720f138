"""The table of a store: keys and values, and the operations on them."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

from weft.errors import ValueRangeError

_MOST = 1 << 63


class Table:
    """Keys, values and queues in memory. Not thread-safe: every store has its own lock."""

    __slots__ = ("queues", "values")

    def __init__(self) -> None:
        self.values: dict[bytes, bytes] = {}
        self.queues: dict[bytes, deque[bytes]] = {}  # never empty queues

    def unset(self, keys: Iterable[bytes]) -> list[bytes]:
        """Those of the keys that have no value."""
        return [key for key in keys if key not in self.values]

    def empty(self, keys: Iterable[bytes]) -> list[bytes]:
        """Those of the keys whose queue is empty."""
        return [key for key in keys if key not in self.queues]

    def missing(self, keys: Iterable[bytes]) -> list[bytes]:
        """Those of the keys that have neither a value nor a nonempty queue."""
        return self.empty(self.unset(keys))

    def under(self, prefix: bytes) -> list[tuple[bytes, bytes]]:
        """The keys with a prefix, and their values."""
        return [entry for entry in self.values.items() if entry[0].startswith(prefix)]

    def add(self, key: bytes, amount: int) -> int:
        """Add to the number under the key (0 if there is none); returns the sum."""
        value = self.values.get(key, b"0")
        try:
            total = int(value) + amount
        except ValueError:
            raise ValueRangeError(
                f"add: the value of key {key_text(key)!r} is {value[:40]!r}, not a number; give the counter its own key"
            ) from None
        if not -_MOST <= total < _MOST:
            raise ValueRangeError(f"add: the sum under key {key_text(key)!r} does not fit into 64 bits")
        self.values[key] = b"%d" % total
        return total

    def append(self, key: bytes, value: bytes) -> None:
        """Append to the value of the key."""
        self.values[key] = self.values.get(key, b"") + value

    def compare_set(self, key: bytes, expected: bytes, desired: bytes) -> bytes:
        """Set `desired` if the value is `expected`, or if there is no value and `expected` is empty.

        Returns the present value; `expected` if there is none.
        """
        present = self.values.get(key)
        if present == expected or (present is None and not expected):
            self.values[key] = desired
            return desired
        return expected if present is None else present

    def delete(self, key: bytes) -> bool:
        """Remove the key; returns whether it existed."""
        return self.values.pop(key, None) is not None

    def push(self, key: bytes, value: bytes) -> None:
        """Append a value to the key's queue."""
        self.queues.setdefault(key, deque()).append(value)

    def pop(self, key: bytes) -> bytes:
        """Remove and return the first value of the key's queue, which must not be empty."""
        queue = self.queues[key]
        value = queue.popleft()
        if not queue:
            del self.queues[key]
        return value


def key_text(key: bytes) -> str:
    """A key as text."""
    return key.decode(errors="backslashreplace")
