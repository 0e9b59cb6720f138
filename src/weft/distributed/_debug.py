"""A breakpoint on one rank of a running job."""

from __future__ import annotations

import logging
import pdb
import sys
from collections import Counter
from datetime import timedelta

from weft._base.site import calling_frame
from weft._base.types import Arg
from weft.distributed._collectives import barrier
from weft.distributed._world import get_rank, own_groups

_log = logging.getLogger(__name__)


class _Debugger(pdb.Pdb):
    """A debugger that reads the terminal even if `multiprocessing` has closed `sys.stdin`."""

    def interaction(self, *args: Arg, **kwargs: Arg) -> None:
        own = sys.stdin
        try:
            with open(0, closefd=False) as sys.stdin:
                super().interaction(*args, **kwargs)
        finally:
            sys.stdin = own


# no cell: only texts and reports depend on it
_passed: Counter[tuple[str, int, int]] = Counter()  # by file, line and rank


def breakpoint(rank: int = 0, skip: int = 0, timeout_s: float | None = 3600) -> None:
    """Stop in the debugger on one rank while all others wait. All ranks must call it.

    The first `skip` calls from one line of the program do nothing. From now on, the timeout of groups is `timeout_s`
    seconds, unless it is None.
    """
    caller = calling_frame(1)
    place = caller.f_code.co_filename, caller.f_lineno, get_rank()
    _passed[place] += 1
    if _passed[place] <= skip:
        _log.warning("Skip the breakpoint, counter=%d", _passed[place])
        return
    # The others wait while somebody reads code, which takes longer than any operation may.
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
