"""Programs that run passes over graphs, written for PyTorch and for Weft; many are those of PyTorch's documentation.

Each returns texts and numbers, which are the same for both.
"""

from __future__ import annotations

import copy
import operator
from collections.abc import Callable
from typing import Any, NamedTuple

from tests.fx.edits import fx_module, image, net, total

PASSES: dict[str, Callable[[Any], list[Any]]] = {}


def example(function: Callable[[Any], list[Any]]) -> Callable[[Any], list[Any]]:
    PASSES[function.__name__] = function
    return function


def codes(module: Any) -> list[str]:
    """The code of a graph module, and of those that it calls."""
    inner = [child for child in module.children() if hasattr(child, "graph")]
    return [module.code, *[code for child in inner for code in codes(child)]]


# --- running passes -------------------------------------------------------------------------------------------------


def replacement(torch: Any, old: Any, new: Any) -> Any:
    base = fx_module(torch, "passes.infra.pass_base")

    class Replacement(base.PassBase):
        def call(self, graph_module):
            found = [node for node in graph_module.graph.nodes if node.target is old]
            for node in found:
                node.target = new
            return base.PassResult(graph_module, bool(found))

        def requires(self, graph_module):
            graph_module.graph.lint()

    return Replacement()


@example
def passes_are_managed(torch):
    infra = fx_module(torch, "passes.infra.pass_manager")
    seen = []
    module = torch.fx.symbolic_trace(lambda x, y: torch.mul(torch.add(x, y), 2))
    add_to_div, div_to_mul = replacement(torch, torch.add, torch.div), replacement(torch, torch.div, torch.mul)

    def checked(graph_module):
        seen.append([str(node.target.__name__) for node in graph_module.graph.nodes if node.op == "call_function"])

    manager = infra.PassManager([div_to_mul], run_checks_after_each_pass=True)
    manager.add_pass(add_to_div)
    manager.add_checks(checked)
    manager.add_constraint(infra.this_before_that_pass_constraint(add_to_div, div_to_mul))
    result = manager(module)
    again = manager(result.graph_module)
    repeated = infra.PassManager([div_to_mul, add_to_div], steps=5)(torch.fx.symbolic_trace(torch_add(torch)))
    wrapped = infra.pass_result_wrapper(lambda gm: gm.graph.lint())
    return [result.modified, again.modified, module.code, seen, repeated.graph_module.code, wrapped(module).modified]


def torch_add(torch: Any) -> Any:
    return lambda x: torch.add(x, x)


@example
def wrong_orders_of_passes_are_refused(torch):
    infra, older = fx_module(torch, "passes.infra.pass_manager"), fx_module(torch, "passes.pass_manager")

    def first(x):
        return [*x, 1]

    def second(x):
        return [*x, 2]

    errors = []
    before = [infra.this_before_that_pass_constraint(first, second)]
    both = [*before, infra.this_before_that_pass_constraint(second, first)]
    for action in (
        lambda: infra.PassManager([second, first], before).validate_constraints(),
        lambda: infra.PassManager([first, second], both).solve_constraints(),
        lambda: infra.PassManager([first])(torch.nn.Linear(1, 1)),
        lambda: infra.PassManager().add_checks(lambda x, y: None),
        lambda: older.PassManager([second, first], before)([]),
        lambda: older.loop_pass(first),
    ):
        try:
            action()
        except Exception as error:
            kinds = [kind.__name__ for kind in type(error).__mro__ if kind.__module__ == "builtins"]
            errors.append(kinds[0] if kinds[0] != "RuntimeError" else "Exception")
        else:
            errors.append(None)
    return errors


@example
def functions_are_passes(torch):
    older = fx_module(torch, "passes.pass_manager")

    def extend(x):
        x.append(len(x))

    def double(x):
        return [2 * y for y in x]

    inner = older.inplace_wrapper(older.log_hook(extend))
    manager = older.PassManager.build_from_passlist([older.loop_pass(inner, n_iter=3)])
    manager.add_pass(older.loop_pass(double, predicate=lambda x: sum(x) < 20))
    manager.add_constraint(older.these_before_those_pass_constraint(extend, double))
    results = [manager([])]
    manager.replace_pass(double, inner)
    results.append(manager([]))
    manager.remove_pass(["extend"])
    return [*results, manager([5])]


