"""Modules: registration, lookup, conversion, and the texts of their errors."""

from __future__ import annotations

import copy
import pickle

import pytest

import weft
from weft import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(2, 3)
        self.second = nn.Sequential(nn.Linear(3, 2), nn.ReLU())
        self.scale = nn.Parameter(weft.ones(2))
        self.register_buffer("seen", weft.zeros(()))
        self.register_buffer("cache", weft.zeros(1), persistent=False)

    def forward(self, x):
        return self.second(self.first(x)) * self.scale


def test_a_model_prints_as_a_tree():
    assert repr(Net()) == (
        "Net(\n"
        "  (first): Linear(in_features=2, out_features=3, bias=True)\n"
        "  (second): Sequential(\n"
        "    (0): Linear(in_features=3, out_features=2, bias=True)\n"
        "    (1): ReLU()\n"
        "  )\n"
        ")"
    )


def test_members_are_found_by_path():
    net = Net()
    assert [name for name, _ in net.named_parameters()] == [
        "scale",
        "first.weight",
        "first.bias",
        "second.0.weight",
        "second.0.bias",
    ]
    assert [name for name, _ in net.named_parameters(prefix="x", recurse=False)] == ["x.scale"]
    assert [name for name, _ in net.named_buffers()] == ["seen", "cache"]
    assert [name for name, _ in net.named_modules()] == ["", "first", "second", "second.0", "second.1"]
    assert [name for name, _ in net.named_children()] == ["first", "second"]
    assert net.get_submodule("second.0") is net.second[0]
    assert net.get_parameter("first.bias") is net.first.bias
    assert net.get_buffer("seen") is net.seen
    net.set_submodule("second.1", nn.Tanh())
    assert isinstance(net.second[1], nn.Tanh)
    assert {"first", "scale", "seen", "forward"} <= set(dir(net))


def test_shared_members_are_counted_once():
    net = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    net[1].weight = net[0].weight
    assert len(list(net.parameters())) == 3
    assert len(list(net.named_parameters(remove_duplicate=False))) == 4
    twice = nn.ModuleList([net[0], net[0]])
    assert len(list(twice.modules())) == 2
    assert len(list(twice.named_modules(remove_duplicate=False))) == 3


REFUSED = [
    ("net.missing", AttributeError, "'Net' object has no attribute 'missing'"),
    ("net.register_parameter('a.b', None)", KeyError, "'parameter name can\\\\'t contain \".\"'"),
    ("net.register_parameter('', None)", KeyError, "'parameter name can\\\\'t be empty string \"\"'"),
    ("net.register_parameter('forward', None)", KeyError, "\"attribute 'forward' already exists\""),
    (
        "net.register_parameter('w', weft.ones(2))",
        TypeError,
        r"cannot assign 'torch.FloatTensor' object to parameter 'w' \(torch.nn.Parameter or None required\)",
    ),
    (
        "net.register_buffer('x', 3)",
        TypeError,
        r"cannot assign 'int' object to buffer 'x' \(torch Tensor or None required\)",
    ),
    ("net.register_buffer(3, None)", TypeError, "buffer name should be a string. Got int"),
    ("net.add_module('x', 3)", TypeError, "int is not a Module subclass"),
    ("net.add_module('a.b', nn.ReLU())", KeyError, "'module name can\\\\'t contain \".\", got: a.b'"),
    (
        "setattr(net, 'scale', weft.ones(2))",
        TypeError,
        r"cannot assign 'torch.FloatTensor' as parameter 'scale' \(torch.nn.Parameter or None expected\)",
    ),
    (
        "setattr(net, 'first', 3)",
        TypeError,
        r"cannot assign 'int' as child module 'first' \(torch.nn.Module or None expected\)",
    ),
    (
        "setattr(net, 'seen', 3)",
        TypeError,
        r"cannot assign 'int' as buffer 'seen' \(torch.nn.Buffer, torch.Tensor or None expected\)",
    ),
    ("net.get_submodule('first.x')", AttributeError, "Linear has no attribute `x`"),
    ("net.get_submodule('training')", AttributeError, "`training` is not an nn.Module"),
    ("net.get_parameter('seen')", AttributeError, "`seen` is not an nn.Parameter"),
    ("net.get_buffer('scale')", AttributeError, "`scale` is not a buffer"),
    ("net.set_submodule('', nn.ReLU())", ValueError, "Cannot set the submodule without a target name!"),
    ("net.set_submodule('zzz', nn.ReLU(), strict=True)", AttributeError, "Net has no attribute `zzz`"),
    (
        "net.to(weft.int64)",
        TypeError,
        "nn.Module.to only accepts floating point or complex dtypes, but got desired dtype=torch.int64",
    ),
    ("net.train(1)", ValueError, "training mode is expected to be boolean"),
    ("nn.Module()(1)", NotImplementedError, r'Module \[Module\] is missing the required "forward" function'),
    ("nn.Parameter([1.0])", TypeError, r"Parameter\(\): argument 'data' must be Tensor, not list"),
]


@pytest.mark.parametrize(("text", "kind", "message"), REFUSED, ids=[case[0] for case in REFUSED])
def test_what_does_not_fit_is_refused(text, kind, message):
    net = Net()
    assert net is not None
    with pytest.raises(kind, match=f"^{message}$"):
        eval(text)


@pytest.mark.parametrize(("value", "word"), [("nn.Parameter(weft.ones(1))", "parameters"), ("nn.ReLU()", "module")])
def test_assigning_before_init_is_refused(value, word):
    class Early(nn.Module):
        def __init__(self):
            self.x = eval(value)

    with pytest.raises(AttributeError, match=rf"^cannot assign {word} before Module.__init__\(\) call$"):
        Early()


