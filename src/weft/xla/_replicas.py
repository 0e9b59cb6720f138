"""The replicas of a job: processes that run one program, with one device each."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from weft.distributed._group_xla import XlaBackend


@dataclass(frozen=True)
class Replicas:
    """This process's place among the replicas. Without a job it is the only one.

    ordinal, size               its number in the whole job, and how many replicas there are
    local_ordinal, local_size   the same on this host
    """

    ordinal: int = 0
    size: int = 1
    local_ordinal: int = 0
    local_size: int = 1
    backend: XlaBackend | None = None

    def gather(self, payload: bytes) -> list[bytes]:
        """The bytes that each replica has given, in order of ordinals; returns when all have come."""
        return [payload]


_alone = Replicas()


def replicas() -> Replicas:
    """The replicas of this process's job."""
    return _alone
