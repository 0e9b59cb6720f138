"""The status of a rendezvous, which all nodes read: its size does not depend on how many they are."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import NamedTuple

from weft.distributed.elastic.rendezvous._round import Node, Round, Rules, corrupt


class Assignment(NamedTuple):
    """The leader that gave the members of a complete round their ranks, and the version of its status."""

    leader: Node
    version: int


@dataclass(frozen=True)
class Status:
    """The state that all nodes read, and replace by compare-and-set."""

    number: int = 0
    """Of the round."""
    complete: bool = False
    closed: bool = False
    limits: tuple[int, int] | None = None
    """The fewest and the most nodes, as the first leader has them."""
    refused: tuple[int, int] | None = None
    """The limits of a node that was refused because they differ."""
    num_members: int = 0
    num_waiting: int = 0
    world_size: int = 0
    """How many members a complete round had in the beginning."""
    leader: Node | None = None
    version: int = 0
    """Grows with each change, by which the leader shows that it lives."""
    round_key: str = ""
    """Under which key the leader has written the round."""
    assignment: Assignment | None = None

    @property
    def num_lost(self) -> int:
        """How many members of a complete round have left it or died."""
        return self.world_size - self.num_members if self.complete else 0

    def num_late(self, rules: Rules) -> int:
        """How many waiting nodes a new round would take in; a round is not interrupted for the others."""
        if not self.complete or self.closed:
            return 0
        return min(self.num_waiting, rules.max_nodes - self.num_members)

    def with_round(self, current: Round) -> Status:
        """This status with the numbers of a round."""
        return replace(
            self,
            number=current.number,
            complete=current.complete,
            num_members=len(current.participants),
            num_waiting=len(current.waiting),
            world_size=len(current.world),
        )

    def encode(self) -> bytes:
        """As JSON; equal ones give equal bytes."""
        return json.dumps(vars(self)).encode()

    @classmethod
    def decode(cls, data: bytes) -> Status:
        """From the JSON of `encode`; `RendezvousStateError` for anything else."""
        try:
            fields = json.loads(data)
            for name in ("limits", "refused"):
                fields[name] = tuple(fields[name]) if fields[name] else None
            fields["leader"] = Node(*fields["leader"]) if fields["leader"] else None
            if fields["assignment"]:
                leader, version = fields["assignment"]
                fields["assignment"] = Assignment(Node(*leader), version)
            return cls(**fields)
        except (ValueError, TypeError, KeyError) as error:
            raise corrupt("a status", data) from error
