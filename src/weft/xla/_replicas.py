"""The replicas of a job: processes that run one program, with one device each."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

import numpy as np

from weft._lazy.replicated import replication

if TYPE_CHECKING:
    from weft.distributed._group_xla import XlaBackend


@dataclass(frozen=True)
class Replicas:
    """The replicas of a job, and which of them this process is. Without a job it is the only one.

    ordinal, size               its number in the whole job, and how many replicas there are
    local_ordinal, local_size   the same on this host
    """

    ordinal: int = 0
    size: int = 1
    local_ordinal: int = 0
    local_size: int = 1
    backend: XlaBackend | None = None

    def gather(self, payload: bytes, what: str) -> list[bytes]:
        """The bytes that each replica has given, in order of ordinals; returns when all have called.

        `what` says in errors what a replica waits for; it must be equal on all.
        """
        if self.backend is None:
            return [payload]
        self.backend.barrier(operation=what)
        sizes = [int(size) for size in self.backend.all_gather(np.asarray(len(payload)))]
        padded = np.zeros(max(*sizes, 1), np.uint8)
        padded[: len(payload)] = np.frombuffer(payload, np.uint8)
        return [np.asarray(x)[:size].tobytes() for x, size in zip(self.backend.all_gather(padded), sizes, strict=True)]


_ALONE = Replicas()


def replicas() -> Replicas:
    """The replicas of this process's job: of `xla_multiprocessing.spawn`, or of `init_process_group("xla")`."""
    job = replication()
    if job is None:
        return _ALONE
    backend = cast("XlaBackend", job)
    ordinal, size = backend.rank, backend.size
    local_size = int(os.environ.get("LOCAL_WORLD_SIZE", size))
    return Replicas(ordinal, size, int(os.environ.get("LOCAL_RANK", ordinal % local_size)), local_size, backend)
