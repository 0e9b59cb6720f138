"""A pass over what users give to iterate over."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import repeat
from typing import TypeVar

T = TypeVar("T")


def one_pass(items: Iterable[T]) -> Iterator[T]:
    """The items of one pass, begun here; further calls of `iter`, as by `islice`, do not reach the user's iterator.

    A sampler may be its own iterator, whose `__iter__` begins anew, as Lightning's are.
    """
    return map(next, repeat(iter(items)))