def test_an_assignment_moves_a_name_between_kinds():
    net = Net()
    net.scale = None
    assert list(net._parameters) == ["scale"]
    net.seen = nn.Parameter(weft.ones(1))
    assert "seen" not in net._buffers
    net.seen = nn.ReLU()
    assert "seen" not in net._parameters
    net.mark = nn.Buffer(weft.ones(1), persistent=False)
    assert "mark" in net._non_persistent_buffers_set
    del net.mark
    assert not hasattr(net, "mark")


def test_conversions_keep_the_tensors_and_change_what_they_hold():
    net = Net()
    net(weft.ones(1, 2)).sum().backward()
    before = list(net.parameters())
    net.count = nn.Buffer(weft.tensor(3))
    assert net.double() is net
    assert all(new is old for new, old in zip(net.parameters(), before, strict=True))
    assert {p.dtype for p in net.parameters()} == {p.grad.dtype for p in net.parameters()} == {weft.float64}
    assert net.count.dtype is weft.int64
    assert all(p.is_leaf and p.requires_grad for p in net.parameters())
    assert net.to("cpu", weft.bfloat16).scale.dtype is weft.bfloat16
    assert net.to(weft.ones(1)).scale.dtype is weft.float32
    assert nn.BatchNorm1d(2).to(float).num_batches_tracked.dtype is weft.int64
    assert nn.Linear(1, 1).to(dtype=float).weight.dtype is weft.float64
    for refused in ({"dtype": "float32"}, {"memory_format": 3}):
        for module in (nn.Linear(1, 1), nn.ReLU()):
            with pytest.raises(TypeError, match=next(iter(refused))):
                module.to(**refused)
    assert net.half().scale.dtype is weft.float16
    net.float()
    with weft.no_grad():
        net.scale.mul_(2)
    assert net.scale.tolist() == [2, 2]


def test_modes_gradients_and_apply_reach_the_whole_tree():
    net = Net()
    assert not any(m.training for m in net.eval().modules())
    assert all(m.training for m in net.train().modules())
    net(weft.ones(1, 2)).sum().backward()
    net.zero_grad(set_to_none=False)
    assert net.scale.grad.tolist() == [0, 0]
    net.zero_grad()
    assert net.scale.grad is None
    assert not any(p.requires_grad for p in net.requires_grad_(False).parameters())
    seen = []
    net.apply(lambda module: seen.append(type(module).__name__))
    assert seen == ["Linear", "Linear", "ReLU", "Sequential", "Net"]


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda net: pickle.loads(pickle.dumps(net))], ids=["copy", "pickle"])
def test_copies_share_nothing(copied):
    net = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2))
    other = copied(net)
    assert isinstance(other[0].weight, nn.Parameter)
    assert other[0].weight.tolist() == net[0].weight.tolist()
    with weft.no_grad():
        other[0].weight.zero_()
    assert net[0].weight.tolist() != [[0, 0], [0, 0]]
    assert other[0].weight.requires_grad


def test_deepcopy_refuses_results_and_keeps_gradients_and_attributes():
    x = weft.ones(2, requires_grad=True)
    (x * 2).sum().backward()
    x.note = "mine"
    twin = copy.deepcopy(x)
    assert (twin.grad.tolist(), twin.note, twin.requires_grad) == ([2, 2], "mine", True)
    with pytest.raises(RuntimeError, match=r"^Only Tensors created explicitly by the user"):
        copy.deepcopy(x * 2)


def test_parameters_and_buffers_print_as_tensors():
    assert repr(nn.Parameter(weft.ones(1))) == "Parameter containing:\ntensor([1.], requires_grad=True)"
    assert repr(nn.Buffer(weft.ones(1))) == "tensor([1.])"
    assert nn.Parameter().shape == (0,)


def test_constructors_take_arguments_only_for_the_next_base():
    class Plain(nn.Module):
        pass

    class Named:
        def __init__(self, name):
            self.name = name

    class Both(nn.Module, Named):
        call_super_init = True

        def __init__(self, name):
            super().__init__(name=name)

    assert Both("x").name == "x"
    with pytest.raises(TypeError, match=r"^Plain\.__init__\(\) got an unexpected keyword argument 'a'$"):
        Plain(a=1)
    with pytest.raises(TypeError, match=r"^Plain\.__init__\(\) takes 1 positional argument but 3 were given$"):
        Plain(1, 2)


def test_emptied_modules_keep_tensors_and_shapes():
    layer = nn.Linear(2, 3)
    weight = layer.weight
    assert layer.to_empty(device="cpu") is layer
    assert layer.share_memory() is layer
    assert layer.weight is weight
    assert (weight.shape, weight.requires_grad) == ((3, 2), True)


def test_a_module_compiles_in_place_and_its_copies_are_not_compiled():
    layer, x = nn.Linear(1, 1), weft.ones(1)
    wanted = layer(x).tolist()
    layer.compile()
    compiled = layer._compiled_call_impl
    assert [layer(x).tolist() for _ in range(3)] == [wanted] * 3
    assert compiled._runs == 1
    assert copy.deepcopy(layer)(x).tolist() == wanted
    assert compiled._runs == 1


def test_complex_modules_warn():
    with pytest.warns(UserWarning, match=r"^Complex modules are a new feature under active development"):
        assert nn.Linear(1, 1).to(weft.complex64).weight.dtype is weft.complex64
