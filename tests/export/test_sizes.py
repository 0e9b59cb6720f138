"""Programs for all sizes compute what the functions compute, and say which sizes they take."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import weft as torch
from weft import nn
from weft.errors import ArgumentError, PreconditionError, ProgramError, ValueRangeError
from weft.export import Dim, dims, export
from weft.nn import functional as F

LINEAR = nn.Linear(4, 3)
CASES = {
    "linear": (LINEAR, [("b", 4)]),
    "mean": (lambda x: x.mean(), [("b", 4)]),
    "unbiased": (lambda x: x.std(0), [("b", 4)]),
    "view": (lambda x: x.view(x.shape[0] * 2, 2), [("b", 4)]),
    "flatten": (lambda x: x.flatten(0, 1), [("b", "t", 2)]),
    "sizes as numbers": (lambda x: x.sum() / x.shape[0] * x.shape[1] ** -0.5, [("b", "t")]),
    "arange": (lambda x: x + torch.arange(x.shape[1]), [("b", "t")]),
    "half": (lambda x: x[:, : x.shape[1] // 2], [("b", "t")]),
    "last": (lambda x: x[:, -1], [("b", "t")]),
    "attention": (lambda x: F.scaled_dot_product_attention(x, x, x, is_causal=True), [("b", 2, "t", 4)]),
    "convolution": (nn.Conv1d(3, 4, 3, padding=1), [("b", 3, "t")]),
    "strides": (nn.Conv1d(3, 4, 3, padding=1, stride=2), [("b", 3, "t")]),
    "images": (
        nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(36, 2)).eval(),
        [("b", 3, 8, 8)],
    ),
    "batch norm": (lambda x: F.batch_norm(x, None, None, training=True), [("b", 3, "t")]),
    "gradient": (lambda x: torch.autograd.grad(LINEAR(x).square().mean(), LINEAR.weight)[0], [("b", 4)]),
    "recurrent": (lambda x, m=nn.LSTM(4, 3, batch_first=True): m(x)[0], [("b", "t", 4)]),  # noqa: B008
    "transformer": (nn.TransformerEncoderLayer(4, 2, 8, batch_first=True).eval(), [("b", "t", 4)]),
    "sort": (lambda x: x.cumsum(1).sort(1)[0], [("b", "t")]),
    "two": (lambda x, y: torch.cat([x, y], 1) @ torch.ones(x.shape[1] + y.shape[1], 2), [("b", "t"), ("b", 3)]),
    "inverse": (lambda x: torch.linalg.inv(x @ x.mT + torch.eye(3)), [("b", 3, 4)]),
}


def arguments(shapes, **sizes):
    return tuple(torch.randn(*[sizes.get(size, size) for size in shape]) for shape in shapes)


@pytest.mark.parametrize("name", CASES)
def test_a_program_for_all_sizes(name):
    function, shapes = CASES[name]
    named = dict(zip("bt", dims("b", "t"), strict=True))
    specs = tuple({at: named[size] for at, size in enumerate(shape) if size in named} for shape in shapes)
    program = export(function, arguments(shapes, b=4, t=5), dynamic_shapes=specs)
    for sizes in ({"b": 3, "t": 6}, {"b": 8, "t": 9}):
        args = arguments(shapes, **sizes)
        with torch.no_grad():
            found = program(*args)
        np.testing.assert_allclose(found.numpy(), function(*args).detach().numpy(), rtol=3e-5, atol=2e-6)


def test_a_batch_of_one():
    program = export(LINEAR, (torch.ones(4, 4),), dynamic_shapes=({0: Dim("batch")},))
    assert program.range_constraints == {"batch": (1, 1 << 31)}
    assert program(torch.ones(1, 4)).shape == (1, 3)


def test_where_one_is_a_size_of_its_own():
    b, t = dims("b", "t")
    program = export(lambda x: x[:, :2] * 2, (torch.ones(3, 4),), dynamic_shapes=({0: b, 1: t},))
    assert program.range_constraints == {"b": (1, 1 << 31), "t": (2, 1 << 31)}
    with pytest.raises(ProgramError, match=r"Expected input at \*args\[0\].shape\[1\] to be >= 2, but got 1"):
        program(torch.ones(3, 1))
    with pytest.raises(ProgramError, match="in the example 't' is 1, which is a size of its own for the function"):
        export(lambda x: x[:, :2] * 2, (torch.ones(3, 1),), dynamic_shapes=({1: t},))


def test_all_ways_to_say_it():
    batch = Dim("batch", min=2, max=16)

    def function(x, *rest, more):
        return x + rest[0] + more["k"][0]

    args, kwargs = (torch.ones(3, 2), torch.ones(3, 2)), {"more": {"k": [torch.ones(3, 2)]}}
    for spec in (
        {"x": {0: batch}, "rest_0": (batch, None), "more": {"k": [{0: batch}]}},
        ({0: batch, 1: 2}, [batch, Dim.STATIC], {"k": [{-2: batch}]}),
        [{0: Dim.AUTO}, {0: Dim.AUTO}, {"k": [(Dim.AUTO, None)]}],
        [Dim.DYNAMIC, Dim.DYNAMIC, {"k": [Dim.DYNAMIC]}],
        ({0: Dim.DYNAMIC}, {0: Dim.DYNAMIC}, {"k": [{0: Dim.DYNAMIC}]}),
    ):
        program = export(function, args, kwargs, dynamic_shapes=spec)
        assert program(*[torch.ones(5, 2)] * 2, more={"k": [torch.ones(5, 2)]}).tolist() == [[3, 3]] * 5


def test_multiples():
    pairs = Dim("pairs", max=8)
    program = export(lambda x: x.view(-1, 2).sum(1), (torch.ones(6),), dynamic_shapes=({0: 2 * pairs},))
    assert "float32[2*pairs]" in repr(program)
    assert program(torch.ones(10)).tolist() == [2] * 5
    with pytest.raises(ProgramError, match=r"to be of the form 2\*pairs, but got 7"):
        program(torch.ones(7))
    with pytest.raises(ProgramError, match=r"to be 2\*pairs with pairs <= 8, but got 18"):
        program(torch.ones(18))
    assert export(lambda x: x[1:], (torch.ones(6),), dynamic_shapes=({0: pairs + 1},))(torch.ones(3)).shape == (2,)


def test_auto_falls_back_to_the_sizes_of_the_example():
    program = export(by_columns, (torch.ones(3, 4),), dynamic_shapes=({1: Dim.AUTO},))
    assert program.range_constraints == {}
    with pytest.raises(ProgramError, match="equal to 4, but got 2"):
        program(torch.ones(3, 2))


# --- errors -----------------------------------------------------------------------------------------------------


def fails(text, function, *shapes, spec: Any, error: type[Exception] = ProgramError):
    with pytest.raises(error, match=text):
        export(function, tuple(torch.ones(*shape) for shape in shapes), dynamic_shapes=spec)


def test_two_sizes_of_one_name():
    b = Dim("b")
    program = export(torch.add, (torch.ones(3), torch.ones(3)), dynamic_shapes=({0: b}, {0: b}))
    with pytest.raises(
        ProgramError, match=r"Expected input at \*args\[1\].shape\[0\] to be 4, as 'b' is 4 in the inputs"
    ):
        program(torch.ones(4), torch.ones(5))
    fails("in the example, 'b' has two sizes: 3 and, at", lambda x, y: x, (3,), (4,), spec=({0: b}, {0: b}))


def test_what_depends_on_sizes_in_other_ways():
    b = Dim("b")
    fails("with b=5 it fails \\(ShapeError", lambda x: x.view(-1, 2), (6,), spec=({0: b},))
    loop = r"the number of operators depends on them: \d+ for b=5, \d+ for b=8; let fewer dims change, or use"
    fails(loop, lambda x: sum(x[i] for i in range(len(x))), (3,), spec=({0: b},))
    fails(r"as the result\[1\] depends on them", lambda x: (x, len(x)), (3,), spec=({0: b},))
    fails("depends on them in a way that cannot be expressed", lambda x: x * 1.1 ** x.shape[0], (6,), spec=({0: b},))
    fails("the operators are cos, sin, for b=5", lambda x: x.sin() if len(x) > 100 else x.cos(), (6,), spec=({0: b},))


def test_specifications_that_do_not_fit():
    def function(x, y):
        return x

    shapes, b = ((3, 4), (3,)), Dim("b", max=8)
    keys = r"its top-level keys must be the arg names \['x', 'y'\] of `inputs`, but here they are \['z'\]"
    fails(keys, function, *shapes, spec={"z": {0: b}})
    fails(r"`dynamic_shapes` has 1 elements, but `inputs` has 2", function, *shapes, spec=({0: b},))
    fails(r"dynamic_shapes\['x'\] names dim 2, but x has 2 dims", function, *shapes, spec=({2: b}, None))
    fails(r"to have the same length as the actual tensor shape \[3, 4\]", function, *shapes, spec=((b,), None))
    fails(r"dynamic_shapes\['x'\] has 'b' for a dim; it must be a Dim", function, *shapes, spec=({0: "b"}, None))
    fails(r"says that x.shape\[0\] is 5, but in the example it is 3", function, *shapes, spec=({0: 5}, None))
    fails(r"x.shape\[0\] is 9, which b cannot be, as b is from 1 to 8", function, (9, 4), (3,), spec=({0: b}, None))
    fails("'b' can only be from 3 to 4; give it a wider", function, *shapes, spec=({0: Dim("b", min=3, max=4)}, None))
    fails(
        "two Dims called 'b' with other bounds", function, *shapes, spec=({0: b}, {0: Dim("b")}), error=ValueRangeError
    )
    fails("dynamic_shapes must be a dict by argument name", function, *shapes, spec=3, error=ArgumentError)


def test_dims_that_make_no_sense():
    with pytest.raises(PreconditionError, match="Dim name must be a valid identifier, got '2b'"):
        Dim("2b")
    with pytest.raises(PreconditionError, match="Cannot create Dim with inconsistent min=5, max=3"):
        Dim("b", min=5, max=3)
    with pytest.raises(
        PreconditionError, match="Attempted to multiply b with -1, where a positive integer was expected"
    ):
        _ = Dim("b") * -1


def by_columns(x):
    return torch.stack([x[:, at] for at in range(x.shape[1])]).sum(0)


@pytest.mark.parametrize(("shape", "dims"), [((3, 4), ["s0"]), ((4, 4), ["s0_0"])])
def test_automatic_dims_of_which_one_is_impossible(shape, dims):
    program = export(by_columns, (torch.ones(shape),), dynamic_shapes=({0: Dim.AUTO, 1: Dim.AUTO},))
    assert list(program.range_constraints) == dims
    assert program(torch.ones(7, 4)).tolist() == [4] * 7
    with pytest.raises(ProgramError, match=r"shape\[1\] to be equal to 4, but got 5"):
        program(torch.ones(7, 5))


def test_automatic_dims_of_one_size_that_change_apart():
    program = export(
        lambda x, y: x.sum() * y.sum(), (torch.ones(3, 3), torch.ones(3)), dynamic_shapes=(Dim.AUTO, Dim.AUTO)
    )
    assert program(torch.ones(2, 5), torch.ones(7)).item() == 70


def test_automatic_dims_that_change_together():
    program = export(
        lambda x, y: by_columns(x) + y, (torch.ones(4, 4), torch.ones(4)), dynamic_shapes=(Dim.AUTO, Dim.AUTO)
    )
    assert program(torch.ones(6, 4), torch.ones(6)).tolist() == [5] * 6


def test_a_result_that_is_a_size():
    def function(x):
        return {"y": x * 2, "sizes": [x.shape[1], x.shape[0]]}

    text = r"as the result\['sizes'\]\[1\] depends on them: (\d+) for b=\1, (\d+) for b=\2\. .*torch.tensor\(size\)"
    with pytest.raises(ProgramError, match=text):
        export(function, (torch.ones(3, 4),), dynamic_shapes=({0: Dim("b")},))
    program = export(lambda x: (x * 2, torch.tensor(x.shape[0])), (torch.ones(3, 4),), dynamic_shapes=({0: Dim("b")},))
    assert program(torch.ones(7, 4))[1].item() == 7


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        (
            {"y": {0: Dim("b")}},
            r"^Detected mismatch between .*: batch has the keys \['x'\], and its entry there \['y'\]$",
        ),
        ([{0: Dim("b")}], r"^Detected mismatch between .*: batch is a container, and its entry there is \[\{0: "),
    ],
)
def test_sizes_that_do_not_fit_the_structure_of_a_dict(spec, message):
    with pytest.raises(ProgramError, match=message):
        export(lambda batch: batch["x"], ({"x": torch.ones(3)},), dynamic_shapes={"batch": spec})


def test_sizes_that_do_not_fit_other_arguments():
    pair = (torch.ones(3), torch.ones(3))
    with pytest.raises(ProgramError, match=r": pair has 2 elements, and its entry there 1$"):
        export(lambda pair: pair[0], (pair,), dynamic_shapes=([{0: Dim("b")}],))
    with pytest.raises(ProgramError, match=r"for scale to non-tensor type float \(expected None\)$"):
        export(lambda x, scale: x * scale, (torch.ones(3), 2.0), dynamic_shapes=(None, {0: Dim("b")}))
