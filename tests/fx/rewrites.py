"""Programs that rewrite graphs by what `fx.experimental` has, written for PyTorch and for Weft.

Each returns texts and numbers, which are the same for both.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

from tests.fx.edits import fx_module, image, net, total

REWRITES: dict[str, Callable[[Any], list[Any]]] = {}


def example(function: Callable[[Any], list[Any]]) -> Callable[[Any], list[Any]]:
    REWRITES[function.__name__] = function
    return function


def target(node: Any) -> str:
    return str(getattr(node.target, "__name__", node.target))


def described_targets(graph: Any) -> list[Any]:
    """The kinds and targets of nodes, with what they read, in an order that does not depend on where attributes are."""
    rows = [[node.op, target(node), [target(x) for x in node.all_input_nodes]] for node in graph.nodes]
    return [*sorted([row for row in rows if row[0] == "get_attr"]), *[row for row in rows if row[0] != "get_attr"]]


# --- constants ------------------------------------------------------------------------------------------------------


def constants(torch: Any) -> Any:
    """A model that computes from its parameters alone, and of which a part is a module that does."""

    class Constants(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.attr_1 = torch.nn.Parameter(torch.tensor([[-0.9]]))
            self.attr_2 = torch.nn.Parameter(torch.tensor([[17.1]]))
            self.linear = torch.nn.Linear(1, 1)
            self.register_buffer("scale", torch.ones(1) * 3)
            with torch.no_grad():
                self.linear.weight.fill_(2.0)
                self.linear.bias.fill_(1.0)

        def forward(self, x, y):
            a = self.attr_1 + self.attr_1
            x = x - a + self.attr_2
            return x * y + self.linear(self.attr_2), torch.relu(a) - self.attr_2.size(0), self.attr_1

    return Constants()


@example
def constants_are_folded(torch):
    fold = fx_module(torch, "experimental.const_fold")
    model = constants(torch)
    folded = fold.split_const_subgraphs(model)
    x, y = torch.ones(2, 1) * 2, torch.ones(2, 1) * 3
    before = folded.has_folding_been_run
    results = [[total(part) for part in module(x, y)] for module in (model, folded, folded)]
    kept = getattr(folded, folded.fx_const_folded_attrs_name)
    try:
        folded.run_folding()
    except AssertionError:
        results.append(["refused"])
    return [
        before,
        results,
        folded.fx_const_folded_attrs_name,
        [list(x.shape) for x in kept],
        described_targets(folded.graph),
        described_targets(folded.const_subgraph_module.graph),
    ]


@example
def a_single_constant_is_folded(torch):
    fold = fx_module(torch, "experimental.const_fold")

    class Single(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.a = torch.nn.Parameter(torch.ones(2))
            self._FX_CONST_FOLDED_ATTRS = 3

        def forward(self, x):
            return x * (self.a + 1)

    folded = fold.split_const_subgraphs(Single())
    results = [total(folded(torch.ones(2))), folded.code]
    skipped = fold.split_const_subgraphs(Single(), skip_folding_node_fn=lambda node: node.target is operator.add)
    none = fold.split_const_subgraphs(torch.nn.Linear(1, 1))
    return [
        *results,
        fold.get_unique_attr_name_in_module(folded, "0 a"),
        fold.get_unique_attr_name_in_module(skipped, "a"),
        skipped.const_subgraph_module is None,
        none(torch.ones(1)).shape[0],
        none.has_folding_been_run,
    ]


@example
def constants_may_be_all(torch):
    fold = fx_module(torch, "experimental.const_fold")

    class Everything(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.a = torch.nn.Parameter(torch.ones(2))

        def forward(self):
            return torch.relu(self.a * 2)

    folded = fold.split_const_subgraphs(Everything())
    return [total(folded()), described_targets(folded.graph), described_targets(folded.const_subgraph_module.graph)]


# --- one form -------------------------------------------------------------------------------------------------------


def calls(torch: Any) -> Any:
    functional = torch.nn.functional

    def calls(x, y):
        z = functional.relu(torch.matmul(x, y))
        w = functional.max_pool2d(functional.softmax(z, 1), 2)
        return torch.cat([z, z * 2], 1), w, z.sum(0)

    return calls


@example
def arguments_are_normalized(torch):
    normalize = fx_module(torch, "experimental.normalize")
    module = torch.fx.symbolic_trace(calls(torch))
    for node in module.graph.nodes:
        node.meta["number"] = len(node.args)
    normalizer = normalize.NormalizeArgs(module)
    result = normalizer.transform()
    model = normalize.NormalizeArgs(torch.fx.symbolic_trace(net(torch))).transform()
    half = normalize.NormalizeArgs(module, normalize_to_only_use_kwargs=False).transform()
    codes = [gm.code.replace(", _stacklevel = 3", "").replace(", _stacklevel = 5", "") for gm in (result, model, half)]
    x = torch.ones(1, 4, 4)
    return [
        *codes,
        [node.meta.get("number") for node in result.graph.nodes],
        [str(node) for node in normalizer.node_map.values()],
        total(result(x, x)[0]) - total(module(x, x)[0]),
    ]


@example
def operators_are_normalized(torch):
    normalize = fx_module(torch, "experimental.normalize")

    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = torch.nn.Linear(2, 2)
            self.scale = torch.nn.Parameter(torch.ones(2))

        def forward(self, x, y):
            z = torch.add(x, torch.mul(y, self.scale)) - torch.sub(x, y)
            z = torch.div(z, 2) + torch.floor_divide(x, 2) + torch.remainder(y, 2)
            lower = torch.lt(torch.nn.functional.relu(self.linear(z)), 1)
            return torch.eq(lower, torch.ge(x, y)), torch.ne(x, y), torch.le(x, y), torch.gt(x, 0)

    module = torch.fx.symbolic_trace(Model())
    annotate = fx_module(torch, "experimental.schema_type_annotation").AnnotateTypesWithSchema
    return [
        normalize.NormalizeOperators(module).transform().code,
        annotate(module, annotate_modules=False).transform().code,
        annotate(module, annotate_functionals=False, annotate_get_attrs=False).transform().code,
    ]


# --- sources, products, evaluation ----------------------------------------------------------------------------------


@example
def sources_are_rewritten(torch):
    rewriter = fx_module(torch, "experimental.rewriter")

    class Checked(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.scale = torch.nn.Parameter(torch.ones(2))

        def forward(self, x, limit=3):
            assert x.sum() > 0, "must be positive"
            y = x * self.scale
            assert y.shape[0] == 2
            return y

    model = Checked()
    tracer = rewriter.RewritingTracer()
    globals()["torch"] = torch  # PyTorch looks for `torch._assert` among the globals of the program
    try:
        graph = tracer.trace(model)
    finally:
        del globals()["torch"]
    module = torch.fx.GraphModule(tracer.root, graph)
    results = [module.code, total(module(torch.ones(2))), module.scale is model.scale]
    try:
        module(-torch.ones(2))
    except AssertionError as error:
        results.append(str(error))
    return results


@example
def products_are_merged(torch):
    merge = fx_module(torch, "experimental.merge_matmul")

    class Products(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.rhs = torch.nn.Parameter(torch.ones(3, 2))
            self.square = torch.nn.Parameter(torch.ones(2, 2))

        def forward(self, x, y, z):
            a, b = torch.matmul(x, self.rhs), torch.matmul(y, self.rhs)
            c = torch.matmul(z, self.rhs)
            d = torch.matmul(torch.matmul(a, self.square), self.square)
            return torch.relu(a) + c, b, d

    model = Products()
    merged = merge.merge_matmul(model)
    inputs = [torch.ones(n, 3) * n for n in (1, 2, 1)]
    nodes = list(merged.graph.nodes)
    products = merged.graph.find_nodes(op="call_function", target=torch.matmul)
    return [
        [[total(part) for part in module(*inputs)] for module in (model, merged)],
        sorted(target(node) for node in nodes if node.op == "call_function"),
        merge.are_nodes_independent(products),
        merge.are_nodes_independent(merged.graph.find_nodes(op="placeholder")),
        [merge.may_depend_on(nodes[-1], nodes[0], depth) for depth in (1, 20)],
        [
            list(part.shape)
            for part in merge.split_result_tensors(torch.ones(3, 2), [torch.ones(1, 1), torch.ones(2, 1)])
        ],
    ]


@example
def models_are_optimized_for_inference(torch):
    optimization = fx_module(torch, "experimental.optimization")
    model = net(torch)
    results = []
    for options in ({}, {"conv_bn_fuse": False}, {"remove_dropout": False}):
        optimized = optimization.optimize_for_inference(model, {"mkldnn_layout_optimize": False, **options})
        kinds = [type(module).__name__ for module in optimized.modules()]
        results.append(
            [
                "BatchNorm2d" in kinds,
                "Dropout" in kinds,
                abs(total(optimized(image(torch))) - total(model(image(torch)))) < 0.1,
            ]
        )
    for wrong in (True, {}):
        try:
            optimization.optimize_for_inference(model, {"mkldnn_layout_optimize": wrong})
        except RuntimeError:
            results.append("refused")
    return results
