"""Programs that change and run graphs, written for PyTorch and for Weft; many are those of PyTorch's documentation.

Each returns texts and numbers, which are the same for both.
"""

from __future__ import annotations

import copy
import importlib
import io
import pickle
from collections.abc import Callable
from typing import Any

EDITS: dict[str, Callable[[Any], list[Any]]] = {}


def edit(function: Callable[[Any], list[Any]]) -> Callable[[Any], list[Any]]:
    EDITS[function.__name__] = function
    return function


def fx_module(torch: Any, name: str) -> Any:
    return importlib.import_module(f"{torch.__name__}.fx.{name}")


def total(x: Any) -> float:
    return round(float(x.sum()), 2)


def net(torch: Any) -> Any:
    nn = torch.nn

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv, self.bn, self.act = nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2), nn.ReLU()
            self.drop, self.lin = nn.Dropout(), nn.Linear(8, 4)
            self.w = nn.Parameter(torch.ones(4))
            with torch.no_grad():
                for at, p in enumerate(self.parameters()):
                    p.copy_(torch.arange(p.numel()).view(p.shape) * 0.1 * (at + 1) - 0.3)
                self.bn.running_mean.add_(0.5)
                self.bn.running_var.mul_(2)

        def forward(self, x):
            x = self.act(self.bn(self.conv(x))).flatten(1)
            return self.lin(self.drop(x)) * self.w

    return Net().eval()


def image(torch: Any) -> Any:
    return torch.arange(32.0).view(2, 1, 4, 4) * 0.1


def sums(torch: Any) -> Any:
    def sums(x, y):
        return torch.relu(torch.add(x, y)) + torch.add(y, 1)

    return sums


@edit
def functions_are_replaced(torch):
    graph = torch.fx.Tracer().trace(sums(torch))
    for node in graph.nodes:
        if node.op == "call_function" and node.target == torch.add:
            node.target = torch.mul
    graph.lint()
    module = torch.fx.GraphModule(torch.nn.Module(), graph)
    return [module.code, str(graph), total(module(torch.ones(2) * 2, torch.ones(2) * 3))]


@edit
def nodes_are_inserted_and_erased(torch):
    module = torch.fx.symbolic_trace(sums(torch))
    for node in list(module.graph.nodes):
        if node.target == torch.relu:
            with module.graph.inserting_after(node):
                new = module.graph.call_function(torch.sigmoid, args=(node,))
                node.replace_all_uses_with(new)
                new.args = (node,)
    module.recompile()
    before = module.code
    for node in module.graph.nodes:
        if node.target is torch.sigmoid:
            with module.graph.inserting_before(node):
                other = module.graph.call_function(torch.tanh, node.args, node.kwargs)
            node.replace_all_uses_with(other)
            module.graph.erase_node(node)
    module.recompile()
    return [before, module.code, [str(node) for node in reversed(module.graph.nodes)], len(module.graph.nodes)]


@edit
def graphs_are_built(torch):
    graph = torch.fx.Graph()
    x = graph.placeholder("x")
    other = graph.placeholder("scale", default_value=2.0)
    weight = graph.get_attr("linear.weight")
    linear = graph.call_module("linear", (x,))
    sum_ = graph.call_method("sum", (linear,), {"dim": -1})
    twice = graph.call_function(torch.mul, (sum_, other), name="doubled")
    graph.output((twice, [weight]))
    graph.lint()
    layer = torch.nn.Linear(2, 3)
    with torch.no_grad():
        layer.weight.fill_(0.5)
        layer.bias.fill_(1.0)
    module = torch.fx.GraphModule({"linear": layer, "linear.weight": layer.weight}, graph, "Built")
    twice.update_arg(0, x)
    twice.update_kwarg("out", None)
    twice.kwargs = {}
    twice.insert_arg(1, sum_)
    twice.args = twice.args[1:]
    module.recompile()
    return [module.code, str(graph), total(module(torch.ones(2, 2))[0]), [str(n) for n in twice.all_input_nodes]]


