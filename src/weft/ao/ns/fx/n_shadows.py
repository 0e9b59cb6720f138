"""Each operation of a model beside its quantized forms, one for each `QConfig`, on the same inputs."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

from weft._base.types import AnyCallable, AttributeValue
from weft._tensor.codegen import op
from weft.ao._observing.qconfig import AnyQConfig
from weft.ao.ns.fx.graph_matcher import RECURRENT, Subgraph, subgraphs
from weft.ao.ns.fx.graph_passes import fqn_of, type_text
from weft.ao.quantization.fx.qconfigs import Scope, qconfigs_of
from weft.ao.quantization.qconfig_mapping import QConfigMapping
from weft.ao.quantization.quantize_fx import convert_fx, prepare_fx
from weft.fx._paths import attribute_at
from weft.fx.graph import Graph
from weft.fx.graph_module import GraphModule
from weft.fx.node import Node
from weft.nn._lookup import AnyModule
from weft.nn._module import Module

MakeLogger = AnyCallable

_WRAPPER = "shadow_wrapper_"
"""How the names of prepared operations begin."""


def _alone(part: Subgraph, model: GraphModule) -> tuple[GraphModule, list[Node]]:
    """A model of the operation alone, and the nodes that it takes as inputs. Its weights are copies."""
    graph, inputs = Graph(), list[Node]()
    values: dict[Node, Node] = {}
    attributes: dict[str, AttributeValue] = {}
    for node in part.nodes:
        for arg in node.all_input_nodes:
            if arg in values:
                continue
            if arg.op == "get_attr":
                attributes[str(arg.target)] = copy.deepcopy(attribute_at(model, str(arg.target)))
                values[arg] = graph.node_copy(arg)
            else:
                inputs.append(arg)
                values[arg] = graph.placeholder(arg.name)
        if node.op == "call_module":
            attributes[str(node.target)] = copy.deepcopy(model.get_submodule(str(node.target)))
        values[node] = graph.node_copy(node, values.__getitem__)
    graph.output(values[part.end])
    return GraphModule(attributes, graph).train(model.training), inputs


class _Shadows:
    def __init__(self, model: GraphModule, logger: MakeLogger, comparison: MakeLogger) -> None:
        self.model, self.logger, self.comparison = model, logger, comparison

    def _call(self, name: str, module: Module, args: tuple[Node, ...], after: Node) -> Node:
        self.model.add_submodule(name, module)
        with self.model.graph.inserting_after(after):
            return self.model.graph.call_module(name, args)

    def add(self, at: int, part: Subgraph, qconfigs: dict[int, AnyQConfig]) -> None:
        """Add to an operation a logger, and for each number a shadow that is prepared, with a logger that compares."""
        kinds = (type_text(part.end, self.model), type_text(part.start, self.model))

        def new_logger(make: MakeLogger, number: int, text: str) -> AnyModule:
            names = (part.start.name, part.end.name, f"subgraph_{at}_{number}", "model")
            logger = make(*names, *kinds, "node_output", 0, 0, fqn_of(part.start), text)
            logger.enabled = False  # until the shadows are converted
            return logger

        last = self._call(f"shadow_{at}_0", new_logger(self.logger, 0, ""), (part.end,), part.end)
        for number, qconfig in qconfigs.items():
            alone, inputs = _alone(part, self.model)
            prepared = prepare_fx(alone, QConfigMapping().set_global(qconfig), ())
            shadow = self._call(f"{_WRAPPER}{at}_{number}", prepared, tuple(inputs), last)
            comparison = new_logger(self.comparison, number, str(qconfig))
            last = self._call(f"shadow_{at}_{number}", comparison, (shadow, part.end), shadow)


def add_n_shadows(
    model: GraphModule,
    scopes: Mapping[str, Scope],
    mappings: list[QConfigMapping],
    logger: MakeLogger,
    comparison: MakeLogger,
) -> None:
    """Add the shadows to a traced model, in place. The n-th mapping says what the n-th shadow of an operation is."""
    shadows, nodes = _Shadows(model, logger, comparison), list(model.graph.nodes)
    by_mapping = [qconfigs_of(nodes, model, mapping, scopes) for mapping in mappings]
    for at, part in enumerate(subgraphs(model)):
        qconfigs = {number: by_name[part.start.name] for number, by_name in enumerate(by_mapping, start=1)}
        qconfigs = {number: qconfig for number, qconfig in qconfigs.items() if qconfig is not None}
        if qconfigs and part.base not in RECURRENT:
            shadows.add(at, part, qconfigs)
    model.recompile()


def convert_n_shadows(model: GraphModule) -> None:
    """Convert the shadows, in place."""
    for name, module in list(model.named_children()):
        if name.startswith(_WRAPPER) and isinstance(module, GraphModule):
            setattr(model, name, convert_fx(module))


def summary(records: dict[str, list[dict[str, object]]]) -> str:
    """A table of how far the shadows depart on average: a row for each operation, a column for each mapping."""
    by_part: dict[str, dict[int, dict[str, Any]]] = {}
    for name, (record, *_) in records.items():
        part, _, number = name.rpartition("_")
        by_part.setdefault(part, {})[int(number)] = record
    count = max((number for shadows in by_part.values() for number in shadows), default=0)
    rows = [["node_name", "node_type", "fqn", *map(str, range(count))]]
    for shadows in by_part.values():
        comparisons = [shadows.get(number, {}).get("comparisons") for number in range(1, count + 1)]
        means = [f"{op.stack(x).mean().item():.4g}" if x else "" for x in comparisons]
        rows.append([shadows[0]["ref_node_name"], shadows[0]["ref_node_target_type"], shadows[0]["fqn"], *means])
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    rows.insert(1, ["-" * width for width in widths])
    return "\n".join("  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)) for row in rows)
