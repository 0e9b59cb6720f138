"""From which node of another graph a node was made."""

from __future__ import annotations

from collections.abc import Hashable
from enum import Enum

from weft._base.guards import is_dict, is_list
from weft._base.types import Json
from weft.fx.graph import Graph
from weft.fx.node import Node


class NodeSourceAction(Enum):
    """What was done with the other node."""

    CREATE = "create"
    REPLACE = "replace"


class NodeSource:
    """A node that another one was made from, and where that one comes from in turn (`from_node`).

    It keeps the name, the target and the number of the graph, not the node. Equal sources have equal `to_dict()`.
    """

    def __init__(
        self,
        node: Node | None,
        pass_name: str = "",
        action: NodeSourceAction | list[NodeSourceAction] | None = None,
    ) -> None:
        self.pass_name = pass_name
        self.action = action if is_list(action) else [] if action is None else [action]
        self.name = "" if node is None else node.name
        self.target = "" if node is None else str(node.target)
        self.graph_id = -1 if node is None else id(node.graph)
        self.from_node: list[NodeSource] = [] if node is None else list(node.meta.get("from_node", ()))

    def print_readable(self, indent: int = 0) -> str:
        """A line for this source, and indented ones for those that it comes from, to a depth of 9."""
        if indent > 9:
            return ""
        own = f"name={self.name}, pass_name={self.pass_name}, action={self._action_text()}, graph_id={self.graph_id}"
        return "".join([f"{' ' * 4 * indent}({own})\n", *[x.print_readable(indent + 1) for x in self.from_node]])

    def to_dict(self) -> dict[str, Json]:
        """The source as texts, numbers, lists and dicts."""
        return {
            "name": self.name,
            "target": self.target,
            "graph_id": self.graph_id,
            "pass_name": self.pass_name,
            "action": self._action_text(),
            "from_node": [source.to_dict() for source in self.from_node],
        }

    def _action_text(self) -> str:
        return "+".join([action.value for action in self.action])

    def __repr__(self) -> str:
        return self.print_readable()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, NodeSource) and self.to_dict() == other.to_dict()

    def __hash__(self) -> int:
        return hash(_hashable(self.to_dict()))


def _hashable(part: object) -> Hashable:
    if is_dict(part):
        return tuple([(key, _hashable(value)) for key, value in part.items()])
    return tuple(map(_hashable, part)) if is_list(part) else part


def get_graph_provenance_json(graph: Graph) -> dict[str, Json]:
    """For the name of each node that calls a function, what it was made from, as dicts."""
    calls = [node for node in graph.nodes if node.op == "call_function"]
    return {node.name: [source.to_dict() for source in node.meta.get("from_node", ())] for node in calls}
