"""Who holds an object: its reference count, less the references of whoever counts.

How many references counting makes is the interpreter's affair: CPython 3.14 borrows those that older versions take. So
the ways of counting are tried, when this module is loaded, on objects whose holders are known. What one makes is 0 at
least and a number that follows from its code at most. A figure outside of that, or one that is not the same every
time, says that counts cannot be trusted here. Then the figure is `UNKNOWN`, less than any, by which everything seems
to be held: nothing is dropped and nothing is donated.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from sys import getrefcount
from typing import Any

UNKNOWN = -1


def counts(values: Sequence[Any]) -> list[int]:
    """The reference count of each; `IN_COUNTS` of it are made by counting."""
    return list(map(getrefcount, values))


def _count_of_a_local(values: list[Any]) -> int:
    """The reference count of an object that a local variable holds; `IN_A_LOCAL` of it are made by that."""
    value = values.pop()
    return getrefcount(value)


def calibrated(count: Callable[[list[Any]], int], most: int) -> int:
    """What `count`, which looks at the one object of a list, finds besides the holders outside of that list."""
    if not _exact():
        return UNKNOWN
    added = set()
    for holders in (0, 1, 2) * 8:  # often enough for the interpreter to specialise the code
        probe = [object()]
        others = probe * holders
        added.add(count(probe) - len(others))
    return added.pop() if len(added) == 1 and added <= set(range(most + 1)) else UNKNOWN


def _exact() -> bool:
    """Whether no thread can change a count while it is read, and no compiler leaves out what the code says."""
    has_lock = getattr(sys, "_is_gil_enabled", None)
    jit = getattr(sys, "_jit", None)
    return (has_lock is None or has_lock()) and (jit is None or not jit.is_enabled())


IN_COUNTS = calibrated(
    lambda values: counts(values)[0] - len(values), most=1
)  # what `map` passes on; the list is a holder
IN_A_LOCAL = calibrated(_count_of_a_local, most=2)  # the variable, the call
