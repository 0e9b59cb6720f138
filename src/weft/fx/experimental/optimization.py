"""Models for evaluation: batch normalisation folded into the layers before it, no dropout."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from weft.errors import OutOfRangeError
from weft.fx._symbolic_trace import symbolic_trace
from weft.fx._tracer import Tracer
from weft.fx.graph import Graph
from weft.fx.graph_module import GraphModule
from weft.fx.node import Node
from weft.nn._conv import Conv1d, Conv2d, Conv3d
from weft.nn._dropout import Dropout, Dropout2d, Dropout3d
from weft.nn._linear import Linear
from weft.nn._module import Module
from weft.nn._norm import BatchNorm1d, BatchNorm2d, BatchNorm3d
from weft.nn.utils.fusion import fuse_conv_bn_eval, fuse_linear_bn_eval

_FUSIONS: tuple[tuple[type, type, Callable[..., Any]], ...] = (
    (Conv1d, BatchNorm1d, fuse_conv_bn_eval),
    (Conv2d, BatchNorm2d, fuse_conv_bn_eval),
    (Conv3d, BatchNorm3d, fuse_conv_bn_eval),
    (Linear, BatchNorm1d, fuse_linear_bn_eval),
)


def matches_module_pattern(pattern: Iterable[type], node: Node, modules: dict[str, Module]) -> bool:
    """Whether a node calls a module of the second type on the result of one of the first. `modules` are by path."""
    if not node.args:
        return False
    for kind, call in zip(pattern, (node.args[0], node), strict=True):
        if not isinstance(call, Node) or call.op != "call_module" or type(modules.get(call.target)) is not kind:
            return False
    return True


def replace_node_module(node: Node, modules: dict[str, Module], new_module: Module) -> None:
    """Let a node call another module, which takes the path of the one that it calls now."""
    path, _, name = node.target.rpartition(".")
    modules[node.target] = new_module
    setattr(modules[path], name, new_module)


def fuse(model: Module, inplace: bool = False, no_trace: bool = False) -> GraphModule:
    """The model with batch normalisation folded into the convolutions and linear layers before it.

    Both must be in evaluation mode, the layer's result must have no other use, and the normalisation must have
    statistics. The model is copied unless `inplace`, and traced unless it is a `GraphModule` and `no_trace` is set.
    """
    model = model if inplace else copy.deepcopy(model)
    fused: GraphModule = model if no_trace and isinstance(model, GraphModule) else symbolic_trace(model)
    modules = dict(fused.named_modules())
    for kind, norm_kind, fusion in _FUSIONS:
        for node in list(fused.graph.nodes):
            if not matches_module_pattern((kind, norm_kind), node, modules) or len(node.args[0].users) > 1:
                continue
            layer, norm = modules[node.args[0].target], modules[node.target]
            # Without statistics the normalisation depends on the batch; a layer that is called twice would have it
            # folded in for the other call as well.
            if not norm.track_running_stats or _calls(fused.graph, node.args[0].target) > 1:
                continue
            replace_node_module(node.args[0], modules, fusion(layer, norm))
            node.replace_all_uses_with(node.args[0])
            fused.graph.erase_node(node)
    fused.delete_all_unused_submodules()
    fused.recompile()
    return fused


def _calls(graph: Graph, target: str) -> int:
    return len(graph.find_nodes(op="call_module", target=target))


def remove_dropout(model: Module) -> GraphModule:
    """The model without its dropout modules."""
    fused = symbolic_trace(model)
    for node in list(fused.graph.nodes):
        if node.op == "call_module" and isinstance(fused.get_submodule(node.target), Dropout | Dropout2d | Dropout3d):
            node.replace_all_uses_with(node.args[0])
            fused.graph.erase_node(node)
    fused.delete_all_unused_submodules()
    fused.recompile()
    return fused


def extract_subgraph(orig_module: Module, nodes: list[Node], inputs: list[Node], outputs: list[Node]) -> GraphModule:
    """A module that computes `outputs` from `inputs` by these nodes, given in their order."""
    graph = Graph()
    val_map: dict[Node, Node] = {node: graph.placeholder(node.name) for node in inputs}
    for node in nodes:
        val_map[node] = graph.node_copy(node, lambda n: val_map[n])
    graph.output([val_map[node] for node in outputs])
    graph.lint()
    return GraphModule(orig_module, graph)


def optimize_for_inference(
    model: Module, pass_config: Mapping[str, object] | None = None, tracer: type[Tracer] = Tracer
) -> GraphModule:
    """A copy of the model with `fuse` and `remove_dropout`, traced by `tracer`.

    `pass_config` turns these off by `"conv_bn_fuse": False` and `"remove_dropout": False`. Its entry
    `"mkldnn_layout_optimize"`, False or a dict with `"heuristic"`, changes nothing: XLA chooses layouts by itself.
    """
    config = {"conv_bn_fuse": True, "remove_dropout": True, "mkldnn_layout_optimize": False, **(pass_config or {})}
    layouts = config["mkldnn_layout_optimize"]
    if layouts is not False and not (isinstance(layouts, dict) and "heuristic" in layouts):
        raise OutOfRangeError(f'mkldnn_layout_optimize must be False or a dict with "heuristic", got {layouts!r}')
    model = copy.deepcopy(model)
    if config["conv_bn_fuse"]:
        model = fuse(model, inplace=True)
    if config["remove_dropout"]:
        model = remove_dropout(model)
    # Traced anew at the end, by the caller's tracer, which may keep modules whole that `fuse` has to look into.
    own = tracer()
    graph = own.trace(model)
    return GraphModule(own.root, graph)
