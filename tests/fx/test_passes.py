"""Passes and rewritings: what is refused and why, and where they do more than PyTorch's."""

from __future__ import annotations

import ast
import functools
import importlib
import operator
import sys

import pytest

import weft
from weft import fx, nn
from weft.fx import passes
from weft.fx import traceback as notes
from weft.fx.annotate import annotate
from weft.fx.experimental.const_fold import split_const_subgraphs
from weft.fx.experimental.normalize import NormalizeArgs, NormalizeOperators
from weft.fx.experimental.optimization import optimize_for_inference
from weft.fx.experimental.rewriter import AST_Rewriter, RewritingTracer
from weft.fx.operator_schemas import create_type_hint, type_matches
from weft.fx.passes import graph_drawer, graph_manipulation, param_fetch, split_utils, tools_common
from weft.fx.passes.annotate_getitem_nodes import annotate_getitem_nodes
from weft.fx.passes.infra.partitioner import CapabilityBasedPartitioner, Partition
from weft.fx.passes.infra.pass_manager import PassManager, pass_result_wrapper, this_before_that_pass_constraint
from weft.fx.passes.operator_support import OperatorSupport, create_op_support
from weft.fx.passes.pass_manager import loop_pass
from weft.fx.passes.utils import fuser_utils
from weft.fx.passes.utils.matcher_with_name_node_map_utils import SubgraphMatcherWithNameNodeMap


def program(x, y):
    return weft.relu(x + y) * y


@pytest.fixture
def module():
    return fx.symbolic_trace(program)


def nodes(module):
    return {node.name: node for node in module.graph.nodes}


def test_passes_are_found_from_the_package(monkeypatch):
    for name in ("graph_drawer", "operator_support", "shape_prop"):
        monkeypatch.delattr(passes, name)
    importlib.reload(passes)
    assert passes.graph_drawer is graph_drawer
    assert passes.shape_prop.ShapeProp.__module__ == "weft.fx.passes.shape_prop"
    assert passes.operator_support.OperatorSupport is OperatorSupport


# --- drawings -------------------------------------------------------------------------------------------------------


def test_drawings_need_pydot(module, monkeypatch):
    monkeypatch.setitem(sys.modules, "pydot", None)
    with pytest.raises(RuntimeError, match=r"^FxGraphDrawer needs the package pydot; .* pip install 'weft\[draw\]'$"):
        graph_drawer.FxGraphDrawer(module, "x")


def test_drawings_show_layers(tmp_path):
    module = fx.symbolic_trace(nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3)))
    drawing = graph_drawer.FxGraphDrawer(module, "model").get_dot_graph()
    labels = {node.get_name().strip('"'): node.get_label() for node in drawing.get_nodes()}
    assert "torch.nn.modules.linear.Linear" in labels["_0"]
    assert "in_features=2, out_features=3, bias=True" in labels["_0"]
    assert labels["_0.weight"] == r"{_0.weight|op_code=get_parameter\ltorch.float32[3, 2]\n}"
    assert labels["_1.running_mean"] == r"{_1.running_mean|op_code=get_buffer\ltorch.float32[3]\n}"
    drawing.write_raw(tmp_path / "model.dot")
    assert (tmp_path / "model.dot").read_text().startswith("digraph model {")
    bare = graph_drawer.FxGraphDrawer(module, "model", ignore_parameters_and_buffers=True).get_dot_graph()
    assert [node.get_name() for node in bare.get_nodes()] == ["input_1", "_0", "_1", "output"]


# --- managers -------------------------------------------------------------------------------------------------------


def first(module):
    return module


def second(module):
    return module


def test_wrong_orders_say_which_passes():
    manager = PassManager([second, first], [this_before_that_pass_constraint(first, second)])
    with pytest.raises(
        RuntimeError, match=r"^pass schedule constraint violated\. .*second.* at index 0 and .* index 1"
    ):
        manager.validate_constraints()
    manager.solve_constraints()
    assert manager.passes == [first, second]
    manager.add_constraint(this_before_that_pass_constraint(second, first))
    with pytest.raises(RuntimeError, match=r"^Circular dependency detected within .*first.*second"):
        manager.solve_constraints()


