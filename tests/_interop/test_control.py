"""Control flow by values: run by Python, captured, exported, differentiated."""

from __future__ import annotations

import jax
import numpy as np
import pytest

import weft as torch
from weft import nn
from weft.errors import ArgumentError, CompileError
from weft.export import Dim, export, load, save

LAYER = nn.Linear(3, 3)
UP, DOWN = torch.ones(2, 3), -torch.ones(2, 3)


def chosen(x):
    return torch.cond(x.sum() > 0, lambda x: LAYER(x).sin(), lambda x: x.cos() * 2, (x,))


def repeated(n, x):
    return torch.while_loop(lambda i, x: i < n, lambda i, x: (i + 1, LAYER(x).tanh()), (torch.tensor(0), x))


def same(one, other):
    np.testing.assert_allclose(one.detach().numpy(), other.detach().numpy(), rtol=1e-5, atol=1e-6)


def test_python_runs_one_branch():
    ran = []
    torch.cond(torch.tensor(True), lambda: ran.append(1), lambda: ran.append(2))
    torch.cond(False, lambda: ran.append(1), lambda: ran.append(2))
    assert ran == [1, 2]


@pytest.mark.parametrize("how", ["compiled", "exported"])
def test_a_program_chooses(how):
    program = torch.compile(chosen, fullgraph=True) if how == "compiled" else export(chosen, (UP,))
    for x in (UP, DOWN, UP, DOWN):
        same(program(x), chosen(x))


def test_a_program_for_all_sizes_chooses(tmp_path):
    program = export(chosen, (UP,), dynamic_shapes=({0: Dim("n")},))
    assert "stablehlo.case" in program.stablehlo()
    save(program, tmp_path / "chosen.pt2")
    for x in (torch.ones(5, 3), -torch.ones(1, 3)):
        same(load(tmp_path / "chosen.pt2")(x), chosen(x))


def gradients(function, x):
    x = x.clone().requires_grad_(True)
    (first,) = torch.autograd.grad(function(x).square().sum(), x, create_graph=True)
    return [first, *torch.autograd.grad(first.sum(), x)]


@pytest.mark.parametrize("x", [UP, DOWN])
def test_gradients_flow_through_the_branch(x):
    expected = gradients(chosen, x)
    for program in (torch.compile(chosen, fullgraph=True), export(chosen, (x,))):
        for one, other in zip(gradients(program, x), expected, strict=True):
            same(one, other)
    same(torch.from_numpy(np.array(jax.grad(torch.to_jax(lambda x: chosen(x).square().sum()))(x.numpy()))), expected[0])


