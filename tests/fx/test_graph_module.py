"""Modules that run graphs: their code, what they hold, copies and files, and their place among other modules."""

from __future__ import annotations

import copy
import enum
import gc
import importlib
import linecache
import operator
import pickle
import re
import sys
import traceback
from collections.abc import Callable
from typing import Annotated, Literal, NamedTuple, Optional

import pytest

import weft
from weft import fx, nn
from weft.fx.node import _format_arg


class Color(enum.Enum):
    RED = 1


class Pair(NamedTuple):
    first: object
    second: object


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4))
        self.scale = nn.Parameter(weft.ones(4))
        self.register_buffer("offset", weft.arange(4.0))

    def forward(self, x):
        return weft.relu(self.layers(x)) * self.scale + self.offset


@pytest.fixture
def x():
    return weft.linspace(-1, 1, 6).view(2, 3)


def test_what_a_graph_needs_is_shared(x):
    model = Model().eval()
    model.unused = nn.Linear(9, 9)
    module = fx.symbolic_trace(model)
    assert module.get_submodule("layers.0") is model.layers[0]
    assert module.scale is model.scale
    assert not module.training
    assert sorted(module.state_dict()) == sorted(name for name in model.state_dict() if "unused" not in name)
    assert weft.equal(module(x), model(x))
    with pytest.raises(AttributeError, match=r"^'Module' object has no attribute 'layers'$"):
        fx.GraphModule(nn.Module(), module.graph)
    with pytest.raises(
        RuntimeError, match=r"^Node layers_0 referenced target layers\.0 but that target was not provided in"
    ):
        fx.GraphModule({"scale": model.scale}, module.graph)
    with pytest.raises(RuntimeError, match=r"^Unsupported type 3 passed for root"):
        fx.GraphModule(3, module.graph)
    with pytest.raises(AssertionError, match=r"GraphModule\.graph must be a Graph: .*, but got <class 'int'>"):
        module.graph = 3


def test_it_trains_compiles_and_is_exported(x):
    module = fx.symbolic_trace(Model().eval())
    assert weft.allclose(weft.compile(module)(x), module(x))
    assert weft.allclose(weft.export.export(module, (x,)).module()(x), module(x))
    assert weft.vmap(module)(x[:, None]).shape == (2, 1, 4)
    module(x).sum().backward()
    assert all(parameter.grad is not None for parameter in module.parameters())


def test_code_runs_where_torch_is_this_package(x):
    module = fx.symbolic_trace(Model().eval())
    scope = {"torch": weft}
    exec(module.code, scope)
    assert weft.equal(scope["forward"](module, x), module(x))


def test_a_traceback_shows_the_generated_line():
    module = fx.symbolic_trace(Model().eval())
    with pytest.raises(RuntimeError, match="cannot be multiplied") as error:
        module(weft.ones(2, 2))
    lines = "".join(traceback.format_exception(error.value))
    assert 'layers_0 = getattr(self.layers, "0")(x);  x = None' in lines
    assert re.search(r'File "<eval_with_key>\.\d+ from .*test_graph_module\.py:\d+ in forward", line', lines)


def test_code_goes_with_its_module():
    def generated():
        gc.collect()
        return {name for name in linecache.cache if name.startswith("<eval_with_key>")}

    before = generated()
    module = fx.symbolic_trace(lambda x: x + 1)
    assert len(generated() - before) == 1
    del module
    assert not generated() - before


def test_named_tuples_and_enumerations_are_in_code():
    module = fx.symbolic_trace(lambda x: (Pair(x, 1), Color.RED, weft.device("cpu"), weft.float32))
    result = module(2)
    assert result == (Pair(2, 1), Color.RED, weft.device("cpu"), weft.float32)
    assert pickle.loads(pickle.dumps(module))(2) == result


