"""Finding parts of a graph that a backend supports, and making submodules of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from operator import getitem

from weft.errors import PreconditionError
from weft.fx._names import qualified_name
from weft.fx.graph_module import GraphModule
from weft.fx.node import Node
from weft.fx.passes.operator_support import OperatorSupportBase
from weft.fx.passes.utils.fuser_utils import fuse_by_partitions, topo_sort

_NO_COMPUTATION = frozenset({"torch.ops.aten.view", "_operator.getitem"})


class Partition:
    """A part of a graph: its nodes, with numbers by which they are sorted or None."""

    def __init__(
        self,
        id: int | None = None,
        nodes: Iterable[Node] | None = None,
        node_orders: Iterable[int] | None = None,
    ) -> None:
        self.id = id
        own = list(nodes or ())
        orders: list[int | None] = [None] * len(own) if node_orders is None else list(node_orders)
        if len(own) != len(orders):
            raise PreconditionError(f"Partition: {len(own)} nodes need as many node_orders, got {len(orders)}")
        self.nodes: dict[Node, int | None] = dict(zip(own, orders, strict=True))

    def __repr__(self) -> str:
        return str(self.nodes)

    def add_node(self, node: Node, node_order: int | None = None) -> None:
        """Add a node."""
        self.nodes[node] = node_order

    def remove_node(self, node: Node) -> None:
        """Remove a node."""
        del self.nodes[node]

    def size(self) -> int:
        """The number of nodes."""
        return len(self.nodes)


class CapabilityBasedPartitioner:
    """Splits a graph into parts that a backend supports, as large as can be computed at once, and the rest.

    A part must have two functions to call, besides `non_compute_ops` and `getitem`, unless
    `allows_single_node_partition`, or one of `allowed_single_node_partition_ops`; these are names such as `torch.relu`.
    With `skip_horizontal_fusion` only nodes of which one reads from the other are in one part.
    """

    def __init__(
        self,
        graph_module: GraphModule,
        operator_support: OperatorSupportBase,
        allows_single_node_partition: bool = False,
        non_compute_ops: Sequence[str] | None = None,
        allowed_single_node_partition_ops: Sequence[str] | None = None,
        skip_horizontal_fusion: bool = False,
    ) -> None:
        self.graph_module = graph_module
        self.operator_support = operator_support
        self.allows_single_node_partition = allows_single_node_partition
        self.non_compute_ops: Sequence[str] = non_compute_ops or []
        self.allowed_single_node_partition_ops: Sequence[str] = allowed_single_node_partition_ops or []
        self.skip_horizontal_fusion = skip_horizontal_fusion

    def propose_partitions(self) -> list[Partition]:
        """The parts, each with its nodes in their order."""
        growing = _Partitions()
        modules = dict(self.graph_module.named_modules())
        for order, node in enumerate(reversed(self.graph_module.graph.nodes)):
            own = None
            is_own = node.op not in ("placeholder", "output")  # those of the whole graph
            if is_own and self.operator_support.is_node_supported(modules, node):
                own = growing.add(node, order)
            if self.skip_horizontal_fusion:
                others = [] if own is None else [growing.of[user] for user in node.users if user in growing.of]
            else:
                others = sorted(growing.partitions, key=growing.first.__getitem__)
            growing.merge(own, others)
        for partition in growing.partitions:
            partition.nodes = dict(sorted(partition.nodes.items(), key=lambda entry: -(entry[1] or 0)))
        growing.put_items_with_their_tuples(self.graph_module.graph.nodes)
        return [partition for partition in growing.partitions if partition.size() and self._is_worthwhile(partition)]

    def _is_worthwhile(self, partition: Partition) -> bool:
        if self.allows_single_node_partition:
            return True
        names = [qualified_name(node.target) for node in partition.nodes if node.op == "call_function"]
        computing = [name for name in names if name not in _NO_COMPUTATION and name not in self.non_compute_ops]
        return len(computing) + sum(name in self.allowed_single_node_partition_ops for name in names) > 1

    def fuse_partitions(self, partitions: list[Partition], prefix: str = "fused_") -> GraphModule:
        """Make submodules `fused_0` and so on of parts. Changes and returns the module."""
        return fuse_by_partitions(self.graph_module, [partition.nodes for partition in partitions], prefix)

    def remove_bookend_non_compute_ops(self, partitions: list[Partition]) -> None:
        """Take calls of `non_compute_ops` out of parts that have nothing else before them, or nothing else after."""
        for partition in partitions:
            nodes = topo_sort(list(partition.nodes))
            self._remove_ends(partition, nodes, lambda node: node.all_input_nodes)
            self._remove_ends(partition, reversed(nodes), lambda node: node.users)

    def _remove_ends(
        self, partition: Partition, nodes: Iterable[Node], neighbors: Callable[[Node], Iterable[Node]]
    ) -> None:
        """Remove idle nodes whose neighbors on one side are in no part. The nodes are given from that side on."""
        for node in nodes:
            if self._is_idle(node) and not any(neighbor in partition.nodes for neighbor in neighbors(node)):
                partition.nodes.pop(node, None)

    def _is_idle(self, node: Node) -> bool:
        return node.op == "call_function" and qualified_name(node.target) in self.non_compute_ops

    def partition_and_fuse(self, prefix: str = "fused_") -> GraphModule:
        """`fuse_partitions` of `propose_partitions`."""
        return self.fuse_partitions(self.propose_partitions(), prefix)


class _Partitions:
    """Partitions that grow. `of` is that of each node in one, `first` the number at which each began."""

    def __init__(self) -> None:
        self.partitions: list[Partition] = []
        self.of: dict[Node, Partition] = {}
        self.first: dict[Partition, int] = {}

    def add(self, node: Node, order: int) -> Partition:
        """A new partition of one node."""
        partition = self.of[node] = Partition(len(self.first), [node], [order])
        self.first[partition] = len(self.first)
        self.partitions.append(partition)
        return partition

    def merge(self, own: Partition | None, others: Iterable[Partition]) -> None:
        """Merge one after the other into the first, where the result can be computed at once."""
        for other in dict.fromkeys([other for other in others if other is not own]):
            if own is None:
                own = other
            elif not self._have_way_back(own, other):
                own = self._merged(own, other)

    def _merged(self, a: Partition, b: Partition) -> Partition:
        large, small = (b, a) if a.size() < b.size() else (a, b)
        large.nodes.update(small.nodes)
        self.of.update(dict.fromkeys(small.nodes, large))
        self.first[large] = min(self.first[large], self.first[small])
        self.partitions.remove(small)
        return large

    def _have_way_back(self, *merged: Partition) -> bool:
        """Whether a path leaves these partitions and comes back, through nodes or whole partitions."""
        inside = set(merged)
        own = [node for partition in merged for node in partition.nodes]
        waiting = [user for node in own for user in node.users if self.of.get(user) not in inside]
        seen: set[Node] = set()
        while waiting:
            node = waiting.pop()
            if node in seen:
                continue
            partition = self.of.get(node)
            if partition in inside:
                return True
            # A partition is computed as a whole, so a way into any of its nodes leads on from all of them.
            members = [node] if partition is None else list(partition.nodes)
            seen.update(members)
            waiting.extend([user for member in members for user in member.users])
        return False

    def put_items_with_their_tuples(self, nodes: Iterable[Node]) -> None:
        """Move nodes that take parts of a result to the partition of that result, or out of all."""
        moved = True
        while moved:
            moved = False
            for node in nodes:
                if any(user.op != "call_function" or user.target is not getitem for user in node.users):
                    continue
                for user in node.users:
                    if user.args[0] is node and self.of.get(user) is not self.of.get(node):
                        self._move(user, self.of.get(node))
                        moved = True

    def _move(self, node: Node, partition: Partition | None) -> None:
        if (previous := self.of.pop(node, None)) is not None:
            previous.remove_node(node)
        if partition is not None:
            self.of[node] = partition
            partition.add_node(node)
