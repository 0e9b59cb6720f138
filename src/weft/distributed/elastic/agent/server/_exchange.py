"""Exchanges between the agents of a round, as generators: assigning ranks to workers, and a barrier at the end.

Like the operations of the rendezvous (`_requests.py`), they yield requests and open no sockets. Except for the node of
rank 0, the number of messages of a node does not depend on the number of nodes.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Any, NamedTuple, TypeAlias, TypeVar

from weft._comm.stores import keys
from weft._comm.tree import children
from weft.distributed.elastic.agent.server._ranks import Ranks, RoleInfo, ranks
from weft.distributed.elastic.rendezvous._requests import SetKeys
from weft.errors import RendezvousTimeoutError

EXCHANGE_SECONDS = 300.0
"""The time in which the agents of a round must have exchanged their numbers of workers."""

_T = TypeVar("_T")


class GetKeys(NamedTuple):
    """Read the values of keys that exist."""

    keys: list[str]


class AwaitKeys(NamedTuple):
    """Wait until all keys exist. The answer is the list of keys that are missing at the timeout.

    `purpose` is shown to users while this waits; `{present}` in it is replaced by the number of keys that exist.
    """

    keys: list[str]
    purpose: str


ExchangeRequest = SetKeys | GetKeys | AwaitKeys
Exchange: TypeAlias = Generator[ExchangeRequest, Any, _T]


def poll_seconds(nodes: int) -> float:
    """Seconds between an agent's checks for lost nodes while it waits: 2000 checks a second of all agents together."""
    return max(0.5, nodes / 2000)


def assign_ranks(info: RoleInfo, size: int, advice: str = "") -> Exchange[Ranks]:
    """Send the number of this agent's workers to the agent of rank 0, and receive their ranks.

    `advice` is shown to users while they wait. `RendezvousTimeoutError` names the nodes that are missing.
    """
    # Rank 0 alone reads all nodes and writes one answer for each; with every node reading every other one, n nodes
    # would send n² messages.
    yield SetKeys({keys.agent_role(info.rank): info.encode()})
    if info.rank == 0:
        yield from _publish_ranks(size, advice)
    key = keys.agent_ranks(info.rank)
    if (yield AwaitKeys([key], "node 0 to tell ranks; its output says who is missing")):
        raise RendezvousTimeoutError(
            f"rank assignment: node 0 told no ranks within {EXCHANGE_SECONDS:g} s; its output says why"
        )
    (data,) = yield GetKeys([key])
    return Ranks.decode(data)


def _publish_ranks(size: int, advice: str) -> Exchange[None]:
    roles = [keys.agent_role(rank) for rank in range(size)]
    missing = set((yield AwaitKeys(roles, f"other nodes: {{present}} of {size} have come{advice}")))
    if missing:
        nodes = [rank for rank, key in enumerate(roles) if key in missing]
        raise RendezvousTimeoutError(
            f"rank assignment: agents of nodes {nodes} did not tell their workers within {EXCHANGE_SECONDS:g} s"
        )
    infos = [RoleInfo.decode(data) for data in (yield GetKeys(roles))]
    yield SetKeys({keys.agent_ranks(rank): part.encode() for rank, part in enumerate(ranks(infos))})


def tree_barrier(key: str, rank: int, size: int) -> Exchange[bool]:
    """Wait until all nodes have called this; each waits for its children in a tree. False at the timeout."""
    purpose = "the workers of other nodes to finish"
    # By a tree, so that no node waits for all others itself.
    below = [keys.step_of_all(key, child) for child in children(rank, size)]
    if below and (yield AwaitKeys(below, purpose)):
        return False
    yield SetKeys({keys.step_of_all(key, rank): b"1"})
    return not (yield AwaitKeys([keys.step_of_all(key, 0)], purpose))
