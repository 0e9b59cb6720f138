"""The memory in which an agent reads what its workers do (`weft._base.activity`)."""

from __future__ import annotations

import logging
import os

from weft._base import activity
from weft._comm.shared_memory.memory import SharedMemory
from weft.errors import DistBackendError

_log = logging.getLogger(__name__)

ACTIVITY = "WEFT_ACTIVITY"
"""The variable with the handle of a worker's memory. It is removed there, since the worker's children have none."""

_SIZE = SharedMemory.start + activity.SIZE


class WorkerMemory:
    """The memory of one worker, made by its agent."""

    def __init__(self) -> None:
        self._memory = SharedMemory.create(_SIZE)
        self._view = self._memory.view()[SharedMemory.start :]
        self._view[:] = bytes(activity.SIZE)  # now, while a lack of memory is this process's error

    @property
    def handle(self) -> str:
        """What the worker finds in its environment."""
        return self._memory.handle.decode()

    def read(self, now: float) -> activity.Reading | None:
        """What the worker has written; None if it does not write, as a program that is not in Python."""
        reading = activity.read(self._view, now)
        return reading if reading.numbers["attached"] else None

    def close(self) -> None:
        """Free the memory, once the worker has ended."""
        self._view.release()
        self._memory.close()


def worker_memory() -> WorkerMemory | None:
    """New memory; None where the system cannot share any."""
    try:
        return WorkerMemory()
    except (DistBackendError, OSError) as error:
        _log.info("what workers do is not shown: %s", error)
        return None


def attach() -> None:
    """Let this worker write what it does to the memory of its agent, if there is one."""
    handle = os.environ.pop(ACTIVITY, None)
    if handle is None:
        return
    try:
        memory = SharedMemory.open(handle.encode(), _SIZE)
    except DistBackendError as error:  # as where it runs in another PID namespace
        _log.info("the launcher cannot show what this worker does: %s", error)
        return
    activity.process.activity = activity.Activity(memory.view()[SharedMemory.start :])
