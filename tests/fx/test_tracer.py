"""Tracing: what is wrapped, what threads see, arguments, proxies."""

from __future__ import annotations

import collections
import copy
import dataclasses
import gc
import math
import threading

import pytest

import weft
from weft import fx, nn
from weft.fx import _pytree as fx_pytree
from weft.fx._symbolic_trace import PHBase, PHWithMeta
from weft.fx._wrapping import _WRAPPED
from weft.fx.proxy import GraphAppendingTracer
from weft.utils import _pytree


@fx.wrap
def rounded(x):
    return x if x > 2 else 2


fx.wrap("len")


def nodes(graph):
    return [(node.op, node.name) for node in graph.nodes]


def test_wrapped_functions_are_nodes():
    module = fx.symbolic_trace(lambda x: rounded(x) + len([x]) + len([1, 2]) + rounded(5))
    assert nodes(module.graph)[1:4] == [
        ("call_function", "rounded"),
        ("call_function", "len_1"),
        ("call_function", "add"),
    ]
    assert module(1) == 2 + 1 + 2 + 5
    again = fx.symbolic_trace(module)
    assert nodes(again.graph) == nodes(module.graph)
    assert (rounded(1), len("ab")) == (2, 2)


def test_wrap_takes_functions_at_the_top_of_a_module():
    with pytest.raises(RuntimeError, match=r"^Unsupported type for global function! Must be .* string name, got int$"):
        fx.wrap(3)
    with pytest.raises(NotImplementedError, match=r"^wrap must be called at the top level of a module"):
        fx.wrap("abs")


def test_generated_modules_are_forgotten():
    gc.collect()
    before = set(_WRAPPED)
    module = fx.symbolic_trace(lambda x: math.sqrt(x.size(0)))
    assert [name for _, name in set(_WRAPPED) - before] == ["math_sqrt"]
    assert math.sqrt(4) == 2
    del module
    gc.collect()
    assert set(_WRAPPED) == before


def test_functions_can_be_wrapped_for_one_tracer():
    def traced(*functions):
        return nodes(fx.Tracer(autowrap_functions=functions).trace(lambda x: branch(x)))

    assert traced(branch) == [("placeholder", "x"), ("call_function", "branch"), ("output", "output")]
    with pytest.raises(fx.proxy.TraceError):
        traced()


def branch(x):
    return x if x > 0 else -x


