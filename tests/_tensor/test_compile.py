"""`weft.compile`: what is captured, what is fetched anew, and when it is captured again."""

from __future__ import annotations

import math
from collections import namedtuple

import pytest

import weft
from weft.utils.checkpoint import checkpoint

Pair = namedtuple("Pair", "low high")


class Runs:
    """How often Python ran a compiled function."""

    def __init__(self, compiled):
        self._compiled = compiled

    @property
    def calls(self):
        return self._compiled._runs


def counted(function, **options):
    """A compiled function, and the count of its runs in Python."""
    compiled = weft.compile(function, **options)
    return compiled, Runs(compiled)


def test_a_second_call_does_not_run_python():
    step, python = counted(lambda x, y: (x * y).sum())
    assert step(weft.ones(3), weft.ones(3)).item() == 3
    assert step(weft.ones(3) * 2, weft.ones(3)).item() == 6
    assert python.calls == 1


RETRACES = [
    ("shape", [(weft.ones(2),), (weft.ones(3),)]),
    ("type", [(weft.ones(2),), (weft.ones(2, dtype=weft.float64),)]),
    ("gradient", [(weft.ones(2),), (weft.ones(2, requires_grad=True),)]),
    ("number", [(weft.ones(2), 2), (weft.ones(2), 3)]),
    ("kind of number", [(weft.ones(2), 2), (weft.ones(2), 2.0)]),
    ("text", [(weft.ones(2), "a"), (weft.ones(2), "b")]),
    ("structure", [([weft.ones(2)],), ((weft.ones(2),),)]),
]


@pytest.mark.parametrize("calls", [row[1] for row in RETRACES], ids=[row[0] for row in RETRACES])
def test_another_kind_of_call_is_captured_anew(calls):
    step, python = counted(lambda x, *rest: (x[0] * 2, *rest))
    for args in (*calls, *calls):
        step(*args)
    assert python.calls == 2


def test_modes_and_the_default_type_are_guards():
    step, python = counted(lambda x: x * weft.tensor(2.0))
    x = weft.ones(2, requires_grad=True)
    assert step(x).requires_grad
    with weft.no_grad():
        assert not step(x).requires_grad
    weft.set_default_dtype(weft.float64)
    step(x)
    assert python.calls == 3


def test_structures_come_and_go():
    def function(pair, table, *, scale):
        return {
            "sum": pair.low + pair.high,
            "rest": [table["a"] * scale, (None, 3, "text")],
            "pair": Pair(table["a"], 1),
        }

    step, python = counted(function)
    for value in (1.0, 2.0):
        found = step(Pair(weft.full((2,), value), weft.ones(2)), {"a": weft.ones(1)}, scale=2)
        assert found["sum"].tolist() == [value + 1] * 2
        assert found["rest"][0].tolist() == [2]
        assert found["rest"][1] == (None, 3, "text")
        assert isinstance(found["pair"], Pair)
        assert found["pair"].low.tolist() == [1]
    assert python.calls == 1


def test_state_is_fetched_anew():
    weight = weft.ones(2)
    step, python = counted(lambda x: x * weight)
    assert step(weft.ones(2)).tolist() == [1, 1]
    weight.fill_(5)
    assert step(weft.ones(2)).tolist() == [5, 5]
    weight.data = weft.tensor([7.0, 8.0])
    assert step(weft.ones(2)).tolist() == [7, 8]
    assert python.calls == 1
    weight.data = weft.tensor([1.0])
    assert step(weft.ones(2)).tolist() == [1, 1]
    assert python.calls == 2


def test_state_that_is_written_is_written_in_every_call():
    count, history = weft.zeros(()), weft.zeros(3)
    view = history[1:]

    def function(x):
        count.add_(1)
        history[0] = x
        view.mul_(2).add_(1)
        return count * 10

    step, python = counted(function)
    assert [step(weft.tensor(float(i))).item() for i in range(4)] == [10, 20, 30, 40]
    assert count.item() == 4
    assert history.tolist() == [3, 15, 15]
    assert view.tolist() == [15, 15]
    assert python.calls == 1


def test_arguments_are_written_in_place():
    step, python = counted(lambda x, y: x.add_(y))
    for _ in range(3):
        x = weft.ones(2)
        alias = x[:1]
        step(x, weft.ones(2))
        assert x.tolist() == [2, 2]
        assert alias.tolist() == [2]
    assert python.calls == 1


def test_a_view_as_an_argument_that_is_written():
    step, _ = counted(lambda x: x.mul_(3))
    base = weft.ones(4)
    step(base[:2])
    step(base[:2])
    assert base.tolist() == [9, 9, 1, 1]