def test_errors_of_passes_say_where(module):
    def failing(module):
        raise ValueError("no")

    with pytest.raises(
        Exception, match=r"^An error occurred when running the 'failing' pass after .* \['first'\]: no$"
    ) as error:
        PassManager([pass_result_wrapper(first), failing])(module)
    assert isinstance(error.value.__cause__, ValueError)
    with pytest.raises(
        Exception, match=r"result of the pass first should be type PassResult, got .*pass_result_wrapper"
    ):
        PassManager([first])(module)
    with pytest.raises(TypeError, match=r"one variable, a module; this one takes 0$"):
        PassManager().add_checks(lambda: None)


def test_loops_have_an_end():
    with pytest.raises(AssertionError, match="exactly one of n_iter and predicate"):
        loop_pass(first, 1, lambda x: True)
    with pytest.raises(RuntimeError, match="positive int n_iter, got 0"):
        loop_pass(first, 0)


# --- parts ----------------------------------------------------------------------------------------------------------


def test_partitions_are_checked(module):
    with pytest.raises(AssertionError, match="2 nodes need as many node_orders, got 1"):
        Partition(nodes=list(module.graph.nodes)[:2], node_orders=[1])
    part = Partition(3, [nodes(module)["add"]], [1])
    part.add_node(nodes(module)["relu"], 2)
    assert (part.id, part.size(), str(part)) == (3, 2, "{add: 1, relu: 2}")
    with pytest.raises(NotImplementedError, match="must define is_node_supported"):
        super(OperatorSupport, OperatorSupport()).is_node_supported({}, nodes(module)["add"])
    with pytest.raises(AssertionError, match=r"'x' must be a call \(call_function, .*and is of kind placeholder"):
        tools_common.get_node_target({}, nodes(module)["x"])


def test_parts_that_cannot_be_computed_at_once_are_refused(module):
    own = nodes(module)
    with pytest.raises(AssertionError, match=r"^Invalid partition, found dependency cycles: .*\[add, mul\]"):
        fuser_utils.fuse_as_graphmodule(module, [own["add"], own["mul"]], "Part")
    with pytest.raises(AssertionError, match="'add' is not a node of the graph of program"):
        fuser_utils.fuse_as_graphmodule(fx.symbolic_trace(program), [own["add"]], "Part")
    part, inputs, _ = fuser_utils.fuse_as_graphmodule(module, [own["add"]], "Part")
    with pytest.raises(AssertionError, match="Part has no outputs, so it needs an insertion_point"):
        fuser_utils.insert_subgm(module, part, inputs, ())


def test_circles_are_refused(module):
    own = nodes(module)
    own["add"].args = (own["x"], own["mul"])
    with pytest.raises(RuntimeError, match=r"^Input graph has cycles, unable to add \[add, relu, mul, output\]$"):
        tools_common.legalize_graph(module)
    with pytest.raises(AssertionError, match=r"^Input graph has cycles"):
        tools_common.stable_topological_sort(module)
    own["relu"].args = (own["mul"],)
    with pytest.raises(AssertionError, match=r"only 0 of 2 nodes can be sorted"):
        fuser_utils.topo_sort([own["relu"], own["mul"]])


def test_an_index_does_not_move_a_part_of_a_result():
    module = fx.symbolic_trace(lambda x: weft.relu(x)[weft.argmax(x)])
    support = create_op_support(lambda _, node: node.target in (weft.relu, operator.getitem))
    parts = CapabilityBasedPartitioner(module, support, allows_single_node_partition=True).propose_partitions()
    assert [[node.name for node in part.nodes] for part in parts] == [["relu", "getitem"]]