def test_other_threads_call_modules_as_ever():
    layer = nn.Linear(2, 2)
    inside, done = threading.Event(), threading.Event()
    results = []

    class Waiting(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = layer

        def forward(self, x):
            inside.set()
            assert done.wait(60)
            return self.layer(x)

    def call():
        assert inside.wait(60)
        results.append((layer(weft.ones(2)), layer.weight))
        done.set()

    thread = threading.Thread(target=call)
    thread.start()
    module = fx.symbolic_trace(Waiting())
    thread.join()
    assert nodes(module.graph) == [("placeholder", "x"), ("call_module", "layer"), ("output", "output")]
    assert type(results[0][0]) is weft.Tensor
    assert results[0][1] is layer.weight


def test_threads_that_trace_at_the_same_time_share_stand_ins():
    first_inside, second_done = threading.Event(), threading.Event()
    graphs = {}

    def first(x):
        first_inside.set()
        assert second_done.wait(60)
        return rounded(x) + math.sqrt(x)

    def second(x):
        return rounded(x) - math.sqrt(x)

    thread = threading.Thread(target=lambda: graphs.update(first=fx.Tracer().trace(first)))
    original = rounded
    thread.start()
    assert first_inside.wait(60)
    graphs["second"] = fx.Tracer().trace(second)
    second_done.set()
    thread.join()
    for graph in graphs.values():
        assert [node.target for node in graph.nodes][1:3] == [original, math.sqrt]
    assert rounded is original
    assert "noted" not in math.sqrt.__qualname__


def test_an_error_leaves_nothing_behind():
    class Broken(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(weft.ones(2))

        def forward(self, x):
            raise KeyError("mine")

    model = Broken()
    with pytest.raises(KeyError, match="mine"):
        fx.symbolic_trace(model)
    assert type(model.weight) is nn.Parameter
    assert not fx._symbolic_trace.is_fx_tracing()


def test_shapes_of_parameters_may_be_constant():
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.p = nn.Parameter(weft.ones(3, 2))

        def forward(self, x):
            is_known = self.p.shape == (3, 2) and self.p.dim() == self.p.ndim == 2 and self.p.numel() == 6
            return x + self.p if is_known and self.p.size(0) == 3 and self.p.nelement() == 6 else x

    assert len(fx.Tracer(param_shapes_constant=True).trace(Model()).nodes) == 4
    with pytest.raises(fx.proxy.TraceError):
        fx.Tracer().trace(Model())


def test_buffers_may_be_proxies():
    class Buffers(fx.Tracer):
        proxy_buffer_attributes = True

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("b", weft.ones(2))

        def forward(self, x):
            return x + self.b * 2

    model = Model()
    assert nodes(Buffers().trace(model))[1:3] == [("get_attr", "b"), ("call_function", "mul")]
    assert nodes(fx.Tracer().trace(model))[1:3] == [("get_attr", "_tensor_constant0"), ("call_function", "add")]


@dataclasses.dataclass
class Options:
    scale: object
    shift: int = 1


class Point(metaclass=fx.ProxyableClassMeta):
    def __init__(self, x, y):
        self.x, self.y = x, y


def test_objects_are_made_in_the_graph():
    module = fx.symbolic_trace(lambda x: Point(x, 1).x)
    assert module(3) == 3
    graph = fx.Tracer().trace(lambda x: x.foo(Options(x)))
    assert [(node.name, node.target) for node in graph.nodes if node.op == "call_function"] == [("options", Options)]


def test_an_own_argument_type():
    class Own:
        def __fx_create_arg__(self, tracer):
            return tracer.create_node("call_function", Own, (), {})

    graph = fx.Tracer().trace(lambda x: x.foo(Own()))
    assert [node.name for node in graph.nodes] == ["x", "own", "foo", "output"]


def test_what_is_traced_is_a_program():
    for function, kind in ((weft.relu, "a function of this package"), (nn.ReLU().forward, "<class 'method'>")):
        with pytest.raises(AssertionError, match=f"^Expected FunctionType, got {kind}: "):
            fx.symbolic_trace(function)
    tracer = fx.Tracer()
    tracer.traced_func_name = "nothing"
    with pytest.raises(AssertionError, match=r"^traced_func_name=nothing doesn't exist in ReLU$"):
        tracer.trace(nn.ReLU())


def test_proxies_extend_a_graph():
    graph = fx.Graph()
    x = fx.Proxy(graph.placeholder("x"))
    y = weft.cat([x.relu() + 2, x.T], dim=0)[0, 1:]
    graph.output((2 - abs(y)).node)
    assert [node.name for node in graph.nodes] == [
        "x", "relu", "add", "getattr_1", "cat", "getitem", "abs_1", "sub", "output",
    ]  # fmt: skip
    assert fx.GraphModule(nn.Module(), graph)(weft.ones(2, 2)).tolist() == [-1]
    assert (repr(x), repr(x.shape)) == ("Proxy(x)", "Proxy(getattr_2)")
    other = fx.Proxy(fx.Graph().placeholder("q"))
    with pytest.raises(RuntimeError, match=r"^add: proxies of two tracers meet, \[Proxy\(x\), Proxy\(q\)\]"):
        weft.add(x, other)
    assert fx.Proxy(x.node, GraphAppendingTracer(graph)).node is x.node


def test_transformers_keep_what_nodes_note():
    module = fx.symbolic_trace(lambda x: x.relu() + 1)
    for node in module.graph.nodes:
        node.meta["note"] = node.name
    new = fx.Transformer(module).transform()
    assert [node.meta.get("note") for node in new.graph.nodes][1:] == ["relu", "add", "output"]


def test_lines_of_the_program_are_noted_on_request():
    class Lines(fx.Tracer):
        record_stack_traces = True

    *_, add, _ = Lines().trace(lambda x: x + 1).nodes
    assert add.stack_trace.splitlines()[-1].strip() == "*_, add, _ = Lines().trace(lambda x: x + 1).nodes"
    assert __file__ in add.stack_trace
    assert "weft/fx" not in add.stack_trace


def test_lines_begin_where_the_program_does():
    def half(x):
        return x / 2

    def program(x):
        return half(x)

    tracer = fx.Tracer()
    tracer.record_stack_traces = True
    x, truediv, output = tracer.trace(program).nodes
    assert truediv.stack_trace.count("File") == 2
    assert [line.strip() for line in truediv.stack_trace.splitlines()[1::2]] == ["return half(x)", "return x / 2"]
    assert x.stack_trace is output.stack_trace is None


def test_keys_of_dicts_are_no_nodes():
    with pytest.raises(RuntimeError, match=r"^Keys for dictionaries used as an argument cannot contain a Node"):
        fx.symbolic_trace(lambda x: {x: 1})


def test_nodes_know_their_module():
    tracer = fx.Tracer()
    tracer.trace(nn.Sequential(nn.Sequential(nn.ReLU())))
    assert tracer.node_name_to_scope["_0_0"] == ("0.0", nn.ReLU)
    assert tracer.node_name_to_scope["output"] == ("", None)


def test_subclasses_may_note_every_proxy():
    class Noting(fx.Tracer):
        def __init__(self):
            super().__init__()
            self.kinds = []

        def create_proxy(self, kind, target, args, kwargs, name=None, type_expr=None):
            self.kinds.append(kind)
            return super().create_proxy(kind, target, args, kwargs, name, type_expr)

    tracer = Noting()

    class Scaled(nn.Linear):
        def forward(self, x):
            return x * self.weight

    tracer.trace(Scaled(2, 2))
    assert tracer.kinds == ["placeholder", "get_attr", "call_function"]


def test_arguments_that_are_given():
    def program(x, flag, options):
        return x * len(options["scale"]) if flag else x

    with pytest.warns(UserWarning, match=r"^Was not able to add assertion to guarantee correct input options"):
        module = fx.symbolic_trace(
            program, {"flag": True, "options": {"scale": range(3)}} | {"options": {"scale": b"2"}}
        )
    assert "flag has been specialized to have value True" in module.code
    with pytest.raises(RuntimeError, match="Tracing expected 3 arguments but got 1 concrete arguments"):
        fx.Tracer().trace(program, (1,))
    with pytest.raises(
        ValueError, match=r"^concrete_args: program has no parameter 'flags', but \['x', 'flag', 'options'\]$"
    ):
        fx.symbolic_trace(program, {"flags": True})
    none = fx.symbolic_trace(lambda x, y=None: x if y is None else y, {"y": None})
    assert none(3) == 3
    with pytest.raises(AssertionError, match=r"^y has been specialized to have value None but got another value$"):
        none(3, 4)
    tree = fx.symbolic_trace(lambda x: x["a"] + x["b"], {"x": {"a": fx.PH, "b": fx.PH}})
    assert tree({"a": 1, "b": 2}) == 3
    with pytest.raises(ValueError, match=r"^the arguments are not nested as those that the graph was made for: "):
        tree({"a": 1})


def test_any_number_of_arguments_may_be_given():
    class Model(nn.Module):
        def forward(self, *args, **kwargs):
            return args[0] - args[1]

    module = fx.symbolic_trace(Model(), concrete_args=(fx.PH, fx.PH))
    assert [node.name for node in module.graph.nodes] == ["input_0", "input_1", "sub", "output"]
    assert module(5, 3) == 2


def test_inputs_have_the_attributes_of_what_stands_for_them():
    class Tagged(PHBase):
        tag = "given"

    class Tagging(fx.Tracer):
        def create_node(self, *args, **kwargs):
            node = super().create_node(*args, **kwargs)
            node.tag = "own"
            return node

    def program(x):
        return x["a"] + x["b"]

    a, b, *_ = fx.symbolic_trace(program, {"x": {"a": PHWithMeta(ph_key="first"), "b": Tagged()}}).graph.nodes
    assert (a.ph_key, b.tag, a.meta, b.meta) == ("first", "given", {}, {})
    _, b, *_ = Tagging().trace(program, {"x": {"a": fx.PH, "b": Tagged()}}).nodes
    assert b.tag == "own"


class Interval:
    def __init__(self, low, high):
        self.low, self.high = low, high


def test_containers_of_own_types_are_trees(monkeypatch):
    for table in (fx_pytree._FLATTEN, _pytree.SUPPORTED_NODES):
        monkeypatch.setitem(table, Interval, None)  # for the time of the test
        del table[Interval]
    _pytree.register_pytree_node(Interval, lambda x: ([x.low, x.high], None), lambda parts, _: Interval(*parts))
    fx_pytree.register_pytree_flatten_spec(Interval, lambda x, spec: [x.low, x.high])
    tree = {"x": Interval({"a": fx.PH}, 3)}
    module = fx.symbolic_trace(lambda x: x.low["a"] * x.high, tree)
    again = fx.symbolic_trace(module)  # here the argument is a proxy
    assert [m(Interval({"a": 2}, 3)) for m in (module, again, fx.symbolic_trace(again, tree))] == [6, 6, 6]


def test_code_that_takes_trees_apart_is_traced():
    Pair = collections.namedtuple("Pair", "a b")
    trees = [[fx.PH, fx.PH], (fx.PH, fx.PH), {3: fx.PH, "b": [fx.PH]}, Pair(fx.PH, {"c": fx.PH})]
    trees += [collections.OrderedDict(a=fx.PH), collections.defaultdict(list, a=[fx.PH])]
    for tree in trees:
        module = fx.symbolic_trace(lambda x: sum(_pytree.tree_leaves(x)), {"x": tree})
        again = fx.symbolic_trace(module)
        assert "tree_flatten_spec" not in again.code
        value = _pytree.tree_map(lambda _: 2, tree)
        assert again(value) == module(value) == 2 * len(_pytree.tree_leaves(tree))


def test_tracers_are_copied():
    tracer = fx.Tracer()
    before = copy.deepcopy(tracer)
    graph = tracer.trace(lambda x: x + math.sqrt(x.size(0)))
    after = copy.deepcopy(tracer)
    assert str(after.graph) == str(graph)
    assert after.graph is not graph
    assert str(before.trace(lambda x: x + math.sqrt(x.size(0)))) == str(graph)


def test_interpreters_name_the_node_of_an_error():
    module = fx.symbolic_trace(lambda x, y: x @ y)
    with pytest.raises(RuntimeError, match="shapes") as error:
        fx.Interpreter(module).run(weft.ones(2, 3), weft.ones(2, 3))
    assert error.value.__notes__ == [f"While executing {module.graph.output_node().prev.format_node()}"]
    with pytest.raises(
        RuntimeError, match=r"^Expected positional argument for parameter y, but one was not passed in!"
    ):
        fx.Interpreter(module).run(1)
    for given, which in (([1], "missing"), ([1, 2, 3], "extra")):
        arguments = list(given)
        with pytest.raises(
            RuntimeError, match=f"{which} arguments: the graph has 2 inputs, got {len(given)} arguments"
        ):
            fx.Interpreter(module).boxed_run(arguments)
        assert arguments == given
    graph = fx.Graph()
    graph.output(graph.get_attr("layer.weight"))
    with pytest.raises(
        RuntimeError, match=r"^Node referenced nonexistent target layer\.weight: 'Module' object has no"
    ):
        fx.Interpreter(nn.Module(), graph=graph).run()


def test_functions_that_look_at_their_arguments_are_one_node():
    def program(x, y):
        return nn.utils.rnn.pad_sequence([x, y], batch_first=True), weft.normal(x, y)

    graph = fx.symbolic_trace(program).graph
    assert [node.name for node in graph.nodes] == ["x", "y", "pad_sequence", "normal", "output"]


def test_operands_are_arguments_of_their_own():
    for program in (lambda x, y: weft.einsum("ij,jk", [x, y]), lambda x, y: weft.einsum("ij,jk", x, y)):
        x, y, einsum, _ = fx.symbolic_trace(program).graph.nodes
        assert einsum.args == ("ij,jk", x, y)


def test_quantization_of_a_tensor_is_one_node():
    def program(x):
        one = weft.quantize_per_tensor(x, 0.1, 0, weft.qint8)
        each = weft.quantize_per_channel(x, weft.ones(2), weft.zeros(2), 0, weft.qint8)
        return one, each, weft.quantize_per_tensor_dynamic(x, weft.quint8, False)

    calls = [node.name for node in fx.symbolic_trace(program).graph.nodes if node.op == "call_function"]
    assert calls == ["quantize_per_tensor", "quantize_per_channel", "quantize_per_tensor_dynamic"]