# --- parts of graphs ------------------------------------------------------------------------------------------------


def branches(torch: Any) -> Any:
    """The program of PyTorch's tests of partitions, with parts that depend on each other."""

    def branches(a, b, c):
        add = a + b
        linear = torch.relu(add + c)
        add_2 = add + linear
        add_3 = add_2 * b
        relu = torch.relu(add_3)
        pair = torch.chunk(relu + add_2, 2)
        return pair[0] + pair[1], torch.relu(add_3 * linear)

    return branches


def support_of(torch: Any, *targets: Any) -> Any:
    operator_support = fx_module(torch, "passes.operator_support")

    class Support(operator_support.OperatorSupportBase):
        def is_node_supported(self, submodules, node):
            return node.op == "call_function" and node.target in targets

    return Support()


def partitions(torch: Any, **options: Any) -> list[Any]:
    partitioner = fx_module(torch, "passes.infra.partitioner")
    module = torch.fx.symbolic_trace(branches(torch))
    expected = total(module(*[torch.ones(4) * k for k in (1, 2, 3)])[0])
    support = support_of(torch, operator.add, operator.mul, torch.chunk)
    parts = partitioner.CapabilityBasedPartitioner(module, support, **options)
    proposed = parts.propose_partitions()
    names = [[node.name for node in part.nodes] for part in proposed]
    fused = parts.fuse_partitions(proposed, prefix="part_")
    return [names, codes(fused), total(fused(*[torch.ones(4) * k for k in (1, 2, 3)])[0]) - expected]


@example
def supported_parts_are_fused(torch):
    return partitions(torch)


@example
def supported_nodes_are_parts(torch):
    return partitions(torch, allows_single_node_partition=True)


@example
def parts_are_only_vertical(torch):
    return partitions(torch, allows_single_node_partition=True, skip_horizontal_fusion=True)


@example
def single_nodes_of_some_kinds_are_parts(torch):
    return partitions(torch, allowed_single_node_partition_ops=["_operator.mul"], non_compute_ops=["_operator.add"])


@example
def ends_without_computation_are_taken_off(torch):
    partitioner = fx_module(torch, "passes.infra.partitioner")

    def program(x):
        y = torch.squeeze(torch.unsqueeze(x, 0))
        return torch.flatten(torch.relu(torch.squeeze(torch.relu(y)))), torch.flatten(y)

    module = torch.fx.symbolic_trace(program)
    idle = ["torch.squeeze", "torch.unsqueeze", "torch.flatten"]
    support = support_of(torch, torch.squeeze, torch.unsqueeze, torch.flatten, torch.relu)
    parts = partitioner.CapabilityBasedPartitioner(module, support, non_compute_ops=idle)
    proposed = parts.propose_partitions()
    before = [[node.name for node in part.nodes] for part in proposed]
    parts.remove_bookend_non_compute_ops(proposed)
    return [before, [[node.name for node in part.nodes] for part in proposed], codes(parts.fuse_partitions(proposed))]


