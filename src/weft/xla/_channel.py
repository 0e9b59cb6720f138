"""Queues between two threads, either of which can end them."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterator
from typing import Generic, TypeVar

T = TypeVar("T")


class Channel(Generic[T]):
    """At most `size` items on their way from one thread to another.

    The sender ends it by `finish`, also with an error, which the receiver gets after the items. The receiver ends it by
    `close`; then nobody waits any more.
    """

    def __init__(self, size: int) -> None:
        self._size = size
        self._items: deque[T] = deque()
        self._changed = threading.Condition()
        self._finished = False
        self._closed = False
        self._error: BaseException | None = None

    def put(self, item: T) -> bool:
        """Add an item, as soon as there is room; returns False if the receiver has left."""
        with self._changed:
            self._changed.wait_for(lambda: self._closed or len(self._items) < self._size)
            if not self._closed:
                self._items.append(item)
                self._changed.notify_all()
            return not self._closed

    def finish(self, error: BaseException | None = None) -> None:
        """There will be no more items; the receiver's loop raises the error, if any, after the last one."""
        with self._changed:
            self._finished, self._error = True, error
            self._changed.notify_all()

    def close(self) -> None:
        """Drop all items, and end the loops of both ends."""
        with self._changed:
            self._closed = True
            self._items.clear()
            self._changed.notify_all()

    def __iter__(self) -> Iterator[T]:
        return self

    def __next__(self) -> T:
        with self._changed:
            self._changed.wait_for(lambda: self._closed or self._finished or self._items)
            if self._items:
                item = self._items.popleft()
                self._changed.notify_all()
                return item
            error, self._error = self._error, None
        if error is not None and not self._closed:
            raise error
        raise StopIteration
