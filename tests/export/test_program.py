"""Exported modules compute what the modules compute; what can be seen of a program."""

from __future__ import annotations

import pickle
from typing import Any, NamedTuple, cast

import numpy as np
import pytest

import weft as torch
from weft import nn
from weft.errors import ArgumentError, CompileError, ProgramError, ValueRangeError
from weft.export import ExportedProgram, export
from weft.nn import functional as F


def network():
    return nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 2))


def same(one, other):
    np.testing.assert_allclose(one.detach().numpy(), other.detach().numpy(), rtol=2e-6, atol=1e-6)


def test_a_module_gives_the_same_numbers():
    model, x = network(), torch.randn(3, 4)
    program = export(model, (x,))
    assert isinstance(program, ExportedProgram)
    same(program(torch.ones(3, 4)), model(torch.ones(3, 4)))
    same(program(input=x), model(x))


def test_its_state_is_that_of_the_module():
    model, x = network(), torch.randn(3, 4)
    program = export(model, (x,))
    assert list(program.state_dict) == list(model.state_dict())
    assert all(program.state_dict[name] is p for name, p in model.named_parameters())
    with torch.no_grad():
        model[0].weight.zero_()
    same(program(x), model(x))
    assert len(program.exported.in_avals) == 5  # parameters are no constants of the program


def test_module_has_its_own_calls_and_names():
    model, x = network(), torch.randn(3, 4)
    runs = export(model, (x,)).module()
    assert list(runs.state_dict()) == list(model.state_dict())
    same(runs(x), model(x))
    same(runs.get_parameter("2.bias"), model[2].bias)
    runs.load_state_dict({name: torch.zeros_like(value) for name, value in model.state_dict().items()})
    assert not runs(x).any()


def test_gradients_flow_through_it():
    model, x = network(), torch.randn(3, 4, requires_grad=True)
    program = export(model, (x,))
    program(x).square().sum().backward()
    found = [x.grad, *[p.grad for p in model.parameters()]]
    x.grad = None
    model.zero_grad()
    model(x).square().sum().backward()
    for one, other in zip(found, [x.grad, *[p.grad for p in model.parameters()]], strict=True):
        same(one, other)


def test_it_is_printed():
    text = repr(export(network(), (torch.ones(3, 4),)))
    assert text.splitlines()[:4] == [
        "ExportedProgram Sequential",
        "  input   input: float32[3, 4]",
        "  output  output: float32[3,2]",
        "  state   4 parameters; 58 elements",
    ]
    assert text.endswith(" operators of StableHLO, for cpu")


def test_its_signature():
    class Counted(nn.Module):
        def __init__(self):
            super().__init__()
            self.w = nn.Parameter(torch.ones(2))
            self.register_buffer("seen", torch.zeros(()))

        def forward(self, x, *, scale):
            self.seen += x.sum()
            return {"y": x * self.w, "z": [scale, x]}

    signature = export(Counted(), (torch.ones(2),), {"scale": torch.ones(())}).graph_signature
    assert signature.parameters == ["w"]
    assert signature.buffers == signature.mutated == ["seen"]
    assert signature.user_inputs == ["x", "scale"]
    assert signature.user_outputs == ["y", "z.0", "z.1"]


class Pair(NamedTuple):
    a: object
    b: object


def test_structures_of_arguments_and_results():
    def function(pair, table, flag, *, by):
        x, y = pair
        return [x + table["k"], (y * by, None, flag, "text")], {"deep": {"er": x}}

    x, y = torch.ones(2), torch.full((2,), 3.0)
    program = export(function, (Pair(x, y), {"k": y}, True), {"by": 2})
    (first, rest), table = program((x, y), {"k": y}, True, by=2)
    assert first.tolist() == [4, 4]
    assert rest[0].tolist() == [6, 6]
    assert rest[1:] == (None, True, "text")
    assert table["deep"]["er"].tolist() == [1, 1]


def test_tensors_from_outside_are_constants_of_the_program():
    table = torch.arange(6.0)
    program = export(lambda i: table[i] + torch.tensor([1.0, 2.0]), (torch.tensor([0, 1]),))
    assert program(torch.tensor([5, 2])).tolist() == [6, 4]
    assert [x.tolist() for x in program.constants.values()] == [table.tolist(), [1, 2]]
    assert program.state_dict == {}


def test_buffers_that_are_written_are_state():
    model = nn.BatchNorm1d(3)
    x = torch.randn(5, 3)
    program = export(model, (x,))
    program(x)
    after = {name: value.clone() for name, value in model.state_dict().items()}
    assert after["num_batches_tracked"] == 1
    model.reset_running_stats()
    model(x)
    for name, value in model.state_dict().items():
        same(value, after[name])


