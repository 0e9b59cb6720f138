"""`weft.compile(backend=function)`: the function gets graphs, and what it returns computes them."""

from __future__ import annotations

import copy
import operator

import pytest

import weft as torch
from weft import nn
from weft._dynamo.testing import EagerAndRecordGraphs


class Recorder(EagerAndRecordGraphs):
    """A backend that also counts how often graphs run."""

    def __init__(self):
        super().__init__()
        self.runs = 0
        self.inputs = []

    def __call__(self, gm, example_inputs):
        super().__call__(gm, example_inputs)
        self.inputs.append(example_inputs)

        def run(*args):
            self.runs += 1
            return gm(*args)

        return run

    def names(self, at=-1):
        return [node.name for node in self.graphs[at].graph.nodes]

    def targets(self, at=-1):
        return [node.target for node in self.graphs[at].graph.nodes if node.op.startswith("call_")]


def test_the_graph_of_a_module():
    model = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.BatchNorm1d(4), nn.Dropout(0.5))
    plain, seen = copy.deepcopy(model), Recorder()
    compiled = torch.compile(model, backend=seen)
    x = torch.randn(2, 3)
    torch.manual_seed(0)
    result = compiled(x)
    result.sum().backward()
    torch.manual_seed(0)
    expected = plain(x)
    expected.sum().backward()
    assert torch.equal(result, expected)
    assert torch.equal(model[2].running_mean, plain[2].running_mean)  # written once
    assert model[2].num_batches_tracked == 1
    assert torch.equal(model[0].weight.grad, plain[0].weight.grad)
    functional = torch.nn.functional
    assert seen.targets() == [functional.linear, functional.relu, "add_", functional.batch_norm, functional.dropout]
    assert seen.names()[:2] == ["l_input_", "l_self_modules_0_parameters_weight_"]
    assert seen.inputs[0][1] is model[0].weight
    assert [node.name for node in seen.graphs[0].graph.output_node().args[0]] == ["dropout"]
    assert seen.graphs[0].graph.find_nodes(op="placeholder")[1].meta["example_value"].shape == (4, 3)


def test_shapes_types_and_flags_make_other_graphs():
    seen = Recorder()
    model = nn.Sequential(nn.Linear(3, 3), nn.Dropout(0.5))
    compiled = torch.compile(model, backend=seen)
    for _ in range(2):
        compiled(torch.ones(2, 3))
    assert (len(seen.graphs), seen.runs) == (1, 2)
    compiled(torch.ones(4, 3))
    compiled.eval()
    compiled(torch.ones(4, 3))
    model.double()
    compiled(torch.ones(4, 3, dtype=torch.float64))
    assert len(seen.graphs) == 4
    torch.compiler.reset()
    compiled(torch.ones(4, 3, dtype=torch.float64))
    assert len(seen.graphs) == 5


def test_python_around_operators():
    seen = Recorder()

    @torch.compile(backend=seen)
    def function(x, options, n=2):
        y = x + 1
        y += n
        y[0] = 1
        if y.shape[0] > 1:
            y = y * x.size(0)
        a, b = y.chunk(2, 1)
        y = torch.cat([a, b], dim=1).T
        with torch.no_grad():
            z = 1 / options["k"][0]
        return {"y": y, "z": [z, n]}

    x, k = torch.ones(2, 4, requires_grad=True), torch.full((2,), 4.0, requires_grad=True)
    result = function(x, {"k": [k]})
    assert result["y"].tolist() == [[2, 8]] * 4
    assert result["z"][0].tolist() == [0.25, 0.25]
    assert result["z"][1] == 2
    assert (result["y"].requires_grad, result["z"][0].requires_grad) == (True, False)
    assert seen.names()[:2] == ["l_x_", "l_options_k_0_"]
    assert seen.targets() == [
        operator.add, "add_", operator.setitem, operator.mul, "chunk", operator.getitem, operator.getitem, torch.cat,
        getattr, torch.set_grad_enabled, operator.truediv, torch.set_grad_enabled,
    ]  # fmt: skip