def test_arguments_that_share_storage_are_another_kind_of_call():
    step, python = counted(lambda x, y: x.add_(1) + y)
    for _ in range(2):
        x = weft.ones(2)
        assert step(x, weft.ones(2)).tolist() == [3, 3]
        assert step(x, x).tolist() == [6, 6]
        assert step(x, x.view(2)).tolist() == [8, 8]
    assert python.calls <= 4


def test_numbers_may_be_lifted():
    weight = weft.ones(1, requires_grad=True)
    optimizer = weft.optim.SGD([weight], lr=0.5)
    weight.grad = weft.ones(1)
    step, python = counted(optimizer.step)
    step()
    assert weight.item() == 0.5
    optimizer.param_groups[0]["lr"] = 0.25
    step()
    assert weight.item() == 0.25
    optimizer.param_groups[0]["lr"] = 0.125
    step()
    assert weight.item() == 0.125
    assert python.calls == 1


def test_draws_differ_and_follow_the_seed():
    def function(x):
        first = x + weft.rand(3)
        weft.rand(2)
        return weft.rand(3) * 2 + first

    step, python = counted(function)
    weft.manual_seed(1)
    found = [step(weft.zeros(3)).tolist() for _ in range(3)]
    weft.manual_seed(1)
    assert found == [function(weft.zeros(3)).tolist() for _ in range(3)]
    assert len({tuple(f) for f in found}) == 3
    assert python.calls == 1


def test_gradients_flow_through_and_are_left_behind():
    weight = weft.tensor([1.0, 2.0], requires_grad=True)

    def function(x):
        loss = (weight * x).exp().sum()
        loss.backward()
        return loss.detach()

    step, python = counted(function)
    plain = []
    for at in range(3):
        weight.grad = None
        step(weft.full((2,), at / 2))
        plain.append(weight.grad.tolist())
    expected = [[a * math.exp(w * a) for w in (1, 2)] for a in (0, 0.5, 1)]
    assert plain == [pytest.approx(e, rel=1e-6) for e in expected]
    assert python.calls == 1


def test_gradients_outside_of_a_compiled_function():
    weight = weft.tensor([3.0], requires_grad=True)
    step, python = counted(lambda x: (weight * x * x).sum())
    for value in (2.0, 5.0):
        x = weft.tensor([value], requires_grad=True)
        weight.grad = None
        step(x).backward()
        assert weight.grad.tolist() == [value**2]
        assert x.grad.tolist() == [6 * value]
    assert python.calls == 1


def test_accumulated_gradients():
    weight = weft.tensor([1.0], requires_grad=True)

    def function(x):
        (weight * x).sum().backward()

    step, _ = counted(function)
    for at in range(5):
        step(weft.tensor([float(at)]))
    assert weight.grad.tolist() == [10]


def test_gradients_from_outside_are_fetched_anew():
    weight = weft.tensor([1.0, 2.0], requires_grad=True)

    def function():
        weight.grad.mul_(2)
        return weight.grad + 1

    double, python = counted(function)
    for at in range(3):
        weight.grad = weft.tensor([1.0, at])
        assert double().tolist() == [3, 2 * at + 1]
        assert weight.grad.tolist() == [2, 2 * at]
    assert python.calls == 1
    weight.grad = None
    with pytest.raises(AttributeError):
        double()


def test_a_gradient_that_is_assigned_is_assigned_in_every_call():
    weight = weft.tensor([1.0], requires_grad=True)

    def function(grad):
        weight.grad = grad

    assign, python = counted(function)
    for grad in (first := weft.ones(1), first, weft.zeros(1)):
        assign(grad)
        assert weight.grad.tolist() == grad.tolist()
    assert python.calls == 1


def test_a_training_step():
    def run(compiled):
        weight = weft.tensor([1.0, -2.0], requires_grad=True)
        momentum = weft.zeros(2)

        def step(x):
            loss = ((weight * x) ** 2).sum()
            loss.backward()
            with weft.no_grad():
                momentum.mul_(0.9).add_(weight.grad)
                weight.sub_(0.05 * momentum)
            weight.grad = None
            return loss.detach()

        call = weft.compile(step, fullgraph=True) if compiled else step
        losses = [call(weft.tensor([1.0, float(i)])).item() for i in range(5)]
        return losses, weight.tolist(), momentum.tolist()

    for found, expected in zip(run(True), run(False), strict=True):
        assert found == pytest.approx(expected, rel=1e-6)