ANNOTATIONS = {
    tuple: "tuple",
    list[int]: "list[int]",
    Optional["Model"]: "typing_Optional['Model']",
    weft.Tensor | None: "torch.Tensor | None",
    Callable[[int, weft.Tensor], str]: "collections_abc_Callable[[int, torch.Tensor], str]",
    Callable[..., int]: "collections_abc_Callable[..., int]",
    Literal["a", 1]: "typing_Literal['a', 1]",
    Annotated[int, "positive"]: "int",
    tuple[()]: "tuple[()]",
}


@pytest.mark.parametrize("annotation", ANNOTATIONS, ids=str)
def test_annotations_outlive_a_file(annotation):
    def program(x):
        return x

    program.__annotations__ = {"x": annotation, "return": annotation}
    module = fx.symbolic_trace(program)
    text = ANNOTATIONS[annotation]
    assert f"def forward(self, x : {text}) -> {text}:" in module.code
    loaded = pickle.loads(pickle.dumps(pickle.loads(pickle.dumps(module))))
    assert loaded.code == module.code
    x, output = loaded.graph.nodes
    assert x.type == output.type == (int if text == "int" else annotation)


def test_what_no_import_finds_is_not_saved():
    graph = fx.Graph()
    graph.output(graph.call_function(lambda: 3))
    module = fx.GraphModule(nn.Module(), graph)
    assert module() == 3
    with pytest.raises(pickle.PicklingError, match=r"no import finds it: .*Define it at the top level of a module"):
        pickle.dumps(module)


def test_attributes_are_copied():
    module = fx.symbolic_trace(Model())
    module.note, module.meta["key"] = [1], [2]
    handle = module.register_forward_hook(lambda module, args, output: output + 1)
    deep, shallow = copy.deepcopy(module), copy.copy(module)
    assert (deep.note, deep.note is module.note, shallow.note is module.note) == ([1], False, True)
    assert (deep.meta, len(deep._forward_hooks)) == ({"key": [2]}, 1)
    del shallow.scale
    assert module.scale is not None
    handle.remove()
    deep.graph.output_node().args = (next(iter(deep.graph.nodes)),)
    deep.recompile()
    assert "return x" in deep.code
    assert "return x" not in module.code
    assert type(deep).__name__ == "Model"
    assert type(deep) is not type(module)


def test_a_module_may_refer_to_itself():
    module = fx.symbolic_trace(Model())
    module.meta["self"] = module
    copied = copy.deepcopy(module)
    assert copied.meta["self"] is copied is not module


def test_generators_of_code_may_know_only_what_is_returned():
    class Listing(fx.CodeGen):
        def generate_output(self, output_args):
            return f"return list({output_args!r})"

    module = fx.symbolic_trace(lambda x, y: (x + y, x * y))
    module.graph.set_codegen(Listing())
    module.recompile()
    assert module.code.splitlines()[-2].strip() == "return list((add, mul))"
    assert module(3, 4) == [7, 12]


def test_operators_in_place_are_statements():
    graph = fx.Graph()
    a, b = graph.placeholder("a"), graph.placeholder("b")
    graph.output((graph.call_function(operator.imul, (a, b)), graph.call_function(operator.ior, (a, b))))
    module = fx.GraphModule(nn.Module(), graph)
    assert [line.strip() for line in module.code.splitlines()[4:6]] == [
        "a *= b;  imul = a",
        "a |= b;  ior = a;  a = b = None",
    ]
    assert module(2, 5) == (10, 15)


def test_classes_have_their_own_names_in_code():
    class Local(NamedTuple):
        first: object

    module = fx.symbolic_trace(lambda x: (Local(x), Color.RED))
    assert f"local = {__name__.replace('.', '_')}_Local(x)" in module.code
    assert "return (local, Color.RED)" in module.code


def test_named_tuples_may_say_how_they_are_printed():
    class Shown(NamedTuple):
        first: object

        def _custom_fx_repr_fn(self):
            return f"Shown({_format_arg(self.first)}, {_format_arg([1, 2, 3], 2)})"

    graph = fx.Graph()
    node = graph.call_function(len, (Shown(graph.placeholder("x")),))
    assert "(args = (Shown(%x, [1, 2, ...[total_len=3]]),), kwargs = {})" in node.format_node()