@edit
def functions_are_decomposed_by_proxies(torch):
    def relu_decomposition(x):
        return (x > 0) * x

    new, env = torch.fx.Graph(), {}
    tracer = fx_module(torch, "proxy").GraphAppendingTracer(new)
    for node in torch.fx.Tracer().trace(sums(torch)).nodes:
        if node.op == "call_function" and node.target is torch.relu:
            args = [torch.fx.Proxy(env[x.name], tracer) for x in node.args]
            env[node.name] = relu_decomposition(*args).node
        else:
            env[node.name] = new.node_copy(node, lambda x: env[x.name])
    module = torch.fx.GraphModule(torch.nn.Module(), new)
    return [module.code, str(new), total(module(torch.ones(2), torch.ones(2)))]


@edit
def activations_are_inverted(torch):
    table = {torch.relu: torch.cos, torch.cos: torch.relu}

    class Invert(torch.fx.Transformer):
        def call_function(self, target, args, kwargs):
            return super().call_function(table.get(target, target), args, kwargs)

        def call_method(self, target, args, kwargs):
            if target == "neg":
                return args[0].sigmoid(*args[1:], **kwargs)
            return super().call_method(target, args, kwargs)

    def program(x):
        return torch.relu(x) * torch.cos(x).neg()

    module = Invert(torch.fx.symbolic_trace(program)).transform()
    same = torch.fx.Transformer(torch.fx.symbolic_trace(net(torch))).transform()
    return [module.code, total(module(torch.ones(3))), same.code, total(same(image(torch)))]


@edit
def interpreters_see_every_node(torch):
    class Log(torch.fx.Interpreter):
        log: list[Any] = []  # noqa: RUF012

        def run_node(self, n):
            result = super().run_node(n)
            self.log.append([n.op, n.name, list(getattr(result, "shape", ()))])
            return result

        def call_module(self, target, args, kwargs):
            self.log.append(target)
            return super().call_module(target, args, kwargs)

    log = Log(torch.fx.symbolic_trace(net(torch)))
    result = total(log.run(image(torch)))
    trace, interpret = torch.fx.symbolic_trace, torch.fx.Interpreter
    return [
        result,
        log.log,
        len(log.env),
        interpret(trace(lambda x, *rest: x + rest[0])).run(1, 2),
        interpret(trace(lambda x, y=3: x + y)).run(1),
        interpret(trace(lambda x: x + 1)).boxed_run([4]),
    ]


@edit
def normalisation_is_folded(torch):
    optimization = fx_module(torch, "experimental.optimization")
    model, x = net(torch), image(torch)
    fused, without = optimization.fuse(model), optimization.remove_dropout(model)
    results = [total(module(x)) for module in (model, fused, without)]
    return [fused.code, without.code, results, [name for name, _ in fused.named_modules()]]


@edit
def shapes_are_found(torch):
    module = torch.fx.symbolic_trace(net(torch))
    fx_module(torch, "passes.shape_prop").ShapeProp(module).propagate(image(torch))
    meta = [(node.name, node.meta["tensor_meta"]) for node in module.graph.nodes]
    return [
        [name, list(m.shape), str(m.dtype), list(m.stride), m.requires_grad, str(m.memory_format)] for name, m in meta
    ]


def _replaced(torch: Any, program: Any, pattern: Any, replacement: Any, *inputs: Any, **options: Any) -> list[Any]:
    module = torch.fx.symbolic_trace(program)
    replace = fx_module(torch, "subgraph_rewriter").replace_pattern_with_filters
    matches = replace(module, pattern, replacement, **options)
    module.graph.lint()
    result = module(*inputs)
    results = list(result) if isinstance(result, tuple) else [result]
    added = [[node.name for node in match.replacements] for match in matches]
    return [module.code, added, [total(x) for x in results]]


