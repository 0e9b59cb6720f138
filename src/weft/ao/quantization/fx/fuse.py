"""Layers that follow each other in a graph become one."""

from __future__ import annotations

from collections import Counter
from typing import Any

from weft.ao.quantization.fuser_method_mappings import DEFAULT_OP_LIST_TO_FUSER_METHOD
from weft.ao.quantization.fx.operations import name_of
from weft.fx._paths import assign_at
from weft.fx.graph_module import GraphModule
from weft.fx.node import Node
from weft.nn._activation import LeakyReLU, ReLU, Tanh
from weft.nn._module import Module
from weft.nn.utils.parametrize import type_before_parametrizations

_FUSERS = {kinds: fuse for kinds, fuse in DEFAULT_OP_LIST_TO_FUSER_METHOD.items() if kinds[-1] not in (LeakyReLU, Tanh)}


def _layer(node: Node, model: GraphModule) -> Module | None:
    """The layer that a node computes: a module, or a ReLU for the function."""
    if node.op == "call_module":
        return model.get_submodule(str(node.target))
    return ReLU() if name_of(node) == "torch.nn.functional.relu" else None


def _chain(end: Node, model: GraphModule) -> list[tuple[Node, Module]]:
    """The longest chain of nodes up to this one that can be fused, with their layers; empty if there is none."""
    chain: list[tuple[Node, Module]] = []
    best: list[tuple[Node, Module]] = []
    node: Any = end
    while isinstance(node, Node) and len(chain) < 3 and (layer := _layer(node, model)) is not None:
        chain = [(node, layer), *chain]
        if node.op == "call_module" and tuple(type_before_parametrizations(part) for _, part in chain) in _FUSERS:
            best = chain
        node = node.args[0] if len(node.args) == 1 else None
        if isinstance(node, Node) and len(node.users) != 1:
            break
    return best


def chains(model: GraphModule) -> dict[Node, list[tuple[Node, Module]]]:
    """What becomes one layer if the model is fused: by the first node, all nodes with their layers.

    As in PyTorch, the longest chain is taken from the end on: of a transposed convolution, its normalisation and a
    ReLU, these two become one. A layer that is called twice is not fused.
    """
    calls = Counter(node.target for node in model.graph.nodes if node.op == "call_module")
    result: dict[Node, list[tuple[Node, Module]]] = {}
    covered: set[Node] = set()
    for node in reversed(list(model.graph.nodes)):
        chain = _chain(node, model) if node not in covered else []
        if chain and calls[chain[0][0].target] == 1:
            result[chain[0][0]] = chain
            covered.update(part for part, _ in chain)
    return result


def fuse(model: GraphModule, *, is_qat: bool) -> None:
    """Fuse layers with their normalisation and ReLU, in place."""
    for node, chain in chains(model).items():
        first = chain[0][1]
        layers = [layer.train(first.training) if part.op == "call_function" else layer for part, layer in chain]
        fused = _FUSERS[tuple(map(type_before_parametrizations, layers))](is_qat, *layers)
        assign_at(model, str(node.target), fused)
        chain[-1][0].replace_all_uses_with(node)
        for later, _ in reversed(chain[1:]):
            model.graph.erase_node(later)
    model.delete_all_unused_submodules()
    model.recompile()
