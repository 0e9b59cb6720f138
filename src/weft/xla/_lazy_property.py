"""Values that are computed when they are first read."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class LazyProperty(Generic[T]):
    """A value that `gen_fn` computes when it is first read."""

    def __init__(self, gen_fn: Callable[[], T]) -> None:
        self._gen_fn = gen_fn
        self._cache: list[T] = []

    @property
    def value(self) -> T:
        """The value."""
        if not self._cache:
            self._cache.append(self._gen_fn())
        return self._cache[0]
