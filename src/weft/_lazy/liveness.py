"""Which recorded values anybody still refers to.

A pending value to which only the list of pending values refers is dead. The references that counting itself adds are
calibrated (`refcounts`).
"""

from __future__ import annotations

from collections.abc import Iterable
from sys import getrefcount

from weft._base.pending import Pending
from weft._lazy import refcounts
from weft._lazy.checks import checks_of
from weft._lazy.value import PENDING, Value


def take_living(pending: Pending, living: list[Value]) -> None:
    """Move the living values to an empty list, in order. Dead ones are dropped last to first: whole graphs fall.

    The list is the caller's, who puts back what is in it if a signal comes, here or later. Without that an endless
    loop would forget what it has recorded, and compute it as one long program once somebody reads its end.
    """
    own = refcounts.IN_A_LOCAL
    pending.moved(-len(pending))
    value = None
    try:
        while True:
            value = pending.pop()
            if value.content is PENDING and getrefcount(value) > own:
                living.append(value)
    except IndexError:
        living.reverse()
    except BaseException:
        if value is not None and not (living and living[-1] is value):
            living.append(value)
        living.reverse()
        raise


def put_back(values: list[Value], pending: Pending) -> None:
    """Make values, which were taken out of a list, its first ones again."""
    pending[:0] = values
    pending.moved(len(values))
    values.clear()


def escaping(region: Pending, held: Iterable[Value] = ()) -> set[int]:
    """Ids of the pending values of a region to which anything but the region, its checks and the caller refers.

    The caller refers once to each of `held`, besides.
    """
    uses: dict[int, int] = {}
    shared: set[int] = set()
    for value in region:
        inputs = value.inputs if id(value.inputs) not in shared else ()
        shared.add(id(value.inputs))
        for x in (*inputs, *value.extras):
            uses[id(x)] = uses.get(id(x), 0) + 1
    for value in held:
        uses[id(value)] = uses.get(id(value), 0) + 1
    value = inputs = x = None  # references are counted from here on
    own = 1 + refcounts.IN_A_LOCAL  # the region
    codes = {id(check.code) for check in (*region.checks, *region.unread, *checks_of(region))}
    return {id(v) for v in region if v.is_pending and getrefcount(v) - uses.get(id(v), 0) > own} - codes
