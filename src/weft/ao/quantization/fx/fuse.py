"""Layers that follow each other in a graph become one."""

from __future__ import annotations

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


def _chain(node: Node, model: GraphModule) -> list[tuple[Node, Module]]:
    """The longest chain of nodes from this one on that can be fused, with their layers; empty if there is none."""
    chain: list[tuple[Node, Module]] = []
    best = 0
    while (layer := _layer(node, model)) is not None and len(chain) < 3:
        chain.append((node, layer.train(chain[0][1].training) if chain and node.op == "call_function" else layer))
        if tuple(type_before_parametrizations(part) for _, part in chain) in _FUSERS:
            best = len(chain)
        if len(node.users) != 1:
            break
        node = next(iter(node.users))
    return chain[:best]


def fused_nodes(node: Node, model: GraphModule) -> list[Node]:
    """The nodes from this one on that become one layer if the model is fused; none if it stays as it is."""
    return [part for part, _ in _chain(node, model)]


def fuse(model: GraphModule, *, is_qat: bool) -> None:
    """Fuse layers with their normalisation and ReLU, in place. A layer that is called twice stays as it is."""
    calls: dict[Any, int] = {}
    for node in model.graph.nodes:
        if node.op == "call_module":
            calls[node.target] = calls.get(node.target, 0) + 1
    for node in list(model.graph.nodes):
        if node.op != "call_module" or calls.get(node.target) != 1:
            continue
        chain = _chain(node, model)
        if not chain:
            continue
        layers = [layer for _, layer in chain]
        fused = _FUSERS[tuple(map(type_before_parametrizations, layers))](is_qat, *layers)
        assign_at(model, str(node.target), fused)
        chain[-1][0].replace_all_uses_with(node)
        for later, _ in reversed(chain[1:]):
            model.graph.erase_node(later)
    model.delete_all_unused_submodules()
    model.recompile()
