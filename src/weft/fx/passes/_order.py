"""Orders of nodes in which each comes after its inputs."""

# Graphs, their nodes and what works on them know each other, by names of PyTorch's.
# pyright: reportPrivateUsage=false

from __future__ import annotations

import heapq
import operator
from collections import deque
from collections.abc import Iterable

from weft._base.types import Arg
from weft.fx.graph_module import GraphModule
from weft.fx.node import Node

_EARLY: frozenset[Arg] = frozenset({
    operator.add, operator.mul, operator.sub, operator.floordiv, operator.truediv, operator.mod, operator.le,  # pyright: ignore[reportUnknownMemberType]  of anything
    operator.lt, operator.ge, operator.gt, operator.eq, operator.ne,
})  # fmt: skip


def stable_order(nodes: Iterable[Node]) -> list[Node]:
    """The nodes, each after those of them that it reads, else in the order given; without those in a circle."""
    entries = list(nodes)
    position = {node: at for at, node in enumerate(entries)}
    missing = {node: sum(source in position for source in node.all_input_nodes) for node in entries}
    ready = [at for at, node in enumerate(entries) if not missing[node]]
    order: list[Node] = []
    while ready:
        node = entries[heapq.heappop(ready)]
        order.append(node)
        for user in _ready_users(node, missing):
            heapq.heappush(ready, position[user])
    return order


def breadth_first_order(nodes: Iterable[Node]) -> list[Node]:
    """The nodes, each after those of them that it reads, in the order in which they can be computed.

    Operators of Python come first of those that can. Nodes in a circle are left out.
    """
    entries = dict.fromkeys(nodes)
    missing = {node: sum(source in entries for source in node.all_input_nodes) for node in entries}
    ready = deque([node for node in entries if not missing[node]])
    order: list[Node] = []
    while ready:
        node = ready.popleft()
        order.append(node)
        for user in _ready_users(node, missing):
            if user.op == "call_function" and user.target in _EARLY:
                ready.appendleft(user)
            else:
                ready.append(user)
    return order


def _ready_users(node: Node, missing: dict[Node, int]) -> Iterable[Node]:
    """The users of a node that wait for no other one. Counts it in `missing`, by node what each waits for."""
    for user in node.users:
        if user in missing:
            missing[user] -= 1
            if not missing[user]:
                yield user


def reorder(module: GraphModule, order: Iterable[Node]) -> None:
    """Put the nodes of a graph, which must be all, into an order."""
    graph = module.graph
    for node in order:
        graph._root.prepend(node)
    module.recompile()
