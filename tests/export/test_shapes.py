"""Sizes that change, by tensor and by example; dataclasses as arguments; exports that do what is possible."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, cast

import pytest

import weft as torch
from weft import nn
from weft.errors import ArgumentError, ProgramError
from weft.export import AdditionalInputs, Dim, ShapesCollection, draft_export, export, load, register_dataclass, save
from weft.export import _structure as structure


def added(x, rest):
    return x + rest[0][:, None]


def test_sizes_by_tensor():
    x, y, d = torch.ones(3, 2), torch.ones(3), Dim("d", max=9)
    shapes = ShapesCollection()
    shapes[x] = (d, None)
    shapes[y] = {0: d}
    assert len(shapes) == 2
    assert shapes[x] == (d, None)
    program = export(added, (x, [y]), dynamic_shapes=shapes)
    assert program.range_constraints == {"d": (1, 9)}
    assert program(torch.ones(5, 2), [torch.ones(5)]).shape == (5, 2)


def test_tensors_that_have_no_sizes():
    x, shapes = torch.ones(3), ShapesCollection()
    shapes[x] = {0: Dim("d")}
    with pytest.raises(ArgumentError, match="Shapes assigned to tensor do not match"):
        shapes[x] = {0: Dim("e")}
    with pytest.raises(ArgumentError, match="Cannot assign shape to non-tensor type <class 'int'>"):
        shapes[cast("Any", 3)] = {}
    with pytest.raises(ProgramError, match=r"an entry for a tensor of shape \[3\] that is none of the arguments"):
        export(lambda x: x, (torch.ones(3),), dynamic_shapes=shapes)


def test_sizes_by_example():
    more = AdditionalInputs()
    more.add((torch.ones(5, 2), [torch.ones(5)]))
    program = export(added, (torch.ones(3, 2), [torch.ones(3)]), dynamic_shapes=more)
    assert list(program.range_constraints) == ["s0"]
    more.verify(program)
    more.add((torch.ones(5, 2),))
    with pytest.raises(ProgramError, match="additional inputs must have tensors like those of the arguments"):
        export(added, (torch.ones(3, 2), [torch.ones(3)]), dynamic_shapes=more)


@dataclass
class Batch:
    x: Any
    scale: int = 2


@dataclass
class Result:
    y: Any


def test_dataclasses(tmp_path, monkeypatch):
    monkeypatch.setattr(structure, "_classes", {})
    register_dataclass(Batch, serialized_type_name="batch")
    register_dataclass(Result)
    spec = ({"x": {0: Dim("n")}},)
    program = export(lambda b: Result(b.x * b.scale), (Batch(torch.ones(3)),), dynamic_shapes=spec)
    assert program(Batch(torch.ones(5))).y.tolist() == [2] * 5
    with pytest.raises(ProgramError, match=r"Expected input at \*args\[0\] to be of class batch, but got dict"):
        program({"x": torch.ones(5), "scale": 2})
    save(program, tmp_path / "p.pt2")
    loaded = load(tmp_path / "p.pt2")
    assert loaded(Batch(torch.ones(2))).y.tolist() == [2, 2]
    monkeypatch.setattr(structure, "_classes", {})
    with pytest.raises(ProgramError, match=r"the dataclass batch, which this process does not know; call weft.export"):
        loaded(Batch(torch.ones(2)))
    with pytest.raises(ArgumentError, match="Only dataclasses can be registered with this function: <class 'int'>"):
        register_dataclass(int)


def by_columns(x):
    return torch.stack([x[:, at] for at in range(x.shape[1])]).sum(0)


def test_a_draft_says_what_cannot_be():
    spec = ({0: Dim("a"), 1: Dim("b")},)
    with pytest.warns(UserWarning, match=r"the number of operators depends on them.* may change instead: s0$"):
        program = draft_export(by_columns, (torch.ones(3, 4),), dynamic_shapes=spec)
    assert program(torch.ones(7, 4)).tolist() == [4] * 7
    assert "let fewer dims change" in program.report
    assert draft_export(nn.Linear(4, 2), (torch.ones(3, 4),), dynamic_shapes=({0: Dim("a")},)).report == ""


class Positions(nn.Module):
    def __init__(self, length=8):
        super().__init__()
        self.table = nn.Parameter(torch.randn(length, 4))
        self.register_buffer("mask", torch.ones(length, length).tril().bool())

    def forward(self, x):
        length = x.shape[1]
        x = x + self.table[:length]
        return (x @ x.mT).masked_fill(~self.mask[:length, :length], 0.0)


@pytest.mark.parametrize("length", [3, 8])
def test_tables_up_to_their_length(length):
    model = Positions()
    program = export(model, (torch.ones(2, length, 4),), dynamic_shapes=({1: Dim("t", max=8)},))
    for n in (1, 5, 8):
        x = torch.randn(2, n, 4)
        assert torch.allclose(program(x), model(x), atol=1e-5)
    with pytest.raises(ProgramError, match=r"shape\[1\] to be <= 8, but got 9"):
        program(torch.ones(2, 9, 4))


@pytest.mark.parametrize("size", [3, *(pytest.param(size, marks=pytest.mark.soak) for size in (8, 11, 18))])
@pytest.mark.parametrize(
    "function",
    [
        lambda x: x.chunk(2)[0] * 1,
        lambda x: x[x.shape[0] // 2 :] * 1,
        lambda x: x[: (x.shape[0] + 1) // 2] * 1,
        lambda x: x.roll(x.shape[0] // 2),
        lambda x: x.sum() / ((x.shape[0] + 1) // 2),
        lambda x: x[::4].cumsum(0),
        lambda x: nn.functional.avg_pool1d(x[None, None, :].repeat(1, 1, 4)[:, :, ::2], 2),
    ],
    ids=["chunk", "second half", "first half", "roll", "mean", "every fourth", "pool"],
)
def test_rounded_quotients_are_right_for_all_remainders(function, size):
    program = export(function, (torch.randn(size),), dynamic_shapes=({0: Dim("n")},))
    for other in range(2, 20):
        x = torch.randn(other)
        assert torch.allclose(program(x), function(x), atol=1e-5), other


def test_a_number_that_only_depends_on_a_remainder_is_refused():
    with pytest.raises(RuntimeError, match="it cannot be exported for all sizes"):
        export(lambda x: x * (x.shape[0] % 2), (torch.randn(3),), dynamic_shapes=({0: Dim("n")},))


@pytest.mark.parametrize(
    "function",
    [
        lambda x: nn.functional.max_pool2d(x, 3, 2, ceil_mode=True),
        lambda x: nn.functional.avg_pool2d(x, 2, 2, ceil_mode=True),
        lambda x: nn.functional.avg_pool2d(x, 3, 2, 1, count_include_pad=False),
        lambda x: nn.functional.max_pool2d(x[:, :, ::2, ::2].relu(), 3, 2, ceil_mode=True),
        lambda x: nn.functional.interpolate(x, scale_factor=1.5),
    ],
    ids=["max, ceil", "avg, ceil", "avg without padding", "max of every second, ceil", "interpolate"],
)
def test_images_of_all_sizes(function):
    size = {2: Dim("h", min=8, max=64), 3: Dim("w", min=8, max=64)}
    program = export(function, (torch.randn(1, 3, 16, 16),), dynamic_shapes=(size,))
    for h, w in [(8, 9), (17, 30), (33, 16), (26, 27)]:
        x = torch.randn(1, 3, h, w)
        assert torch.allclose(program(x), function(x), atol=1e-5), (h, w)