def test_a_new_tensor_for_a_buffer_is_a_write():
    class Counted(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("seen", torch.zeros(()))

        def forward(self, x):
            self.seen = self.seen + x.sum()
            return self.seen * 2

    model = Counted()
    buffer = model.seen
    program = export(model, (torch.ones(2),))
    assert model.seen is buffer
    assert buffer == 0
    assert [program(torch.ones(2)).item() for _ in range(2)] == [4, 8]
    assert model.seen == 4


def test_tensors_that_are_kept():
    class Keeping(nn.Module):
        def forward(self, x):
            self.last = x + 1
            return x

    model = Keeping()
    with pytest.raises(ProgramError, match=r"The tensor attribute self\.last was assigned during export"):
        export(model, (torch.ones(2),))
    assert not hasattr(model, "last")
    kept = []
    export(lambda x: kept.append(x + 1), (torch.ones(2),))
    with pytest.raises(ProgramError, match="made while a function was exported has no value; return it"):
        kept[0].tolist()
    kept.clear()


class Noting(nn.Module):
    def __init__(self):
        super().__init__()
        self.last = None
        self.register_buffer("seen", torch.zeros(()))

    def forward(self, x):
        self.last = x + 1
        if x.dim() > 1:
            self.seen = self.seen + x.sum()
        return x


def test_attributes_of_modules_that_are_no_state():
    model = Noting()
    assert export(lambda x: model(x), (torch.ones(2),))(torch.ones(2)).tolist() == [1, 1]
    assert model.last is None

    def fails(x):
        model(x)
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        export(fails, (torch.ones(2),))
    assert model.last is None
    with pytest.raises(ProgramError, match=r"self\.seen was assigned during export.* exported or given as state"):
        export(lambda x: model(x), (torch.ones(2, 2),))
    assert model.seen == 0
    inner = export(lambda x: Noting()(x), (torch.ones(2, 2),))
    assert inner(torch.ones(2, 2)).tolist() == [[1, 1], [1, 1]]


def test_random_draws_are_those_of_the_generator():
    def function(x):
        return F.dropout(x, 0.5) + torch.randn(4)

    program = export(function, (torch.ones(4),))
    torch.manual_seed(5)
    found = [program(torch.ones(4)).tolist() for _ in range(3)]
    torch.manual_seed(5)
    np.testing.assert_allclose(found, [function(torch.ones(4)).tolist() for _ in range(3)], rtol=1e-6)


def test_exporting_computes_and_changes_nothing():
    model = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2))
    before = {name: value.clone() for name, value in model.state_dict().items()}
    state = torch.random.get_rng_state()
    export(model, (torch.randn(3, 2),))
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert torch.equal(state[:8], torch.random.get_rng_state()[:8])
    assert all(p.grad is None for p in model.parameters())


