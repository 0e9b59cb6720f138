"""Ranks of workers from what the agents of a job say of themselves. Pure."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import NamedTuple


class RoleInfo(NamedTuple):
    """One agent: the role of its workers, its own rank, and the number of its workers."""

    role: str
    rank: int
    local_world_size: int

    def encode(self) -> bytes:
        """As JSON."""
        return json.dumps(self).encode()

    @classmethod
    def decode(cls, data: bytes) -> RoleInfo:
        """From the JSON of `encode`."""
        return cls(*json.loads(data))


class Ranks(NamedTuple):
    """Where the ranks of an agent's workers begin, among all and among those of their role."""

    first: int
    world_size: int
    role_first: int
    role_world_size: int


def ranks(infos: Sequence[RoleInfo], me: RoleInfo) -> Ranks:
    """Workers are counted in the order of their agents' ranks."""
    before = [info for info in infos if info.rank < me.rank]
    same = [info for info in infos if info.role == me.role]
    return Ranks(
        sum(info.local_world_size for info in before),
        sum(info.local_world_size for info in infos),
        sum(info.local_world_size for info in before if info.role == me.role),
        sum(info.local_world_size for info in same),
    )