def test_a_graph_ends_where_a_value_decides():
    seen = Recorder()

    @torch.compile(backend=seen)
    def function(x, buffer):
        buffer.add_(1)
        first = buffer[0]
        first.mul_(3)
        y = x * buffer
        if y.sum() > 0:
            buffer.zero_()
            y = y + buffer
        return y, first, y.sum().item(), x[x > 0] * 2

    x, buffer = torch.ones(3), torch.ones(3)
    y, first, total, positive = function(x, buffer)
    assert (y.tolist(), first.item(), total, positive.tolist()) == ([6, 2, 2], 0, 10, [2, 2, 2])
    buffer += 5
    assert first.item() == 5  # still a view
    count = len(seen.graphs)
    assert function(x, buffer)[2] == 18 + 6 + 6
    assert len(seen.graphs) == count


def test_a_step_of_training():
    seen = Recorder()

    def step(model, optimizer, x):
        optimizer.zero_grad()
        loss = model(x).square().mean()
        loss.backward()
        optimizer.step()
        return loss

    model = nn.Linear(3, 1)
    twin = copy.deepcopy(model)
    pairs = [(one, torch.optim.Adam(one.parameters(), lr=0.1)) for one in (model, twin)]
    compiled, x = torch.compile(step, backend=seen), torch.randn(4, 3)
    for _ in range(3):
        assert compiled(*pairs[0], x).item() == step(*pairs[1], x).item()
    assert (len(seen.graphs), seen.runs) == (1, 3)


