"""`make_fx`: graphs of functions, derivatives and writes; what stands in for operators; what is refused."""

from __future__ import annotations

import pytest

import weft
from weft import nn
from weft.func import functional_call, grad, vjp
from weft.fx.experimental.proxy_tensor import get_proxy_mode, make_fx
from weft.nn import functional as F
from weft.utils._fake_tensor import FakeTensor
from weft.utils._pytree import tree_leaves

aten = weft.ops.aten
LINEAR = nn.Linear(3, 2)
WEIGHTS = weft.randn(3)


def targets(graph_module):
    return [str(node.target) for node in graph_module.graph.nodes if node.op == "call_function"]


def check(f, *args, **options):
    """Trace a function, and compare it with its graph on other arguments."""
    graph_module = make_fx(f, **options)(*args)
    graph_module.graph.lint()
    others = [weft.randn_like(x) if isinstance(x, weft.Tensor) and x.is_floating_point() else x for x in args]
    for own, wanted in zip(tree_leaves(graph_module(*others)), tree_leaves(f(*others)), strict=True):
        assert weft.allclose(own, wanted, atol=1e-5)
    return graph_module


def test_the_code_calls_operators():
    def f(x, y):
        z = x.sin() * y + WEIGHTS
        return z.sum(1), weft.relu(z)

    code = check(f, weft.randn(2, 3), weft.randn(2, 3)).code
    lines = [line.strip().partition(";")[0] for line in code.strip().splitlines()]
    assert lines == [
        "def forward(self, x_1, y_1):",
        "sin = torch.ops.aten.sin.default(x_1)",
        "mul = torch.ops.aten.mul.Tensor(sin, y_1)",
        "_tensor_constant0 = self._tensor_constant0",
        "add = torch.ops.aten.add.Tensor(mul, _tensor_constant0)",
        "sum_1 = torch.ops.aten.sum.dim_IntList(add, [1])",
        "relu = torch.ops.aten.relu.default(add)",
        "return (sum_1, relu)",
    ]


def test_parameters_are_attributes():
    graph_module = check(LINEAR, weft.randn(4, 3))
    assert targets(graph_module) == ["aten.t.default", "aten.addmm.default"]
    assert graph_module._param_constant0 is LINEAR.weight


def loss(parameters, x):
    return F.mse_loss(functional_call(LINEAR, parameters, (x,)), weft.zeros(4, 2))


def step(weight, bias, x):
    return tuple(grad(loss)({"weight": weight, "bias": bias}, x).values())


def product(x, v):
    return vjp(lambda x: weft.tanh(x @ x.t()), x)[1](v)[0]


def by_autograd(x):
    y = x.clone().requires_grad_()
    return weft.autograd.grad((y * y.exp()).sum(), y)[0]


@pytest.mark.parametrize(
    ("f", "args", "names"),
    [
        (grad(lambda x: (x.sin() * x).sum()), (weft.randn(3),), {"aten.sin_backward.default", "aten.add.Tensor"}),
        (product, (weft.randn(3, 3), weft.randn(3, 3)), {"aten.mm.default", "aten.mm_backward.default"}),
        (step, (weft.randn(2, 3), weft.randn(2), weft.randn(4, 3)), {"aten.mse_loss_backward.default"}),
        (by_autograd, (weft.randn(3),), {"aten.exp.default", "aten.mul_backward.default"}),
    ],
)
def test_derivatives_are_part_of_the_graph(f, args, names):
    assert names <= set(targets(check(f, *args)))


def written(x):
    y = x.clone()
    y[0] = 1
    y[1:].mul_(2)
    return y + x


def test_writes_are_part_of_the_graph():
    assert {"aten.fill_.Scalar", "aten.mul_.Tensor"} <= set(targets(check(written, weft.randn(3, 2))))


def test_results_and_arguments_may_be_nested():
    nested = {"a": weft.ones(2), "b": [weft.ones(2)]}
    graph_module = make_fx(lambda x: {"sum": x["a"] + x["b"][0]})(nested)
    assert graph_module({"a": weft.ones(2), "b": [2 * weft.ones(2)]})["sum"].tolist() == [3, 3]
    values, indices = make_fx(lambda x: x.max(1))(weft.eye(2))(weft.tensor([[1.0, 2.0]]))
    assert (values.item(), indices.item()) == (2, 1)


def test_a_table_decomposes():
    table = {aten.silu.default: lambda x: x * weft.sigmoid(x)}
    graph_module = check(F.silu, weft.randn(4), decomposition_table=table)
    assert targets(graph_module) == ["aten.sigmoid.default", "aten.mul.Tensor"]


@pytest.mark.parametrize("mode", ["fake", "symbolic"])
def test_nothing_needs_to_be_computed(mode):
    seen = []

    def f(x):
        seen.append(type(x))
        return (x * WEIGHTS + weft.tensor([1.0, 2.0, 3.0])).sum()

    graph_module = make_fx(f, tracing_mode=mode)(weft.ones(3))
    assert seen == [FakeTensor]
    assert weft.allclose(graph_module(weft.ones(3)), WEIGHTS.sum() + 6)
    with pytest.raises(ValueError, match=r"^Unexpected tracing type: 'lazy'"):
        make_fx(f, tracing_mode="lazy")


def test_a_branch_that_depends_on_elements_is_refused():
    with pytest.raises(RuntimeError, match=r"^It appears that you're trying to get value out of a tracing tensor"):
        make_fx(lambda x: x if x.sum() > 0 else -x)(weft.ones(2))


def test_the_mode_is_found():
    assert get_proxy_mode() is None
    make_fx(lambda x: [x + 1, get_proxy_mode().tracer.graph] and x)(weft.ones(2))
