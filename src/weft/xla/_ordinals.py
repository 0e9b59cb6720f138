"""The ordinals of this process's replica, and printing on the first replica only."""

from __future__ import annotations

import sys
from typing import TextIO

from weft._base.site import warn_user
from weft.xla._replicas import replicas


def get_local_ordinal() -> int:
    """The number of this replica on its host."""
    return replicas().local_ordinal


def is_master_ordinal(local: bool = True) -> bool:
    """Whether this is the first replica of its host or, with `local=False`, of the job."""
    here = replicas()
    return (here.local_ordinal if local else here.ordinal) == 0


def master_print(*args: object, fd: TextIO | None = None, local: bool = False, flush: bool = False) -> None:
    """Print on the first replica of the job or, with `local=True`, of each host; by default to `sys.stdout`."""
    if is_master_ordinal(local):
        print(*args, file=sys.stdout if fd is None else fd, flush=flush)


def xrt_world_size() -> int:
    """Deprecated: the number of replicas."""
    warn_user("xrt_world_size() will be removed in release 2.7.")
    return replicas().size


def get_ordinal() -> int:
    """Deprecated: the number of this replica in the job."""
    warn_user("xla_model.get_ordinal() will be removed in release 2.7.")
    return replicas().ordinal