@example
def operators_are_supported(torch):
    support, shapes = fx_module(torch, "passes.operator_support"), fx_module(torch, "passes.shape_prop")
    common = fx_module(torch, "passes.tools_common")
    module = torch.fx.symbolic_trace(net(torch))
    shapes.ShapeProp(module).propagate(image(torch))
    table = {
        "torch.nn.modules.conv.Conv2d": None,
        "torch.nn.modules.linear.Linear": (([torch.float16],), {}),
        "torch.nn.modules.activation.ReLU": ((None, [torch.float16]), {}),
        "torch.nn.modules.batchnorm.BatchNorm2d": (([torch.float32],), {}),
        "_operator.mul": (([torch.float32], [torch.float32]), {}),
        "flatten": None,
    }
    modules = dict(module.named_modules())
    own = support.OperatorSupport(table)
    named = support.OpSupports.decline_if_node_in_names({"conv"})
    typed = support.OpSupports.decline_if_input_dtype(torch.float32)
    either = support.any_chain(typed, support.create_op_support(lambda modules, node: node.op == "call_method"))
    calls = [node for node in module.graph.nodes if node.op in common.CALLABLE_NODE_OPS]
    return [
        [common.get_node_target(modules, node) for node in calls],
        [own.is_node_supported(modules, node) for node in module.graph.nodes],
        [support.chain(own, named).is_node_supported(modules, node) for node in calls],
        [typed.is_node_supported(modules, node) for node in calls],
        [either.is_node_supported(modules, node) for node in calls],
        [common.is_node_output_tensor(node) for node in module.graph.nodes],
    ]


@example
def parts_become_modules(torch):
    fuser, utils = fx_module(torch, "passes.utils.fuser_utils"), fx_module(torch, "passes.utils")
    module = torch.fx.symbolic_trace(branches(torch))
    nodes = {node.name: node for node in module.graph.nodes}
    circle = [nodes["add"], nodes["add_2"]]
    own = [nodes["relu"], nodes["add_1"]]
    fused, inputs, outputs = fuser.fuse_as_graphmodule(module, fuser.topo_sort(own), "Own", always_return_tuple=True)
    whole = copy.deepcopy(module.graph)
    fuser.insert_subgm(module, fused, inputs, outputs)
    fuser.erase_nodes(module, fuser.topo_sort(own))
    module.graph.lint()
    module.recompile()
    again = torch.fx.symbolic_trace(branches(torch)).graph
    return [
        fuser.validate_partition(circle),
        fuser.validate_partition(own[::-1]),
        [node.name for node in (*fuser.topo_sort(own), *inputs, *outputs)],
        codes(module),
        type(fused).__name__,
        utils.compare_graphs(whole, again),
        utils.compare_graphs(whole, module.graph),
    ]


@example
def parts_share_what_they_use(torch):
    utils = fx_module(torch, "passes.utils")
    module = torch.fx.symbolic_trace(net(torch))
    graph, env = torch.fx.Graph(), {}
    for node in module.graph.nodes:
        if node.name in ("x", "conv", "bn"):
            env[node] = graph.node_copy(node, env.__getitem__)
    graph.output(env[node.graph.find_nodes(op="call_module", target="bn")[0]])
    part, paths = utils.lift_subgraph_as_module(module, graph, "first", "First")
    holder = utils.HolderModule({"first": part})
    return [part.code, paths, type(part).__name__, part.conv is module.conv, total(holder.first(image(torch)))]


@example
def graphs_are_split_by_tags(torch):
    split = fx_module(torch, "passes.split_utils")

    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.linear1, self.linear2 = torch.nn.Linear(2, 2), torch.nn.Linear(2, 2)
            self.inner = torch.nn.Sequential(torch.nn.Linear(2, 2))
            self.weight = torch.nn.Parameter(torch.ones(2))

        def forward(self, in1, in2):
            r1 = self.linear1(in1) * self.weight
            r2 = self.linear2(in2)
            r3 = torch.cat([r1, r2])
            return self.inner(r3) * self.weight, r1, self.weight

    tags = {
        "linear1": "request",
        "mul": "request",
        "linear2": "left",
        "cat": "main",
        "inner_0": "main",
        "mul_1": "main",
    }
    results = []
    for options in ({}, {"return_tuple": True}):
        model = Model()
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.fill_(0.5)
        module = torch.fx.symbolic_trace(model)
        for node in module.graph.nodes:
            if node.name in tags:
                node.tag = tags[node.name]
        module, paths = split.split_by_tags(module, ["request", "left", "main"], return_fqn_mapping=True, **options)
        results += [codes(module), sorted(paths.items()), total(module(torch.ones(1, 2), torch.ones(1, 2))[0])]
    split.setattr_recursive(module, "main.inner.0.extra", 3)
    return [
        *results,
        split.getattr_recursive(module, "main.inner.0.extra"),
        split.getattr_recursive(module, "main.nothing"),
    ]


