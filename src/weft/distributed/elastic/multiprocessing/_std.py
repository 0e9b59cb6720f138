"""Sets of standard streams, for all ranks or by rank."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from enum import IntFlag
from typing import cast

from weft._base.guards import is_mapping
from weft.errors import ArgumentError, DistError, ValueRangeError

_VALUE = r"^[0123]$"
_MAPPING = r"^(\d+:[0123],)*(\d+:[0123])$"


class Std(IntFlag):
    """A set of standard streams."""

    NONE = 0
    OUT = 1
    ERR = 2
    ALL = 3

    @classmethod
    def from_str(cls, vm: str) -> Std | dict[int, Std]:
        """Parse `3` (all ranks) or `0:1,1:2` (stdout of rank 0, stderr of rank 1)."""
        if re.match(_VALUE, vm):
            return cls(int(vm))
        if not re.match(_MAPPING, vm):
            raise ValueRangeError(f"{vm} does not match: <{_VALUE}> or <{_MAPPING}>")
        pairs = (entry.split(":") for entry in vm.split(","))
        return {int(rank): cls(int(value)) for rank, value in pairs}


def checked(value: object, what: str) -> Std | Mapping[int, Std]:
    """`value`, checked to be a set of streams or a mapping of such sets."""
    each: Iterable[object] = value.values() if is_mapping(value) else [value]
    if wrong := [one for one in each if not isinstance(one, Std)]:
        raise ArgumentError(f"{what} must be a Std, or a dict of them by rank, got {wrong[0]!r}; see Std.from_str")
    return cast("Std | Mapping[int, Std]", value)


def to_map(val_or_map: Std | Mapping[int, Std], local_world_size: int) -> dict[int, Std]:
    """One entry for each local rank; ranks missing in a mapping have `Std.NONE`."""
    if isinstance(val_or_map, Std):
        return dict.fromkeys(range(local_world_size), val_or_map)
    return {rank: val_or_map.get(rank, Std.NONE) for rank in range(local_world_size)}


def require_all_ranks(mapping: Mapping[int, object], nprocs: int, what: str) -> None:
    """Refuse a mapping whose keys are not all local ranks."""
    expected, actual = set(range(nprocs)), set(mapping)
    if actual != expected:
        raise DistError(f"{what}, local rank mapping mismatch, expected: {expected}, actual: {actual}")
