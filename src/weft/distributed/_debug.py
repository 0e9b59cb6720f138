"""Looking into a job that runs: how much to report, and a breakpoint of one rank."""

from __future__ import annotations

import logging
import os
import pdb
import sys
from collections import Counter
from dataclasses import dataclass
from datetime import timedelta
from enum import IntEnum
from typing import Any

from weft.distributed._collectives import barrier
from weft.distributed._world import get_rank, own_groups
from weft.errors import ValueRangeError

_VARIABLE = "TORCH_DISTRIBUTED_DEBUG"
_log = logging.getLogger(__name__)


class DebugLevel(IntEnum):
    """How much is reported. It changes nothing here: ranks always tell each other what they call."""

    OFF = 0
    INFO = 1
    DETAIL = 2


@dataclass
class _Chosen:
    level: DebugLevel


def _from_environment() -> DebugLevel:
    found = os.environ.get(_VARIABLE, "OFF").upper()
    if found not in DebugLevel.__members__:
        raise ValueRangeError(f"The value of {_VARIABLE} must be OFF, INFO, or DETAIL.")
    return DebugLevel[found]


_chosen = _Chosen(_from_environment())


def get_debug_level() -> DebugLevel:
    """The level that was set, or that `TORCH_DISTRIBUTED_DEBUG` had when it was first asked for."""
    return _chosen.level


def set_debug_level(level: DebugLevel) -> None:
    """Set the level."""
    _chosen.level = DebugLevel(level)


def set_debug_level_from_env() -> None:
    """Set the level to what `TORCH_DISTRIBUTED_DEBUG` says: `OFF`, which it is without it, `INFO` or `DETAIL`."""
    _chosen.level = _from_environment()


class _Debugger(pdb.Pdb):
    """Reads the terminal also where `multiprocessing` has closed `sys.stdin`."""

    def interaction(self, *args: Any, **kwargs: Any) -> None:
        own = sys.stdin
        try:
            with open(0, closefd=False) as sys.stdin:
                super().interaction(*args, **kwargs)
        finally:
            sys.stdin = own


_passed: Counter[tuple[str, int, int]] = Counter()  # by place in the program, and rank


def breakpoint(rank: int = 0, skip: int = 0, timeout_s: float | None = 3600) -> None:
    """Stop in the debugger on one rank, while all others wait; all of them call.

    The first `skip` calls from a place in the program do nothing. Groups have `timeout_s` seconds from now on, unless
    it is None.
    """
    caller = sys._getframe(1)
    place = caller.f_code.co_filename, caller.f_lineno, get_rank()
    _passed[place] += 1
    if _passed[place] <= skip:
        _log.warning("Skip the breakpoint, counter=%d", _passed[place])
        return
    if timeout_s is not None:
        for group in own_groups():
            group.set_timeout(timedelta(seconds=timeout_s))
    if get_rank() == rank:
        debugger = _Debugger()
        debugger.message(
            f"\nbreakpoint(rank={rank}): the other ranks wait. Type `up` to see the frame that called it.\n"
        )
        debugger.set_trace()
    barrier()