def test_inputs_and_outputs_are_in_no_part(module):
    support = OperatorSupport({"_operator.add": None, "_operator.mul": None, "torch.relu": None})
    fused = CapabilityBasedPartitioner(module, support).partition_and_fuse()
    assert [node.name for node in fused.graph.nodes] == ["x", "y", "fused_0", "output"]
    assert weft.equal(fused(weft.ones(2), weft.ones(2)), program(weft.ones(2), weft.ones(2)))


def test_tags_are_checked(module):
    with pytest.raises(AssertionError, match=r"^Node does not have tag: %add .* set node\.tag to one of \['a'\]$"):
        split_utils.split_by_tags(module, ["a"])
    for name, tag in {"add": "b", "relu": "a", "mul": "c"}.items():
        nodes(module)[name].tag = tag
    with pytest.raises(
        AssertionError, match=r"^Component a order must be >= max .* order=0 and max=1: 'relu' reads from"
    ):
        split_utils.split_by_tags(module, ["a", "b", "c"])
    with pytest.raises(AssertionError, match=r"'mul' has the tag 'c', and tags has only \['b', 'a'\]"):
        split_utils.split_by_tags(module, ["b", "a"])


def test_named_nodes_of_a_pattern_are_found(module):
    def pattern(x, y):
        total = x + y
        return weft.relu(total), {"sum": total}

    traced = fx.symbolic_trace(pattern)
    before = str(traced.graph)
    matcher = SubgraphMatcherWithNameNodeMap(traced)
    assert [match.name_node_map for match in matcher.match(module.graph)] == [{"sum": nodes(module)["add"]}]
    assert str(traced.graph) == before
    with pytest.raises(AssertionError, match="its results and then a dict from names to nodes, got mul"):
        SubgraphMatcherWithNameNodeMap(module)


# --- nodes ----------------------------------------------------------------------------------------------------------


def test_what_nodes_lack_is_said(module):
    with pytest.raises(RuntimeError, match=r"^Node x has no tensor metadata .* shape propagation has run"):
        graph_manipulation.get_size_of_all_nodes(module)
    with pytest.raises(RuntimeError, match=r"^torch\.nn\.modules\.activation\.GELU is not in the module_fetch_book"):
        param_fetch.extract_attrs_for_lowering(nn.GELU())
    layer = nn.Linear(1, 1)
    layer._version = 2
    with pytest.raises(RuntimeError, match=r"Linear has version 2, and module_fetch_book knows only 1"):
        param_fetch.extract_attrs_for_lowering(layer)
    graph = fx.Graph()
    graph.call_function(operator.getitem, (graph.placeholder("x", tuple[int]), 1))
    with pytest.raises(AssertionError, match="has no part 1"):
        annotate_getitem_nodes(graph)


def test_types_are_given_once():
    with pytest.raises(RuntimeError, match=r"^annotate: 'x' already has the type .*int.*, got <class 'float'>"):
        fx.symbolic_trace(lambda x: annotate(annotate(x, int), float))


def test_types_that_are_none_warn():
    with pytest.warns(UserWarning, match="not able to successfully create type hint"):
        assert create_type_hint([1]) == [1]
    with pytest.warns(UserWarning, match="its elements must be of a class"):
        assert not type_matches(list[list[int]], str)


def test_stack_traces_end_with_their_block():
    with notes.preserve_node_meta():
        notes.set_stack_trace(["here"])
        assert notes.format_stack() == ["here"]
    assert notes.get_current_meta() == {}


# --- rewritings -----------------------------------------------------------------------------------------------------


