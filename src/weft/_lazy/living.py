"""The values whose arrays are in memory, and what these arrays take.

Nothing is noted for this while programs run: Python's garbage collector knows all objects.
"""

from __future__ import annotations

import gc
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import jax
import numpy as np

from weft._base.device import device
from weft._base.guards import is_a
from weft._base.numpy_guards import ARRAY
from weft._base.types import AnyArray
from weft._lazy.sites import site_of
from weft._lazy.value import Value

_MOST_LISTED = 5


class LiveBlock(NamedTuple):
    """An array in memory, and the values that have it or a part of it, in the order of their recording."""

    nbytes: int
    values: list[Value]

    @property
    def site(self) -> str:
        """The user's line that made it, or "" if none was noted."""
        return next(filter(None, map(site_of, self.values)), None) or ""

    @property
    def operator(self) -> str:
        """The operator that made it, or "" for what the program gave."""
        origin = self.values[0].origin
        return "" if origin is None else origin.signature.name


def array_in_memory(value: Value) -> AnyArray:
    """The array of a value: jax's, or NumPy's where it has not gone to its device; None if there is none."""
    array = value.available
    if isinstance(array, ARRAY):
        return array
    return array if isinstance(array, jax.Array) and not array.is_deleted() else None


def owner_of(array: object) -> AnyArray:
    """The array that has the memory of a NumPy array, which may be a part of it; a jax array itself."""
    while is_a(array, np.ndarray) and isinstance(array.base, (np.ndarray, jax.Array)):
        array = array.base
    return array


def living_values() -> list[Value]:
    """The values of all threads with arrays in memory."""
    return [x for x in gc.get_objects() if type(x) is Value and array_in_memory(x) is not None]


def blocks(values: Iterable[Value]) -> list[LiveBlock]:
    """The arrays of values, the largest first; each of them once."""
    held: dict[int, LiveBlock] = {}
    for value in values:
        owner = owner_of(array_in_memory(value))
        held.setdefault(id(owner), LiveBlock(owner.nbytes, [])).values.append(value)
    for block in held.values():
        block.values.sort(key=lambda value: value.time)
    return sorted(held.values(), key=lambda block: -block.nbytes)


def largest_on(target: device) -> str:
    """What holds most of the memory of a device, as lines of text; "" if nothing does."""
    held = [block for block in blocks(living_values()) if block.values[0].aval.device == target]
    if not held:
        return ""
    total, count = sum([block.nbytes for block in held]), len(held)
    lines = [f"{count} array{'s' * (count > 1)} {'are' if count > 1 else 'is'} alive on {target}: {size_text(total)}"]
    for block in held[:_MOST_LISTED]:
        maker = f"by {block.operator}" if block.operator else "given by the program"
        lines.append(f"  {size_text(block.nbytes)}  {block.values[0].aval}, {maker}  {block.site}".rstrip())
    if not any(block.site for block in held[:_MOST_LISTED]):
        lines.append(
            "  (call weft.utils.memory.record_history() at the start of the program to see which lines make them)"
        )
    return "\n".join(lines)


def needed_for(values: Sequence[Value]) -> str:
    """What a program was to compute, as lines of text; `values` are its largest results."""
    if not values:
        return ""
    lines = ["a program was to compute:"]
    for value in values[:_MOST_LISTED]:
        maker = f", by {value.origin.signature.name}" if value.origin is not None else ""
        lines.append(f"  {size_text(value.aval.nbytes)}  {value.aval}{maker}  {site_of(value) or ''}".rstrip())
    rest = len(values) - _MOST_LISTED
    return "\n".join([*lines, *([f"  and {rest} more of that size"] if rest > 0 else [])])


def size_text(nbytes: float) -> str:
    """A size for people: "1.50 GiB"."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if nbytes < 1024:
            return f"{nbytes:.2f} {unit}" if unit != "B" else f"{nbytes:.0f} B"
        nbytes /= 1024
    return f"{nbytes:.2f} TiB"
