"""Calibration of `getrefcount`: the number of references that counting itself adds.

The counted object is in a local variable and is passed to `getrefcount`. The number of references that this adds
depends on the interpreter: CPython 3.14 borrows some that older versions take. So it is measured at import, on objects
whose references are known, in the same ways in which `flushing` counts. It is at most two. If it is larger or varies,
counts cannot be trusted. Then it is `UNKNOWN`, less than any count, so that everything appears to be in use: nothing is
dropped and nothing is donated.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from sys import getrefcount
from typing import Any

from weft._base.types import Arg

UNKNOWN = -1

Way = Callable[[list[Any]], int]
"""A way of counting the references to the single object in a list, apart from that of the list."""


def _popped(values: list[Arg]) -> int:
    value = values.pop()
    return getrefcount(value)


def _in_a_loop(values: list[Arg]) -> int:
    for value in values:
        if value is not None:
            return getrefcount(value) - 1
    return 0


def _in_a_comprehension(values: list[Arg]) -> int:
    (count,) = [getrefcount(value) - 1 for value in values if value is not None]
    return count


WAYS: tuple[Way, ...] = (_popped, _in_a_loop, _in_a_comprehension)


def calibrated(ways: tuple[Way, ...]) -> int:
    """The number that all of the ways add to the count, or `UNKNOWN`."""
    if not _exact():
        return UNKNOWN
    added: set[int] = set()
    for holders in (0, 1, 2) * 8:  # often enough for the interpreter to specialise the code
        for count in ways:
            probe = [object()]
            others = probe * holders
            added.add(count(probe) - len(others))
    return added.pop() if len(added) == 1 and added <= {0, 1, 2} else UNKNOWN


def _exact() -> bool:
    """Whether counts are exact: no other thread can change them meanwhile, and no compiler removes references."""
    has_lock = getattr(sys, "_is_gil_enabled", None)
    jit = getattr(sys, "_jit", None)
    return (has_lock is None or has_lock()) and (jit is None or not jit.is_enabled())


IN_A_LOCAL = calibrated(WAYS)
