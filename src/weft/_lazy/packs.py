"""Packs: the Python numbers among a program's leaves are passed as one array for each kind of number."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from weft._base.dtype import COMPLEX, FLOAT
from weft._base.types import AnyArray
from weft._lazy.aval import Aval
from weft._lazy.value import Value

PACKS = 3
"""Floats, ints (with bools) and complex numbers; a program takes the packs, and then the arrays."""

PackSlot = tuple[int, int | None]
"""The position of an argument of a program, and the index within it if it is a pack."""


def slots_of(avals: Iterable[Aval]) -> list[PackSlot]:
    """The place of each leaf."""
    counts = [0] * (PACKS + 1)
    slots: list[PackSlot] = []
    for aval in avals:
        kind = _pack_of(aval) if aval.weak else PACKS
        slots.append((kind, counts[kind]) if aval.weak else (PACKS + counts[kind], None))
        counts[kind] += 1
    return slots


def packs_of(leaves: Iterable[Value]) -> tuple[AnyArray, AnyArray, AnyArray]:
    """The packs of the numbers among some leaves; None for an empty one."""
    numbers: tuple[list[AnyArray], list[AnyArray], list[AnyArray]] = ([], [], [])
    floats, ints, complexes = numbers
    for leaf in leaves:
        if leaf.aval.weak:
            numbers[_pack_of(leaf.aval)].append(leaf.number)
    return (
        np.array(floats, np.float64) if floats else None,
        np.array(ints, np.int64) if ints else None,
        np.array(complexes, np.complex128) if complexes else None,
    )


def unpacked(args: Sequence[AnyArray], slots: Iterable[PackSlot]) -> list[AnyArray]:
    """The leaves at these places of a program's arguments."""
    return [args[at] if within is None else args[at][within] for at, within in slots]


def _pack_of(aval: Aval) -> int:
    category = aval.dtype.category
    return 0 if category == FLOAT else 2 if category == COMPLEX else 1
