"""Random graphs are partitioned, fused and sorted as PyTorch does it."""

from __future__ import annotations

import operator
import random
from typing import Any

import pytest

import weft
from tests.fx.edits import fx_module

torch = pytest.importorskip("torch")
pytestmark = [pytest.mark.oracle, pytest.mark.filterwarnings("ignore")]


def random_module(framework: Any, draw: random.Random) -> Any:
    graph = framework.fx.Graph()
    nodes = [graph.placeholder(f"x{at}") for at in range(2)]
    for _ in range(draw.randint(4, 16)):
        kind, recent, other = draw.randrange(4), draw.choice(nodes[-6:]), draw.choice(nodes)
        if kind == 0:
            pair = graph.call_function(framework.chunk, (recent, 2))
            nodes += [graph.call_function(operator.getitem, (pair, at)) for at in range(draw.randint(1, 2))]
        elif kind == 1:
            nodes.append(graph.call_function(framework.relu, (recent,)))
        else:
            nodes.append(graph.call_function((framework.add, framework.mul)[kind - 2], (recent, other)))
    graph.output(tuple([node for node in nodes if not node.users]))
    return framework.fx.GraphModule(framework.nn.Module(), graph)


def partitioned(framework: Any, seed: int) -> list[Any]:
    """The parts of a random module for random support, and the code that they are fused to."""
    draw = random.Random(seed)
    module = random_module(framework, draw)
    calls = [node.name for node in module.graph.nodes if node.op == "call_function"]
    supported = {name for name in calls if draw.random() < 0.7}
    support = fx_module(framework, "passes.operator_support").create_op_support(lambda _, node: node.name in supported)
    partitioner = fx_module(framework, "passes.infra.partitioner").CapabilityBasedPartitioner(
        module,
        support,
        allows_single_node_partition=draw.random() < 0.5,
        skip_horizontal_fusion=draw.random() < 0.3,
    )
    parts = partitioner.propose_partitions()
    names = [[node.name for node in part.nodes] for part in parts]
    fused = partitioner.fuse_partitions(parts)
    return [names, fused.code, [child.code for child in fused.children()]]


@pytest.mark.parametrize("seed", range(0, 200, 20))
def test_the_same_parts(seed):
    for one in range(seed, seed + 20):
        assert partitioned(weft, one) == partitioned(torch, one), one


@pytest.mark.parametrize("name", ["legalize_graph", "stable_topological_sort"])
@pytest.mark.parametrize("seed", range(10))
def test_the_same_order(seed, name):
    orders = []
    for framework in (weft, torch):
        draw = random.Random(seed)
        module = random_module(framework, draw)
        nodes = list(module.graph.nodes)
        for node in draw.sample(nodes, len(nodes)):
            draw.choice([x for x in nodes if x is not node]).append(node)
        getattr(fx_module(framework, "passes.tools_common"), name)(module)
        orders.append([node.name for node in module.graph.nodes])
    assert orders[0] == orders[1]
