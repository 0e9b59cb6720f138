"""Several collectives of a group as one operation."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager

from weft._base.device import DeviceLike
from weft.distributed._work import Work
from weft.distributed._world import AnyGroup, require_group


class _CoalescingManager:
    """The value of the block's `as`: with `async_ops`, it collects the works to wait for."""

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
def coalescing_manager(
    group: AnyGroup = None, device: DeviceLike | None = None, async_ops: bool = False
) -> Generator[_CoalescingManager]:
    """Start a group's collectives within a block together at its end; one program computes their inputs.

    No collective may read the result of another. With `async_ops`, call `wait` of the manager after the block. If the
    block raises, nothing is started.
    """
    del device
    process_group, manager = require_group(group), _CoalescingManager()
    with process_group.coalescing() as calls:
        yield manager
    work = process_group.run_all(calls, async_op=async_ops)
    if work is not None:
        manager.append(work)


_coalescing_manager = coalescing_manager  # PyTorch's name