def test_views_among_the_buffers():
    class Positions(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("ids", torch.arange(4).expand(1, -1))
            self.table = nn.Embedding(4, 3)

        def forward(self, x):
            return x + self.table(self.ids)

    model = Positions()
    same(export(model, (torch.ones(1, 4, 3),))(torch.ones(1, 4, 3)), model(torch.ones(1, 4, 3)))
    assert model.ids._is_view()


def test_half_precision_and_autocast():
    model = nn.Linear(4, 4).to(torch.bfloat16)
    x = torch.randn(2, 4, dtype=torch.bfloat16)
    assert torch.equal(export(model, (x,))(x), model(x))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        program = export(nn.Linear(4, 4), (torch.ones(2, 4),))
    assert program(torch.ones(2, 4)).dtype == torch.bfloat16


def test_a_derivative_by_the_user_is_part_of_it():
    class Twice(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return 2 * x

        @staticmethod
        def backward(ctx, *grads):
            return 7 * grads[0]

    x = torch.ones(3, requires_grad=True)
    program = export(lambda x: torch.autograd.grad(Twice.apply(x).sum(), x)[0], (x,))
    assert program(torch.ones(3)).tolist() == [7, 7, 7]


def test_platforms():
    program = export(network(), (torch.ones(1, 4),), platforms=("cpu", "cuda", "tpu"))
    assert program.platforms == ("cpu", "cuda", "tpu")
    assert program(torch.ones(1, 4)).shape == (1, 2)
    only = export(network(), (torch.ones(1, 4),), platforms=("tpu",))
    with pytest.raises(ProgramError, match=r"it was exported for tpu, and its tensors are on cpu; move them"):
        only(torch.ones(1, 4))
    with pytest.raises(ValueRangeError, match=r"platforms must be among cpu, cuda, rocm, tpu, got \('gpu',\)"):
        export(network(), (torch.ones(1, 4),), platforms=("gpu",))
    with pytest.raises(
        ArgumentError, match=r"platforms must be a tuple or list, such as \('cuda',\), got the str 'cuda'"
    ):
        export(network(), (torch.ones(1, 4),), platforms=cast("Any", "cuda"))


# --- errors -----------------------------------------------------------------------------------------------------


def test_a_value_that_is_read():
    def function(x):
        return x if x.sum() > 0 else -x

    with pytest.raises(
        CompileError, match=r"^function: it needs a tensor's value at .*test_program.py:\d+, and there is"
    ):
        export(function, (torch.ones(2),))


def test_a_value_that_is_printed():
    def function(x):
        print(x.sum().item())
        return x

    with pytest.raises(CompileError, match=r"or return it$"):
        export(function, (torch.ones(2),))


def test_a_write_to_something_from_outside():
    total = torch.zeros(2)
    with pytest.raises(ProgramError, match=r"it writes to a tensor of shape \[2\] from outside, which is neither an"):
        export(lambda x: total.add_(x), (torch.ones(2),))
    assert total.tolist() == [0, 0]


def added(x):
    x["a"].add_(1)
    return x["a"] * 2


def through_a_view(x):
    x["a"][0].mul_(2)
    return x["a"].sum()


@pytest.mark.parametrize("function", [added, through_a_view, lambda x: F.relu(x["a"], inplace=True)])
def test_a_write_to_an_argument(function):
    a = torch.ones(2)
    with pytest.raises(ProgramError, match=r"it writes to its argument 'x\.a', and a program leaves .* return the new"):
        export(function, ({"a": a},))
    assert a.tolist() == [1, 1]


def test_a_write_to_a_copy_of_an_argument():
    program = export(lambda x: x.clone().add_(1) + x.requires_grad_(False), (torch.ones(2),))
    assert program(torch.ones(2)).tolist() == [3, 3]


@pytest.mark.parametrize(
    ("args", "text"),
    [
        (
            (torch.ones(2, 4),),
            r"Expected input at \*args\[0\].shape\[0\] to be equal to 3, but got 2; a size that changes",
        ),
        ((torch.ones(3, 4).double(),), r"to have dtype float32, but got float64; pass \*args\[0\].to\(torch.float32\)"),
        ((torch.ones(4),), r"to have 2 dimensions \(float32\[3, 4\]\), but got 1 \(shape \[4\]\)"),
        (([1.0],), r"Expected input at \*args\[0\] to be a tensor, but got list"),
        ((), r"Expected input at \*args to be a tuple of 1 items, but got a tuple of 0 items"),
        ((torch.ones(3, 4), 1), r"Expected input at \*args to be a tuple of 1 items, but got a tuple of 2 items"),
    ],
)
def test_inputs_that_do_not_fit(args, text):
    program = export(network(), (torch.ones(3, 4),))
    with pytest.raises(ProgramError, match=text):
        program(*args)


def test_a_constant_that_differs():
    program = export(lambda x, n: x * n, (torch.ones(2), 3))
    assert program(torch.ones(2), 3).tolist() == [3, 3]
    with pytest.raises(
        ProgramError, match=r"Expected input at \*args\[1\] to be equal to 3, but got 4; what is no tensor"
    ):
        program(torch.ones(2), 4)


def test_arguments_of_export():
    with pytest.raises(ArgumentError, match=r"Expecting `args` to be a tuple of example positional inputs, got <class"):
        export(network(), cast("Any", torch.ones(3, 4)))
    with pytest.raises(ArgumentError, match=r"Expected `mod` to be an instance of `torch.nn.Module` or a function"):
        export(cast("Any", 3), ())
    with pytest.raises(ArgumentError, match=r"args\[0\] is a set: inputs and outputs of an exported program are"):
        export(lambda x: x, ({1},))
    with pytest.raises(ArgumentError, match=r"^the result\[0\] is a dtype: inputs and outputs of"):
        export(lambda x: [x.dtype], (torch.ones(1),))


def test_an_error_of_the_function_is_its_own():
    with pytest.raises(torch.errors.ShapeError, match="mat1 and mat2 shapes cannot be multiplied"):
        export(nn.Linear(4, 2), (torch.ones(3, 5),))
    with pytest.raises(pickle.PicklingError):
        export(lambda x: (_ for _ in ()).throw(pickle.PicklingError("mine")), (torch.ones(1),))
