"""Checkpoints: the same gradients, with the interior computed again."""

from __future__ import annotations

from collections import namedtuple
from contextlib import contextmanager
from functools import partial

import pytest

import weft
from weft._base.state import ambient
from weft._lazy import realize
from weft.utils.checkpoint import (
    CheckpointFunction,
    check_backward_validity,
    checkpoint,
    checkpoint_sequential,
    create_selective_checkpoint_contexts,
    detach_variable,
    get_device_states,
)


def leaf(*numbers):
    return weft.tensor(numbers, dtype=weft.float64, requires_grad=True)


def block(x, weight):
    """Three values that a plain backward pass keeps."""
    return ((x * weight).sin().exp() * x).tanh()


def gradients(run):
    x, weight = leaf(0.1, 0.2), leaf(0.3, -0.4)
    loss = run(x, weight).sum()
    realize.flush(ambient().pending)
    loss.backward()
    return loss.item(), x.grad.tolist(), weight.grad.tolist()


def test_gradients_are_the_same():
    whole = gradients(lambda x, weight: block(block(x, weight), weight))
    parts = gradients(lambda x, weight: checkpoint(block, checkpoint(block, x, weight, use_reentrant=False), weight))
    assert parts[0] == pytest.approx(whole[0], rel=1e-14)
    assert parts[1] == pytest.approx(whole[1], rel=1e-14)
    assert parts[2] == pytest.approx(whole[2], rel=1e-14)


def kept_by(run, monkeypatch):
    """How many values a flush in front of the backward pass keeps."""
    counts = []
    execute = realize.execute

    def spy(program, graph, *rest):
        counts.append(len(graph.wanted))
        return execute(program, graph, *rest)

    with monkeypatch.context() as patch:
        patch.setattr(realize, "execute", spy)
        gradients(run)
    return counts[0]


@pytest.mark.compiled
def test_the_interior_is_not_kept(monkeypatch):
    assert kept_by(block, monkeypatch) > 2
    assert kept_by(lambda x, weight: checkpoint(block, x, weight), monkeypatch) <= 2


def test_draws_repeat():
    x = leaf(*[1.0] * 64)
    y = checkpoint(lambda x: x * weft.rand(64, dtype=weft.float64), x)
    seen = y.detach().tolist()
    y.sum().backward()
    assert x.grad.tolist() == seen


def test_structures_and_results_off_the_tape_come_through():
    x = leaf(1.0, 2.0)
    double, count, plain = checkpoint(lambda x: (x * 2, 3, x.detach() + 1), x)
    assert (double.tolist(), count, plain.tolist()) == ([2, 4], 3, [2, 3])
    assert not plain.requires_grad
    double.sum().backward()
    assert x.grad.tolist() == [2, 2]


def test_named_tuples_stay():
    pair = namedtuple("pair", "low high")
    found = checkpoint(lambda x: pair(x, x * 2), leaf(1.0))
    assert (type(found), found.high.item()) == (pair, 2)


def test_without_gradients_it_only_calls():
    with weft.no_grad():
        assert checkpoint(lambda x: x * 2, leaf(1.0)).tolist() == [2]
    assert checkpoint(lambda x: x * 2, weft.ones(1)).tolist() == [2]


def test_derivatives_of_higher_order():
    x = leaf(0.5, 2.0)
    (first,) = weft.autograd.grad(checkpoint(lambda x: x**3, x).sum(), x, create_graph=True)
    assert weft.autograd.grad(first.sum(), x)[0].tolist() == [3, 12]


@pytest.mark.parametrize("segments", [1, 2, 4])
def test_a_chain_in_segments(segments):
    def run(x, weight):
        steps = [lambda x: x * weight, weft.sin, weft.exp, weft.tanh]
        return checkpoint_sequential(steps, segments, x, use_reentrant=False)

    expected = gradients(lambda x, weight: (x * weight).sin().exp().tanh())
    assert gradients(run)[1] == pytest.approx(expected[1], rel=1e-14)


def test_functions_run_in_the_first_context():
    entered = []

    @contextmanager
    def around(name):
        entered.append(name)
        yield

    x = leaf(1.0, 2.0)
    y = checkpoint(weft.exp, x, use_reentrant=False, context_fn=lambda: (around("forward"), around("again")))
    y.sum().backward()
    assert entered == ["forward"]
    assert weft.allclose(x.grad, x.exp())
    selective = partial(create_selective_checkpoint_contexts, [weft.exp])
    assert checkpoint(weft.exp, x, context_fn=selective, debug=True, early_stop=False).requires_grad


def test_what_programs_with_checkpoints_of_their_own_call():
    x = leaf(1.0)
    (copied, number) = detach_variable((x * 2, 3))
    assert (copied.is_leaf, copied.requires_grad, number) == (True, True, 3)
    with pytest.raises(RuntimeError, match="Only tuple of tensors is supported"):
        detach_variable([x])
    with pytest.warns(UserWarning, match="None of the inputs have requires_grad=True"):
        check_backward_validity([x.detach()])
    assert get_device_states(x) == ([], [])
    CheckpointFunction.apply(weft.exp, True, x).backward()
    assert x.grad is not None
