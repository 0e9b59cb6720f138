"""Several collectives of a group as one operation."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from weft.distributed._work import Work
from weft.distributed._world import require_group


class _CoalescingManager:
    """What the block is given: with `async_ops`, the work to wait for after it."""

    def __init__(self) -> None:
        self.works: list[Work] = []

    def append(self, work: Work) -> None:
        """Add a work to wait for."""
        self.works.append(work)

    def wait(self) -> None:
        """Block until the results are in the tensors."""
        for work in self.works:
            work.wait()


@contextmanager
def _coalescing_manager(group: Any = None, device: Any = None, async_ops: bool = False) -> Iterator[_CoalescingManager]:
    """Start the group's collectives of a block together, at its end: what they read is computed by one program.

    None may read what another one gives. With `async_ops`, call `wait` on what the block is given, after it. Nothing
    is started where the block raises.
    """
    del device
    where, manager = require_group(group), _CoalescingManager()
    with where.collecting() as calls:
        yield manager
    work = where.run_all(calls, async_op=async_ops)
    if work is not None:
        manager.append(work)
