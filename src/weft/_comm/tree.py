"""A tree over numbered processes, for what all must tell or hear: each deals with a few others."""

from __future__ import annotations

FAN_OUT = 8


def children(number: int, size: int) -> range:
    """The numbers of those right below process `number` of `size`; 0 is the root."""
    first = FAN_OUT * number + 1
    return range(min(first, size), min(first + FAN_OUT, size))
