"""Computing once what a graph computes from parameters, buffers and constants alone."""

from __future__ import annotations

import re
from collections.abc import Callable
from operator import getitem

from weft._base.guards import is_tuple
from weft._base.types import Arg, Result
from weft._tensor.convert import tensor
from weft._tensor.tensor import Tensor
from weft.errors import PreconditionError
from weft.fx._paths import assign_at, attribute_at
from weft.fx._symbolic_trace import symbolic_trace
from weft.fx.graph import Graph
from weft.fx.graph_module import GraphModule
from weft.fx.node import Node, map_arg
from weft.nn._module import Module
from weft.nn._parameter import Parameter
from weft.nn._parameter_containers import ParameterList


class FoldedGraphModule(GraphModule):
    """A graph module that computes some constants at its first call, by `const_subgraph_module`, and keeps them.

    `fx_const_folded_attrs_name` is the attribute for them: a parameter, or a list of parameters if the graph
    `const_subgraph` returns a tuple. Integers become tensors on `device_for_folded_attrs`. Without a graph, nothing is
    folded.
    """

    def __init__(
        self,
        root: Module,
        graph: Graph,
        const_subgraph: Graph | None = None,
        fx_const_folded_attrs_name: str | None = None,
        device_for_folded_attrs: str = "cpu",
    ) -> None:
        super().__init__(root, graph)
        self.const_subgraph_module = None if const_subgraph is None else GraphModule(root, const_subgraph)
        self.has_folding_been_run = False
        self.fx_const_folded_attrs_name = fx_const_folded_attrs_name
        self.device_for_folded_attrs = device_for_folded_attrs

    def __call__(self, *args: Arg, **kwargs: Arg) -> Result:
        """The result of the graph; computes the constants first, unless that is done."""
        if not self.has_folding_been_run:
            self.run_folding()
        return super().__call__(*args, **kwargs)

    def run_folding(self) -> None:
        """Compute the constants; `AssertionError` if that is done. To be called again after parameters have changed,
        `has_folding_been_run` must be set to False.
        """
        if self.const_subgraph_module is None or self.fx_const_folded_attrs_name is None:
            return
        if self.has_folding_been_run:
            raise PreconditionError(
                "run_folding: the constants are already computed; set has_folding_been_run to False"
            )
        self.has_folding_been_run = True
        folded = self.const_subgraph_module()
        kept = ParameterList(map(self._kept, folded)) if is_tuple(folded) else self._kept(folded)
        setattr(self, self.fx_const_folded_attrs_name, kept)

    def _kept(self, constant: Tensor | float) -> Parameter:
        if not isinstance(constant, Tensor):
            return Parameter(tensor([constant], device=self.device_for_folded_attrs), requires_grad=False)
        return Parameter(constant.detach().clone(), requires_grad=constant.requires_grad)


def get_unique_attr_name_in_module(mod_traced: Module, name: str) -> str:
    """An identifier like `name` that is no attribute of the module yet, with a number at its end if needed."""
    name = re.sub("[^0-9a-zA-Z_]+", "_", name)
    name = f"_{name}" if name[0].isdigit() else name
    while hasattr(mod_traced, name):
        base, number = match.groups() if (match := re.fullmatch(r"(.*)_(\d+)", name)) else (name, "0")
        name = f"{base}_{int(number) + 1}"
    return name