@edit
def patterns_are_replaced(torch):
    ones, functional = torch.ones(2), torch.nn.functional

    class Scaled(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.scale, self.act = torch.nn.Parameter(torch.full((2,), 3.0)), torch.nn.Tanh()

        def forward(self, x):
            return self.act(x) * self.scale

    class Linear(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.lin = torch.nn.Linear(2, 2, bias=False)
            self.lin.weight.data.fill_(1.0)

        def forward(self, x):
            return torch.relu(self.lin(x))

    relu, tanh = lambda x: torch.relu(x), lambda x: torch.tanh(x)
    two = (lambda x, y: x + y * 2 + (x * 3), lambda a: a * 2, lambda a: a + a)
    return [
        _replaced(torch, lambda x: torch.relu(torch.relu(x) + 1) + torch.sigmoid(x), relu, tanh, ones),
        _replaced(torch, *two, ones, ones),
        _replaced(torch, *two, ones, ones, ignore_literals=True),
        _replaced(torch, lambda x, y: (x + y, x - y), lambda a, b: (a + b, a - b), lambda a, b: (b, a), ones, ones),
        _replaced(torch, lambda x: (x.relu() + 1) * x.relu(), lambda x: x.relu() + 1, lambda x: x.sigmoid(), ones),
        _replaced(torch, lambda x: x.chunk(2)[0] + 1, lambda x: x.chunk(2)[0], lambda x: x[:1], ones),
        _replaced(torch, lambda x: x * 2, lambda x: x * 2, lambda x: x, ones),
        _replaced(
            torch, lambda x: torch.relu(torch.relu(torch.relu(x))), lambda x: torch.relu(torch.relu(x)), tanh, ones
        ),
        _replaced(torch, lambda x: torch.relu(x) + 1, relu, tanh, ones, match_filters=[lambda m, g, p: False]),
        _replaced(
            torch,
            lambda x, y: torch.add(x, y, alpha=2),
            lambda x, y: torch.add(x, y, alpha=2),
            lambda x, y: x + y,
            ones,
            ones,
        ),
        _replaced(torch, lambda x: functional.relu(x) + 1, lambda x: functional.relu(x), tanh, ones),
        _replaced(
            torch,
            lambda x, y: torch.cat([x, y]).sum(),
            lambda x, y: torch.cat([x, y]),
            lambda x, y: torch.cat([y, x]),
            ones,
            ones,
        ),
        _replaced(torch, lambda x: torch.relu(x) + 1, relu, torch.fx.symbolic_trace(Scaled()), ones),
        _replaced(torch, Linear(), Linear(), lambda x: x.sigmoid(), ones),
    ]


@edit
def matches_name_their_nodes(torch):
    def program(x, w1, w2):
        m1 = torch.cat([torch.neg(w1), w2]).sum()
        m2 = torch.cat([torch.neg(w1), w2]).sum()
        return x + torch.max(m1) + torch.max(m2)

    def pattern(a1, a2):
        return torch.cat([torch.neg(a1), a2]).sum()

    module = torch.fx.symbolic_trace(program)
    matches = torch.fx.replace_pattern(module, pattern, lambda w1, w2: torch.stack([w1, w2]))
    names = [sorted((own.name, node.name) for own, node in match.nodes_map.items()) for match in matches]
    return [module.code, [match.anchor.name for match in matches], [list(map(list, one)) for one in names]]


@edit
def graphs_are_split(torch):
    split = fx_module(torch, "passes.split_module").split_module
    model = net(torch)
    stage = {"conv": 0, "bn": 0, "act": 1, "flatten": 1, "drop": 2, "lin": 2, "mul": 2}
    names: dict[str, str] = {}
    parts = split(torch.fx.symbolic_trace(model), model, lambda node: stage[node.name], names)
    report = [
        parts.code,
        *[child.code for child in parts.children()],
        sorted(names.items()),
        total(parts(image(torch))),
    ]

    def program(x, y):
        a = x + y
        b = a * 2
        return (a - b.relu()).sigmoid(), b

    module = torch.fx.symbolic_trace(program)
    for stage in ({"add": 0, "mul": 0}, {"add": 1, "mul": 0}):
        parts = split(module, module, lambda node, stage=stage: stage.get(node.name, 2), partition_affix="p")
        report += [parts.code, *[child.code for child in parts.children()]]
        report += [total(x) for x in parts(torch.ones(2), torch.ones(2))]
    return [[list(map(list, x)) if isinstance(x, list) else x for x in report]]


@edit
def modules_are_copied_and_saved(torch):
    module, x = torch.fx.symbolic_trace(net(torch)), image(torch)
    deep, shallow, pickled = copy.deepcopy(module), copy.copy(module), pickle.loads(pickle.dumps(module))
    file = io.BytesIO()
    torch.save(module, file)
    file.seek(0)
    loaded = torch.load(file, weights_only=False)
    copies = (deep, shallow, pickled, loaded)
    return [
        [copied.code == module.code for copied in copies],
        [copied.lin.weight is module.lin.weight for copied in copies],
        [total(copied(x)) for copied in copies],
        [node.name for node in copy.deepcopy(module.graph).nodes],
    ]


@edit
def unused_nodes_go(torch):
    def program(x):
        y = x + 1
        y * 2
        x.relu()
        return x

    module = torch.fx.symbolic_trace(program)
    report = [module.graph.eliminate_dead_code(), module.graph.eliminate_dead_code()]
    module.recompile()
    return [*report, module.code]


@edit
def submodules_come_and_go(torch):
    module = torch.fx.symbolic_trace(net(torch))
    report: list[Any] = [
        module.add_submodule("extra.thing", torch.nn.ReLU()),
        module.add_submodule("w.x", torch.nn.ReLU()),
    ]
    report.append([name for name, _ in module.named_modules()])
    report += [module.delete_submodule("extra.thing"), module.delete_submodule("extra.other")]
    module.delete_all_unused_submodules()
    report.append([name for name, _ in module.named_modules()])
    return [*report, [node.name for node in module.graph.find_nodes(op="call_module", target="lin")]]


@edit
def tracers_decide(torch):
    class Everything(torch.fx.Tracer):
        def is_leaf_module(self, m, module_qualified_name):
            return True

    class Nothing(torch.fx.Tracer):
        def is_leaf_module(self, m, module_qualified_name):
            return False

    class Constants(torch.fx.Tracer):
        def to_bool(self, obj):
            return True

        def iter(self, obj):
            return iter([obj[0], obj[1]])

    class Big(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.net, self.layers = net(torch), torch.nn.Sequential(torch.nn.ReLU())

        def forward(self, x):
            return self.layers(self.net(x))

    usual = torch.fx.Tracer().trace(Big())
    stacks = [[node.name, list(node.meta.get("nn_module_stack", {}))] for node in usual.nodes]
    small = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.ReLU(), torch.nn.Dropout(0.2))
    inside = Nothing().trace(small)
    return [
        str(Everything().trace(Big())),
        str(usual),
        stacks,
        [[node.op, node.name] for node in inside.nodes],
        str(Constants().trace(lambda x: [y for y in (x if x > 0 else -x)])),  # noqa: C416
    ]


@edit
def code_is_transformed(torch):
    module = torch.fx.symbolic_trace(lambda x: x + 1)
    with module.graph.on_generate_code(lambda old: lambda lines: ["torch.manual_seed(1)\n", *lines]):
        module.recompile()
        inside = module.code
    module.recompile()
    return [inside, module.code, module(2)]


@edit
def arguments_are_mapped(torch):
    node_module = fx_module(torch, "node")
    nodes = list(torch.fx.symbolic_trace(net(torch)).graph.nodes)
    mapped = node_module.map_arg([1, {"a": (nodes[0],)}, slice(nodes[1], None)], lambda node: node.name)
    doubled = node_module.map_aggregate((1, [2, slice(1, 2)], {"a": 3}), lambda x: x * 2 if isinstance(x, int) else x)
    return [
        str(mapped),
        str(doubled),
        nodes[1] < nodes[2],
        nodes[1].next.name,
        nodes[1].prev.name,
        nodes[3].format_node(),
    ]