@example
def graphs_are_split_by_a_table(torch):
    split_module = fx_module(torch, "passes.split_module")
    module = torch.fx.symbolic_trace(branches(torch))
    calls = [node for node in module.graph.nodes if node.op == "call_function"]
    module = split_module.split_module_simple(
        module, {node: at // 4 for at, node in enumerate(calls)}, partition_affix="part"
    )
    return [[node.name for node in module.graph.nodes], [name for name, _ in module.named_children()]]


@example
def nodes_are_found_by_their_source(torch):
    matcher = fx_module(torch, "passes.utils.source_matcher_utils")

    class Block(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.scale = torch.nn.Parameter(torch.ones(1))

        def forward(self, x):
            return torch.relu(x * self.scale) + 1

    module = torch.fx.symbolic_trace(torch.nn.Sequential(Block(), Block()))
    found = matcher.get_source_partitions(module.graph, [Block, torch.nn.Linear])[Block]
    none = matcher.get_source_partitions(module.graph, [Block], lambda node: node.target is not torch.relu)
    groups = [(part.nodes, part.input_nodes, part.output_nodes, part.params) for part in found]
    return [
        [[sorted(map(str, nodes)) for nodes in group[:3]] for group in groups],
        matcher.check_subgraphs_connected(*found),
        matcher.check_subgraphs_connected(*reversed(found)),
        none[Block],
    ]


# --- nodes and sizes ------------------------------------------------------------------------------------------------


@example
def targets_are_replaced_and_sizes_noted(torch):
    manipulation = fx_module(torch, "passes.graph_manipulation")
    module = torch.fx.symbolic_trace(net(torch))
    manipulation.replace_target_nodes_with(module, "call_function", operator.mul, "call_function", torch.add)
    manipulation.get_size_of_all_nodes(module, [image(torch)])
    sizes = [list(node.size_bytes) for node in module.graph.nodes if node.op != "output"]
    return [module.code, sizes, str(manipulation.size_bytes(1, 2))]


@example
def options_of_layers_are_fetched(torch):
    fetch = fx_module(torch, "passes.param_fetch")
    model = torch.nn.Sequential(
        torch.nn.Conv2d(1, 2, 3), torch.nn.BatchNorm2d(2), torch.nn.ReLU(), torch.nn.MaxPool2d(2)
    )
    module = torch.fx.symbolic_trace(model)
    fetch.lift_lowering_attrs_to_nodes(module)
    nodes = [node for node in module.graph.nodes if node.op == "call_module"]
    return [[(name, str(getattr(x, "shape", x))) for name, x in node.attrs_for_lowering.items()] for node in nodes]


@example
def nodes_are_sorted(torch):
    common = fx_module(torch, "passes.tools_common")
    orders = []
    for sort in (common.legalize_graph, common.stable_topological_sort):
        module = torch.fx.symbolic_trace(branches(torch))
        nodes = list(module.graph.nodes)
        nodes[-1].append(nodes[3])
        nodes[0].prepend(nodes[6])
        nodes[1].prepend(nodes[5])
        sort(module).graph.lint()
        orders.append([node.name for node in module.graph.nodes])
    return orders


class Pair(NamedTuple):
    first: int
    second: str


@example
def parts_of_results_have_types(torch):
    annotate = fx_module(torch, "passes.annotate_getitem_nodes").annotate_getitem_nodes
    kinds = (tuple[int, str], tuple[int, ...], list[float], Pair, None)
    graph = torch.fx.Graph()
    wholes = [graph.placeholder(f"x{at}", kind) for at, kind in enumerate(kinds)]
    graph.output([graph.call_function(operator.getitem, (whole, at)) for whole in wholes for at in (0, 1)])
    annotate(graph)
    types = [node.type for node in graph.nodes if node.op == "call_function"]
    return [getattr(kind, "__forward_arg__", getattr(kind, "__name__", kind)) for kind in types]
