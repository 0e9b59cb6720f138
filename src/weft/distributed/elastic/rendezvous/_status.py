"""The status of a rendezvous, which all nodes read. Its size does not depend on the number of nodes."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import NamedTuple

from weft.distributed.elastic.rendezvous._round import Node, Round, Rules, corrupt


class Assignment(NamedTuple):
    """The leader that has assigned ranks to the members of a complete round, and the version of its status."""

    leader: Node
    version: int


@dataclass(frozen=True)
class Status:
    """The state that all nodes read, and replace by compare-and-set."""

    number: int = 0
    """The number of the round."""
    complete: bool = False
    closed: bool = False
    limits: tuple[int, int] | None = None
    """The smallest and largest number of nodes, as set by the first leader."""
    refused: tuple[int, int] | None = None
    """The limits of a node that was refused because its limits differ."""
    num_members: int = 0
    num_waiting: int = 0
    world_size: int = 0
    """The number of members with which the round was completed."""
    leader: Node | None = None
    version: int = 0
    """Grows with each change; so it shows that the leader is alive."""
    round_key: str = ""
    """The key under which the leader has written the round."""
    assignment: Assignment | None = None

    @property
    def num_lost(self) -> int:
        """The number of members of a complete round that have left or died."""
        return self.world_size - self.num_members if self.complete else 0

    def num_late(self, rules: Rules) -> int:
        """The number of waiting nodes that a new round would take in; for other nodes, a round is not interrupted."""
        if not self.complete or self.closed:
            return 0
        return min(self.num_waiting, rules.max_nodes - self.num_members)

    def with_round(self, current: Round) -> Status:
        """This status, with the numbers of a round."""
        return replace(
            self,
            number=current.number,
            complete=current.complete,
            num_members=len(current.participants),
            num_waiting=len(current.waiting),
            world_size=len(current.world),
        )

    def encode(self) -> bytes:
        """As JSON; equal statuses give equal bytes."""
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
