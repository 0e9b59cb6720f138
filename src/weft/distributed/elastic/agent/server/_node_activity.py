"""What the workers of a node do: read from the memory that they share with their agent, and from the system."""

from __future__ import annotations

import os
import socket
import threading
import time
from pathlib import Path

from weft.distributed.elastic._job_report import NodeReport, WorkerReport
from weft.distributed.elastic.agent.server._worker_group import Worker, WorkerGroup
from weft.distributed.elastic.multiprocessing._activity import ACTIVITY, WorkerMemory, worker_memory

_STATES = {"T": "stopped", "t": "stopped", "Z": "ended", "X": "ended"}
_PAGE = os.sysconf("SC_PAGE_SIZE")


class NodeActivity:
    """The memory of the workers of one agent."""

    def __init__(self, group: WorkerGroup) -> None:
        self._group = group
        self._memories: dict[int, WorkerMemory] = {}
        self._lock = threading.Lock()  # who reads does so in other threads

    def share(self, envs: dict[int, dict[str, str]]) -> None:
        """Make memory for workers that are about to be started, by local rank, and tell them in their environment."""
        with self._lock:
            for local_rank, env in envs.items():
                if (memory := worker_memory()) is not None:
                    self._memories[local_rank] = memory
                    env[ACTIVITY] = memory.handle

    def close(self) -> None:
        """Free the memory of workers that have ended."""
        with self._lock:
            for memory in self._memories.values():
                memory.close()
            self._memories.clear()

    def report(self) -> NodeReport:
        """What the workers do now."""
        with self._lock:
            workers = tuple([self._worker(worker) for worker in self._group.workers if worker.id is not None])
        return NodeReport(self._group.group_rank or 0, socket.gethostname(), os.getpid(), workers=workers)

    def _worker(self, worker: Worker) -> WorkerReport:
        now = time.monotonic()
        memory = self._memories.get(worker.local_rank)
        basis = (worker.global_rank, worker.local_rank, worker.id, *_process(worker.id, now))
        if memory is None or (reading := memory.read(now)) is None:
            return WorkerReport(*basis)
        return WorkerReport(*basis, *reading)


def _process(pid: int, now: float) -> tuple[str, float, int]:
    """The state of a process, the time, and its resident bytes."""
    try:
        folder = Path("/proc", str(pid))
        state = (folder / "stat").read_text().rpartition(") ")[2][0]
        pages = int((folder / "statm").read_text().split()[1])
    except (OSError, IndexError):  # it has ended, or this system has no /proc
        return ("running" if not os.path.isdir("/proc/self") else "ended"), now, 0
    return _STATES.get(state, "running"), now, pages * _PAGE
