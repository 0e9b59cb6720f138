"""A tree over numbered processes, for what all must tell or hear: each deals with a few others."""

from __future__ import annotations

FAN_OUT = 8


def children(number: int, size: int) -> range:
    """Those right below one of `size` processes; 0 is the root."""
    first = FAN_OUT * number + 1
    return range(min(first, size), min(first + FAN_OUT, size))


def parent(number: int) -> int:
    """The one right above; -1 for the root."""
    return (number - 1) // FAN_OUT