def test_a_step_of_training_chooses():
    model = nn.Linear(3, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def step(x):
        optimizer.zero_grad()
        y = model(x)
        loss = torch.cond(y.mean() > 0, lambda y: y.square().mean(), lambda y: y.abs().mean(), (y,))
        loss.backward()
        optimizer.step()
        return loss

    program = export(step, (UP,), state={"model": model, "optimizer": optimizer})
    losses = [program(x).item() for x in (UP, UP, DOWN, DOWN)]
    assert losses[1] < losses[0]
    assert losses[3] < losses[2]


def test_structures_and_branches_in_branches():
    def function(x):
        return torch.cond(
            x.sum() > 0,
            lambda t: {"y": torch.cond(t["x"].sum() > 100, torch.neg, torch.exp, (t["x"],)), "n": 1},
            lambda t: {"y": torch.zeros(2, 3).add_(t["x"]), "n": 1},
            ({"x": x},),
        )

    compiled = torch.compile(function, fullgraph=True)
    for x in (UP, UP * 1000, DOWN):
        same(compiled(x)["y"], function(x)["y"])


def test_draws_in_a_branch():
    compiled = torch.compile(
        lambda x: torch.cond(x.sum() > 0, lambda x: x * torch.rand(2, 3), torch.neg, (x,)), fullgraph=True
    )
    assert not torch.equal(compiled(UP), compiled(UP))


def test_an_index_is_checked_in_the_branch_that_runs():
    table, index = torch.arange(3.0), torch.tensor([5, 1])
    compiled = torch.compile(
        lambda x: torch.cond(x.sum() > 0, lambda x: table[index] * x.sum(), lambda x: x[0, :2], (x,))
    )
    assert compiled(DOWN).tolist() == [-1, -1]
    with pytest.raises(IndexError):
        compiled(UP).tolist()


@pytest.mark.parametrize("dynamic", [None, (None, {0: Dim("n")})])
def test_loops(dynamic):
    with torch.no_grad():
        expected = [repeated(torch.tensor(n), UP) for n in (0, 4)]
        programs = [export(repeated, (torch.tensor(2), UP), dynamic_shapes=dynamic)]
        programs += [] if dynamic else [torch.compile(repeated, fullgraph=True)]
        for program in programs:
            for n, (count, x) in zip((0, 4), expected, strict=True):
                turns, found = program(torch.tensor(n), UP)
                assert turns.item() == count.item() == n
                same(found, x)


def test_numbers_in_a_loop():
    def function(x):
        return torch.while_loop(lambda i, x: i < 3, lambda i, x: (i + 1, x * 2), (0, x))

    assert function(UP)[0] == 3
    assert type(function(UP)[0]) is int
    turns, found = torch.compile(function, fullgraph=True)(UP)
    assert turns.item() == 3
    assert found.tolist() == (UP * 8).tolist()


# --- errors -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("branch", "text"),
    [
        (lambda x: x.add_(1), r"writes to a tensor of shape \[2, 3\] from outside at .*; return the new value instead"),
        (lambda x: x[0], r"tensor 0 is float32\[3\] in true_fn and float32\[2, 3\] in false_fn"),
        (lambda x: x.double(), r"tensor 0 is float64\[2, 3\] in true_fn and float32\[2, 3\]"),
        (lambda x: (x, x), r"true_fn and false_fn must give tensors in the same containers, and the same numbers"),
    ],
)
def test_branches_that_do_not_fit(branch, text):
    x = torch.ones(2, 3)
    with pytest.raises(CompileError, match=text):
        torch.compile(lambda x: torch.cond(x.sum() > 0, branch, torch.neg, (x,)), fullgraph=True)(x)
    assert x.tolist() == [[1] * 3] * 2


def test_loops_that_do_not_fit():
    def compiled(test, body):
        return torch.compile(lambda x: torch.while_loop(test, body, (x,)), fullgraph=True)(UP)

    with pytest.raises(CompileError, match="draws random numbers, which would be the same in each iteration at"):
        compiled(lambda x: x.sum() < 9, lambda x: x + torch.rand(2, 3))
    with pytest.raises(
        CompileError, match=r"tensor 0 is float32\[2, 3\] in carried_inputs and float32\[3\] in body_fn"
    ):
        compiled(lambda x: x.sum() < 9, lambda x: x[0])
    with pytest.raises(CompileError, match=r"float32\[2, 3\] in carried_inputs and float32\[3\] in body_fn"):
        torch.while_loop(lambda x: x.sum() < 9, lambda x: x[0], (UP,))
    with pytest.raises(ArgumentError, match="cond_fn must return a boolean scalar tensor that depends on the carried"):
        compiled(lambda x: x < 9, lambda x: x)


def test_arguments():
    with pytest.raises(ArgumentError, match=r"^Expect both branches to be callable"):
        torch.cond(True, 1, torch.neg)
    with pytest.raises(ArgumentError, match=r"^Expect operands to be a tuple of possibly nested dict/list/tuple"):
        torch.cond(True, torch.neg, torch.neg, UP)
    with pytest.raises(RuntimeError, match=r"^Expected pred to be bool or tensor, but got yes"):
        torch.cond("yes", torch.neg, torch.neg, (UP,))
    with pytest.raises(
        RuntimeError, match=r"^Expected pred to be bool or single-element tensor, but got shape \[2, 3\]"
    ):
        torch.cond(UP, torch.neg, torch.neg, (UP,))
    with pytest.raises(ArgumentError, match="expected cond_fn and body_fn to be callable"):
        torch.while_loop(1, torch.neg, (UP,))