def test_a_graph_of_two_modules_has_no_owner():
    module = fx.symbolic_trace(Model())
    assert module.graph.owning_module is module
    fx.GraphModule(module, module.graph)
    assert module.graph.owning_module is None


class Reader(fx.Tracer):
    record_stack_traces = True

    def is_leaf_module(self, m, module_qualified_name):
        return isinstance(m, fx.GraphModule)


def test_readable_code(capsys):
    inner = fx.symbolic_trace(lambda x: x + 1)

    class Outer(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = inner

        def forward(self, x):
            y = self.inner(x)
            return weft.relu(y)

    outer = Outer()
    module = fx.GraphModule(outer, Reader().trace(outer), "Outer")
    importlib.import_module("weft.fx.passes.shape_prop").ShapeProp(module).propagate(weft.ones(2, 3))
    text = module.print_readable()
    assert capsys.readouterr().out == text + "\n"
    lines = text.splitlines()
    assert lines[:2] == ["class Outer(torch.nn.Module):", '    def forward(self, x: "f32[2, 3]"):']
    assert lines[2].startswith(f"        # File: {__file__}:")
    assert lines[2].endswith(" in forward, code: y = self.inner(x)")
    assert lines[3] == '        inner: "f32[2, 3]" = self.inner(x);  x = None'
    assert lines[4] == ""
    assert lines[5].endswith(" in forward, code: return weft.relu(y)")
    assert "    class <lambda>(torch.nn.Module):" in lines
    assert str(module).startswith("Outer(\n  (inner): <lambda>()\n)\n\n\n\ndef forward(self, x):\n")


@pytest.mark.parametrize(
    ("dtype", "name"),
    [(weft.bool, "b8"), (weft.uint8, "u8"), (weft.int64, "i64"), (weft.bfloat16, "bf16"), (weft.float64, "f64"),
     (weft.complex64, "c64"), (weft.float8_e5m2, "f8e5m2")],
)  # fmt: skip
def test_types_are_short_in_readable_code(dtype, name):
    module = fx.symbolic_trace(lambda x: x.view(1))
    importlib.import_module("weft.fx.passes.shape_prop").ShapeProp(module).propagate(weft.ones(1).to(dtype))
    assert f'view: "{name}[1]" = x.view(1)' in module.print_readable(print_output=False)


def test_a_folder_is_a_package(tmp_path, x, monkeypatch):
    module = fx.symbolic_trace(Model().eval())
    with pytest.warns(UserWarning, match=r"the submodule layers is saved whole, in layers\.pt"):
        module.to_folder(tmp_path / "saved_model", "Saved")
    monkeypatch.syspath_prepend(str(tmp_path))
    try:
        loaded = importlib.import_module("saved_model").Saved().eval()
    finally:
        for name in ("saved_model", "saved_model.module"):
            sys.modules.pop(name, None)
    assert weft.equal(loaded(x), module(x))


def test_numbers_and_tensors_are_operands():
    graph = fx.Graph()
    x = graph.placeholder("x")
    constant = weft.tensor([1.0, 2.0])
    power = graph.call_function(operator.pow, (-2, graph.call_method("bit_length", (5,))))
    graph.output(graph.call_function(weft.add, (graph.call_function(weft.mul, (x, constant)), power)))
    module = fx.GraphModule(nn.Module(), graph)
    assert module(1.0).tolist() == [-7, -6]
    assert "(5).bit_length()" in module.code
    assert "(-2) ** bit_length" in module.code


def test_a_module_that_is_unused_at_one_of_its_paths_goes_from_there():
    model = nn.Sequential(nn.Linear(2, 2), nn.ReLU())
    traced = fx.symbolic_trace(model)
    traced.add_submodule("both", nn.Sequential(traced.get_submodule("0"), nn.ReLU()))
    for node in traced.graph.find_nodes(op="call_module", target="0"):
        node.target = "both"
    traced.delete_all_unused_submodules()
    assert [path for path, _ in traced.named_children()] == ["1", "both"]
