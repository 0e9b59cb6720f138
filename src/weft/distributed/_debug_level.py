"""The level of checks in a running job."""

from __future__ import annotations

import os
from enum import IntEnum

from weft._base.cell import Cell
from weft.errors import ArgumentError, ValueRangeError

_VARIABLE = "TORCH_DISTRIBUTED_DEBUG"


class DebugLevel(IntEnum):
    """The level of checks. In groups created at `DETAIL`, a barrier that names missing ranks precedes each collective.

    At every level, the calls of the ranks are compared.
    """

    OFF = 0
    INFO = 1
    DETAIL = 2


def _from_environment() -> DebugLevel:
    level = os.environ.get(_VARIABLE, "OFF").upper()
    if level not in DebugLevel.__members__:
        raise ValueRangeError(f"The value of {_VARIABLE} must be OFF, INFO, or DETAIL.")
    return DebugLevel[level]


_LEVEL = Cell("the level of debugging of process groups", _from_environment())


def get_debug_level() -> DebugLevel:
    """The level that was set, or that of `TORCH_DISTRIBUTED_DEBUG` when it was first read."""
    return _LEVEL.get()


def set_debug_level(level: object) -> None:
    """Set the level."""
    if not isinstance(level, DebugLevel):
        raise ArgumentError(f"set_debug_level: level must be a DebugLevel, not {type(level).__name__} {level!r}")
    _LEVEL.set(level)


def set_debug_level_from_env() -> None:
    """Set the level from `TORCH_DISTRIBUTED_DEBUG`: `OFF` (the default), `INFO` or `DETAIL`."""
    _LEVEL.set(_from_environment())