def test_functions_with_a_derivative_of_their_own():
    class Square(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x * x

        @staticmethod
        def backward(ctx, grad):
            return grad * 100

    seen = Recorder()
    x = torch.ones(2, requires_grad=True)
    torch.compile(lambda x: Square.apply(x * 2) + 1, backend=seen)(x).sum().backward()
    assert x.grad.tolist() == [200, 200]
    assert seen.targets() == [operator.mul, Square.apply, operator.add]


@pytest.mark.parametrize(
    "function",
    [
        lambda x: torch.func.grad(lambda y: (y * y).sum())(x) * 2,
        lambda x: torch.vmap(lambda y: y.sum() * 2)(x + 1) * 2,
        lambda x: torch.cond(x.sum() > 0, lambda y: y * 2, lambda y: y, (x,)) + 1,
        lambda x: torch.utils.checkpoint.checkpoint(lambda y: y.sin() * 2, x + 1, use_reentrant=False) * 2,
        lambda x: torch.autograd.grad((x * 3).sum(), x)[0] + x,
        lambda x: torch.compile(lambda y: y * 2)(x) + 1,
        lambda x: torch.nn.functional.scaled_dot_product_attention(x, x, x),
    ],
)
def test_what_is_not_recorded_is_computed(function):
    x, same = (torch.ones(2, 2, requires_grad=True) for _ in range(2))
    result, expected = torch.compile(function, backend=Recorder())(x), function(same)
    assert torch.equal(result, expected)
    result.sum().backward()
    expected.sum().backward()
    assert torch.equal(x.grad, same.grad)


def test_state_of_the_program():
    class Counter(nn.Module):
        def __init__(self):
            super().__init__()
            self.hidden, self.past = None, []
            self.register_buffer("count", torch.zeros(()))

        def forward(self, x):
            self.count += 1
            self.past.append(x * 2)
            self.hidden = x if self.hidden is None else self.hidden + x
            return self.hidden

    counter = Counter()
    compiled = torch.compile(counter, backend=Recorder())
    assert [compiled(torch.ones(1)).item() for _ in range(3)] == [1, 2, 3]
    assert counter.count.item() == 3
    assert [x.item() for x in counter.past] == [2, 2, 2]


def test_writes_that_no_graph_has_leave_the_part_as_python():
    def function(x):
        y = x * 2
        y.data = torch.zeros(2)
        return y + 1

    compiled = torch.compile(function, backend=Recorder())
    with pytest.warns(UserWarning, match="a part of function runs as Python: it is written to by what is no public"):
        assert compiled(torch.ones(2)).tolist() == [1, 1]


def test_excluded_functions_and_breaks():
    seen = Recorder()
    excluded = torch.compiler.disable(lambda x: x * 5)

    def function(x):
        y = excluded(x + 1)
        torch._dynamo.graph_break()
        return y - 1

    assert torch.compile(function, backend=seen)(torch.ones(1)).tolist() == [9]
    assert [seen.targets(at) for at in range(len(seen.graphs))] == [[operator.add], [operator.sub]]
    with pytest.raises(torch._dynamo.exc.Unsupported, match=r"^function: the function calls <lambda>, which is excl"):
        torch.compile(function, backend=seen, fullgraph=True)(torch.ones(1))


def test_autocast():
    seen = Recorder()

    @torch.compile(backend=seen)
    def function(x):
        y = x @ x
        with torch.autocast("cpu", dtype=torch.bfloat16):
            y = y @ y
        return y @ y.T

    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert torch.compile(lambda x: x @ x, backend=seen)(torch.eye(2)).dtype is torch.bfloat16
    assert function(torch.eye(2)).dtype is torch.bfloat16
    assert len(seen.graphs) == 4


def test_a_backend_may_compute_in_another_way():
    def backend(gm, example_inputs):
        return lambda x: (x * 0 + 7,)

    result = torch.compile(lambda x: x + 1, backend=backend)(torch.ones(2, requires_grad=True))
    assert result.tolist() == [7, 7]
    result.sum().backward()
    passing = torch.compile(lambda x: x.contiguous() + 0, backend=lambda gm, inputs: lambda x: (x,))
    x = torch.ones(2)
    passing(x).add_(1)
    assert x.tolist() == [2, 2]  # the backend has returned its input
    wrong = torch.compile(lambda x: x + 1, backend=lambda gm, inputs: lambda x: x)
    with pytest.raises(
        RuntimeError, match=r"must return a tuple of 1 tensors, as the graph module does, but returned T"
    ):
        wrong(torch.ones(2))


def test_backends_that_fail():
    def failing(gm, example_inputs):
        raise ValueError("no")

    written = torch.zeros(1)

    def function(x):
        written.add_(1)
        return x + 1

    compiled = torch.compile(function, backend=failing)
    with pytest.raises(torch._dynamo.exc.BackendCompilerFailed, match=r"^backend='failing' raised:\nValueError: no$"):
        compiled(torch.ones(1))
    with pytest.raises(RuntimeError, match=r"raised:\nAssertionError: compiler_fn did not return callable$"):
        torch.compile(function, backend=lambda gm, inputs: 3)(torch.ones(1))
    torch._dynamo.reset()
    with torch._dynamo.config.patch(suppress_errors=True), pytest.warns(UserWarning, match="function runs as Python"):
        assert compiled(torch.ones(1)).tolist() == [2]
    assert written.item() == 3


def test_limits():
    compiled = torch.compile(lambda x: x + 1, backend=Recorder())
    assert compiled(torch.ones(1)).tolist() == [2]
    with torch._dynamo.config.patch(recompile_limit=1), pytest.warns(UserWarning, match="has needed 1 graphs"):
        assert compiled(torch.ones(2)).tolist() == [2, 2]
    strict = torch._dynamo.config.patch(recompile_limit=1, fail_on_recompile_limit_hit=True)
    with strict, pytest.raises(torch._dynamo.exc.FailOnRecompileLimitHit):
        compiled(torch.ones(2))
    with torch.compiler.set_stance("fail_on_recompile"), pytest.raises(RuntimeError, match="Detected recompile"):
        compiled(torch.ones(3))
    with torch.compiler.set_stance("force_eager"):
        assert compiled(torch.ones(3)).tolist() == [2, 2, 2]
