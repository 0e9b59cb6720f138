"""Trees over numbered processes, for broadcasts and reductions: each process deals with a few others."""

from __future__ import annotations

from itertools import pairwise

FAN_OUT = 8


def children(number: int, size: int) -> range:
    """The children of process `number` of `size`; 0 is the root."""
    first = FAN_OUT * number + 1
    return range(min(first, size), min(first + FAN_OUT, size))


def split(numbers: range) -> list[range]:
    """The numbers in a few parts of about the same length, none of them empty: the first of each leads its part."""
    parts = min(FAN_OUT, len(numbers))
    ends = [len(numbers) * part // parts for part in range(parts + 1)] if parts else [0]
    return [numbers[start:end] for start, end in pairwise(ends)]
