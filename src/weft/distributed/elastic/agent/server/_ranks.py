"""Ranks of workers, computed from the roles and numbers of workers of all agents."""

from __future__ import annotations

import json
from collections import Counter
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
    """The first ranks of an agent's workers, among all workers and among those of their role, and both world sizes."""

    first: int
    world_size: int
    role_first: int
    role_world_size: int

    def encode(self) -> bytes:
        """As JSON."""
        return json.dumps(self).encode()

    @classmethod
    def decode(cls, data: bytes) -> Ranks:
        """From the JSON of `encode`."""
        return cls(*json.loads(data))


def ranks(infos: Sequence[RoleInfo]) -> list[Ranks]:
    """The ranks of each agent's workers, numbered in the order of the agents."""
    role_sizes = Counter[str]()
    for info in infos:
        role_sizes[info.role] += info.local_world_size
    world_size, first, role_first = role_sizes.total(), 0, Counter[str]()
    result: list[Ranks] = []
    for info in infos:
        result.append(Ranks(first, world_size, role_first[info.role], role_sizes[info.role]))
        first += info.local_world_size
        role_first[info.role] += info.local_world_size
    return result