def split_const_subgraphs(
    module: Module,
    skip_folding_node_fn: Callable[[Node], bool] | None = None,
    device_for_folded_attrs: str = "cpu",
) -> FoldedGraphModule:
    """The module with what it computes from its parameters, buffers and constants alone in a graph of its own.

    That graph is run once, at the first call. Nodes for which `skip_folding_node_fn` is true are not folded, nor are
    those that do more than compute (`Node.is_impure`), or that read what such nodes write to. The module is traced
    unless it is a `GraphModule`.
    """
    traced = module if isinstance(module, GraphModule) else symbolic_trace(module)
    constant = _constant_nodes(traced, skip_folding_node_fn or (lambda node: False))
    if all(node.op == "get_attr" for node in constant):
        return FoldedGraphModule(traced, traced.graph)
    readers = [node for node in traced.graph.nodes if node not in constant]
    sources = [source for node in readers for source in node.all_input_nodes]
    folded = list(dict.fromkeys([x for x in sources if x in constant and x.op != "get_attr"]))
    name = get_unique_attr_name_in_module(traced, "_FX_CONST_FOLDED_ATTRS")
    const_graph = _const_graph(traced, constant, folded)
    graph = _graph_without(traced, constant, folded, name)
    # Only what the two graphs still read: folded parameters would otherwise be kept beside their results.
    root = Module()
    root.train(traced.training)
    for node in (*const_graph.nodes, *graph.nodes):
        if node.op in ("get_attr", "call_module") and node.target != name:
            assign_at(root, node.target, attribute_at(traced, node.target))
    setattr(root, name, ParameterList() if len(folded) != 1 else Parameter(tensor([]), requires_grad=False))
    return FoldedGraphModule(root, graph, const_graph, name, device_for_folded_attrs)


def _constant_nodes(traced: GraphModule, skip: Callable[[Node], bool]) -> set[Node]:
    """The nodes that read attributes, and those that compute from them alone."""
    acting = [node for node in traced.graph.nodes if node.op not in ("placeholder", "output") and _acts(traced, node)]
    written = {source.target for node in acting for source in node.all_input_nodes if source.op == "get_attr"}
    constant: set[Node] = set()
    for node in traced.graph.nodes:
        if node.op in ("placeholder", "output") or node in acting or skip(node):
            continue
        if node.target not in written if node.op == "get_attr" else constant.issuperset(node.all_input_nodes):
            constant.add(node)
    return constant


def _acts(traced: GraphModule, node: Node) -> bool:
    """Whether a node, or one of a graph module that it calls, does more than compute."""
    if node.is_impure():
        return True
    called = traced.get_submodule(node.target) if node.op == "call_module" else None
    if not isinstance(called, GraphModule):
        return False
    return any(_acts(called, inner) for inner in called.graph.nodes if inner.op not in ("placeholder", "output"))


def _const_graph(traced: GraphModule, constant: set[Node], folded: list[Node]) -> Graph:
    """The graph that returns the folded results: one alone, or a tuple."""
    graph = Graph()
    copies: dict[Node, Node] = {}
    for node in traced.graph.nodes:
        if node in constant and (node in folded or _has_user(node, constant.__contains__)):
            copies[node] = graph.node_copy(node, copies.__getitem__)
    results = tuple([copies[node] for node in folded])
    graph.output(results[0] if len(results) == 1 else results)
    return graph


def _graph_without(traced: GraphModule, constant: set[Node], folded: list[Node], name: str) -> Graph:
    """The graph of a module, with attributes in place of what is folded."""
    graph = Graph()
    graph.set_codegen(traced.graph._codegen)  # pyright: ignore[reportPrivateUsage]  PyTorch's name
    copies: dict[Node, Node] = {}
    for node in traced.graph.nodes:
        if node in constant and not (node.op == "get_attr" and _has_user(node, lambda user: user not in constant)):
            continue
        if folded[0] not in copies and node.op not in ("placeholder", "get_attr"):
            _read_folded(graph, folded, name, copies)
        if node.op == "output":
            graph.output(map_arg(node.args[0], copies.__getitem__), node.type)
        else:
            copies[node] = graph.node_copy(node, copies.__getitem__)
    return graph


def _has_user(node: Node, condition: Callable[[Node], bool]) -> bool:
    return any(condition(user) for user in node.users)


def _read_folded(graph: Graph, folded: list[Node], name: str, copies: dict[Node, Node]) -> None:
    """Read the attribute with the folded results."""
    attribute = graph.get_attr(name)
    for at, node in enumerate(folded):
        copies[node] = attribute if len(folded) == 1 else graph.call_function(getitem, (attribute, at))
        copies[node].meta = dict(node.meta)