def test_a_function_that_looks_at_values_warns_once_and_works():
    def function(x):
        return x * 2 if x.sum().item() > 0 else x - 1

    step, python = counted(function)
    with pytest.warns(
        UserWarning, match=r"^weft.compile: function needs a tensor's value at .*test_compile\.py:\d+; it runs "
    ):
        assert step(weft.ones(2)).tolist() == [2, 2]
    assert step(-weft.ones(2)).tolist() == [-2, -2]
    assert python.calls == 2


def test_fullgraph_refuses_to_look_at_values():
    step = weft.compile(lambda x: x if x.sum() > 0 else -x, fullgraph=True)
    with pytest.raises(
        RuntimeError, match=r"the function needs a tensor's value at .*test_compile\.py:\d+, so it cannot be"
    ):
        step(weft.ones(2))


def test_methods_and_decorators():
    class Model:
        def __init__(self, factor):
            self.factor = weft.tensor(factor)

        @weft.compile(fullgraph=True)
        def scale(self, x):
            """Scaled."""
            return x * self.factor

    first, second = Model(2.0), Model(3.0)
    assert [first.scale(weft.ones(1)).item() for _ in range(2)] == [2, 2]
    assert second.scale(weft.ones(1)).item() == 3
    assert Model.scale.__doc__ == "Scaled."


def test_the_training_flag_of_a_module_is_a_guard():
    class Noisy(weft.nn.Module):
        def forward(self, x):
            return x * 2 if self.training else x

    model = Noisy()
    step = weft.compile(model)
    assert step(weft.ones(1)).item() == 2
    model.eval()
    assert step(weft.ones(1)).item() == 1
    model.train()
    assert step(weft.ones(1)).item() == 2


def test_compiled_functions_nest():
    inner = weft.compile(lambda x: x + 1)
    outer = weft.compile(lambda x: inner(x) * 2)
    assert [outer(weft.full((1,), float(i))).item() for i in range(3)] == [2, 4, 6]


def test_it_may_be_disabled():
    def function(x):
        return x

    assert weft.compile(function, disable=True) is function


def test_a_result_that_is_an_argument_or_a_constant():
    constant = weft.tensor([5.0])
    step, _ = counted(lambda x: (x, constant, constant * 2))
    for value in (1.0, 2.0):
        found = step(weft.tensor([value]))
        assert [f.item() for f in found] == [value, 5, 10]


def test_what_the_function_names_and_modules_options_are_guards():
    norm = weft.nn.BatchNorm1d(2).eval()
    factor = 2

    def scaled(x):
        return norm(x) * factor

    fast = weft.compile(scaled)
    x = weft.ones(3, 2)
    for _ in range(3):
        assert weft.equal(fast(x), scaled(x))
    factor = 5
    assert weft.equal(fast(x), scaled(x))
    norm.eps = 10.0
    assert weft.equal(fast(x), scaled(x))
    norm.weight = weft.nn.Parameter(weft.full((2,), 3.0))
    assert weft.equal(fast(x), scaled(x))


@pytest.mark.parametrize("wrapped", [weft.compile, lambda f: lambda x: checkpoint(f, x)], ids=["compile", "checkpoint"])
def test_no_gradient_comes_from_what_is_recorded_outside_of_the_tape(wrapped):
    def function(x):
        with weft.no_grad():
            twice = x * 2
        return x * twice + x * (x * 3).detach()

    made = wrapped(function)
    for _ in range(3):
        x = weft.full((1,), 4.0, requires_grad=True)
        made(x).sum().backward()
        assert x.grad.tolist() == [8 + 12]


def test_gradients_reach_the_new_value_of_a_parameter_that_the_function_writes():
    table = weft.nn.Embedding(3, 2, max_norm=0.5)
    compiled = weft.compile(table)
    rows = weft.tensor([1, 1])
    for _ in range(3):
        table.zero_grad()
        compiled(rows).sum().backward()
        assert table.weight.grad.tolist() == [[0.0, 0.0], [2.0, 2.0], [0.0, 0.0]]


def test_the_ninth_length_is_captured_when_it_comes_back():
    @weft.compile
    def doubled(x):
        return x * 2

    lengths = range(3, 23)
    for n in lengths:
        assert doubled(weft.ones(n)).sum().item() == 2 * n
    assert doubled._runs == 8
    for _ in range(7):
        doubled(weft.ones(22))
    assert doubled._runs == 9
    doubled(weft.ones(22))
    assert doubled._runs == 9  # a replay