def test_what_is_written_is_no_constant():
    class Counting(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("count", weft.zeros(1))
            self.register_buffer("step", weft.ones(1))

        def forward(self, x):
            self.count.add_(self.step)
            return x * (self.count + 1) + (self.step + 1)

    class Tracer(fx.Tracer):
        proxy_buffer_attributes = True

    model = Counting()
    module = fx.GraphModule(model, Tracer().trace(model))
    folded = split_const_subgraphs(module)
    assert [folded(weft.ones(1)).item() for _ in range(3)] == [4, 5, 6]
    outer = nn.Module()
    outer.inner = module
    graph = fx.Graph()
    weight = graph.get_attr("inner.step")
    graph.output(graph.call_module("inner", (weight,)))
    folded = split_const_subgraphs(fx.GraphModule(outer, graph))
    assert folded.const_subgraph_module is None


def test_numbers_are_folded_to_tensors():
    class Sizes(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(weft.ones(3))

        def forward(self, x):
            return x * self.weight.size(0)

    folded = split_const_subgraphs(Sizes())
    assert folded(
        weft.ones(2),
    ).tolist() == [3, 3]
    assert folded._FX_CONST_FOLDED_ATTRS.tolist() == [3]
    with pytest.raises(AssertionError, match="already computed; set has_folding_been_run to False"):
        folded.run_folding()


def test_all_arguments_are_normalized():
    module = fx.symbolic_trace(lambda x, y: weft.sub(x, y, alpha=2) + weft.add(x, y))
    normalized = NormalizeOperators(module).transform()
    assert "sub = torch.sub(x, y, alpha = 2)" in normalized.code
    assert "add = x + y" in normalized.code
    by_name = NormalizeArgs(module).transform()
    assert "add = torch.add(input = x, other = y, alpha = 1)" in by_name.code
    x, y = weft.ones(2), weft.ones(2) * 3
    assert weft.equal(normalized(x, y), module(x, y))
    assert weft.equal(by_name(x, y), module(x, y))


def test_layouts_are_left_to_xla():
    model = nn.Sequential(nn.Conv2d(1, 1, 1), nn.BatchNorm2d(1), nn.Dropout()).eval()
    module = optimize_for_inference(model)
    assert [type(layer) for layer in module.children()] == [nn.Conv2d]
    with pytest.raises(RuntimeError, match=r"must be False or a dict with \"heuristic\", got True$"):
        optimize_for_inference(model, {"mkldnn_layout_optimize": True})


def decorated(function):
    @functools.wraps(function)
    def twice(*args, **kwargs):
        return function(*args, **kwargs) * 2

    return twice


class Inner(nn.Module):
    def forward(self, x):
        assert x.sum() > 0, "inner"
        return self.shifted(x)

    def shifted(self, x):
        return x + 1


class Outer(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner, self.layer, self.none = Inner(), nn.Linear(2, 2), None
        self.register_module("empty", None)

    def forward(self, x, *, scale=2):
        y: weft.Tensor = self.layer(x) * scale
        z: int
        z = 1
        return self.inner(y) * z


def test_modules_are_rewritten_whole():
    tracer = RewritingTracer()
    model = Outer()
    graph = tracer.trace(model)
    module = fx.GraphModule(tracer.root, graph)
    assert "_assert = torch._assert(gt, 'inner')" in module.code
    assert "mul : torch.Tensor = layer * scale" in module.code
    assert module.layer is model.layer
    assert type(model.inner) is Inner
    with weft.no_grad():
        model.layer.weight.fill_(0.0)
        model.layer.bias.fill_(-1.0)
    with pytest.raises(AssertionError, match="inner"):
        module(weft.ones(2))


def test_closures_are_kept():
    factor = weft.ones(1) * 3

    @decorated
    def closed(x, y=1):
        assert y, "y"
        return x * factor + y

    tracer = RewritingTracer()
    graph = tracer.trace(closed)
    module = fx.GraphModule(tracer.root, graph)
    assert module(weft.ones(1)).item() == 4

    class Negating(AST_Rewriter):
        def visit_Mult(self, node):
            return ast.Sub()

    assert Negating().rewrite(closed)(weft.ones(1)).item() == -1
    with pytest.raises(AssertionError, match=r"must be defined by `def`, got"):
        AST_Rewriter().rewrite(lambda x: x)
