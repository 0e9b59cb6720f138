"""Checkpoints: the same gradients, with the interior computed again."""

from __future__ import annotations

from collections import namedtuple
from contextlib import contextmanager, nullcontext
from functools import partial

import pytest

import weft
from weft._autograd.derive import derivative_of
from weft._base.state import ambient
from weft._lazy import flushing, running
from weft._lazy.interpreter.flatten import flattened
from weft.utils.checkpoint import (
    CheckpointError,
    CheckpointPolicy,
    check_backward_validity,
    checkpoint,
    checkpoint_sequential,
    create_selective_checkpoint_contexts,
    detach_variable,
    set_checkpoint_debug_enabled,
    set_checkpoint_early_stop,
)


def leaf(*numbers):
    return weft.tensor(numbers, dtype=weft.float64, requires_grad=True)


def block(x, weight):
    """Three values that a plain backward pass keeps."""
    return ((x * weight).sin().exp() * x).tanh()


def gradients(run):
    x, weight = leaf(0.1, 0.2), leaf(0.3, -0.4)
    loss = run(x, weight).sum()
    flushing.flush(ambient().pending)
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
    execute = running.execute

    def spy(program, graph, *rest):
        counts.append(len(graph.wanted))
        return execute(program, graph, *rest)

    with monkeypatch.context() as patch:
        patch.setattr(running, "execute", spy)
        patch.setattr(flushing, "native", None)  # which would plan by itself
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


# --- contexts ---


def layered(x, y):
    return weft.sigmoid(weft.matmul(weft.matmul(x, y), y)) * y


def matrices():
    x = weft.tensor([[0.1, 0.2], [0.3, 0.4]], dtype=weft.float64, requires_grad=True)
    y = weft.tensor([[0.5, -0.2], [0.3, 0.1]], dtype=weft.float64, requires_grad=True)
    return x, y


def selecting(choice):
    return partial(create_selective_checkpoint_contexts, choice)


def always(policy):
    return lambda context, op, *args, **kwargs: policy


CHOICES = {
    "nothing": [],
    "products": [weft.ops.aten.mm.default],
    "by kind": [weft.ops.aten.sigmoid.default, weft.ops.aten.mul.Tensor],
    "everything": always(CheckpointPolicy.MUST_SAVE),
    "by bool": always(True),
    "recompute": always(CheckpointPolicy.PREFER_RECOMPUTE),
    "offload": always(CheckpointPolicy.MUST_CPU_OFFLOAD),
}


@pytest.mark.parametrize("choice", CHOICES)
def test_selective_checkpoints_have_the_same_gradients(choice):
    def run(function):
        x, y = matrices()
        loss = function(x, y).sum()
        first = weft.autograd.grad(loss, [x, y], create_graph=True)
        second = weft.autograd.grad(sum(g.square().sum() for g in first), [x, y])
        return [g.tolist() for g in (*first, *second)]

    expected = run(layered)
    context_fn = selecting(CHOICES[choice])
    found = run(lambda x, y: checkpoint(layered, x, y, use_reentrant=False, context_fn=context_fn))
    for ours, theirs in zip(found, expected, strict=True):
        assert weft.allclose(weft.tensor(ours), weft.tensor(theirs), rtol=1e-12)


def test_what_was_saved_is_not_computed_again():
    def products(choice):
        x, y = matrices()
        out = checkpoint(layered, x, y, use_reentrant=False, context_fn=selecting(choice))
        signature = out._value.origin.signature
        derivative = derivative_of(signature, (0, 1), (0,))
        names = [equation.name for equation in flattened(derivative.signature.trace).equations]
        return len(derivative.outputs), names.count("dot_general")

    assert products([]) == (0, 6)
    assert products([weft.ops.aten.mm.default]) == (2, 4)


def test_a_policy_sees_operators_arguments_and_results():
    seen = []

    def policy(context, op, *args, **kwargs):
        seen.append((str(op), context.is_recompute, len(args), tuple(context.op_output.shape)))
        return op == weft.ops.aten.mm.default

    checkpoint(layered, *matrices(), use_reentrant=False, context_fn=selecting(policy))
    assert seen == [
        ("aten.mm.default", False, 2, (2, 2)),
        ("aten.mm.default", False, 2, (2, 2)),
        ("aten.sigmoid.default", False, 1, (2, 2)),
        ("aten.mul.default", False, 2, (2, 2)),
    ]


def test_operators_have_names():
    aten = weft.ops.aten
    assert (aten.mm.default.name(), aten.add.Tensor.name()) == ("aten::mm", "aten::add.Tensor")
    assert repr(aten.mm) == "<OpOverloadPacket(op='aten.mm')>"


def test_the_function_is_called_again_in_the_second_context():
    log = []

    @contextmanager
    def entered(name):
        log.append(f"enters {name}")
        yield
        log.append(f"leaves {name}")

    def run(**options):
        log.clear()
        x, y = matrices()
        contexts = lambda: (entered("first"), entered("second"))  # noqa: E731
        out = checkpoint(
            lambda x, y: log.append("call") or weft.tanh(x @ y).exp(), x, y, context_fn=contexts, **options
        )
        out.sum().backward()
        return x.grad.tolist(), [*log]

    x, y = matrices()
    weft.tanh(x @ y).exp().sum().backward()
    once = ["enters first", "call", "leaves first", "enters second", "call"]
    assert run() == (x.grad.tolist(), once)
    assert run(early_stop=False) == (x.grad.tolist(), [*once, "leaves second"])
    with set_checkpoint_early_stop(False):
        assert run()[1] == [*once, "leaves second"]


def plain_contexts():
    return nullcontext(), nullcontext()


def test_a_repeated_call_draws_the_same_numbers():
    x = weft.ones(64, requires_grad=True)
    out = checkpoint(lambda x: weft.nn.functional.dropout(x, 0.5).exp(), x, context_fn=plain_contexts)
    after = weft.rand(1)
    kept = (out > 1).tolist()
    out.sum().backward()
    assert (x.grad > 0).tolist() == kept
    assert after.item() != weft.rand(1).item()


def test_a_call_that_differs_is_noticed():
    def run(second, **options):
        calls = []

        def function(x, y):
            calls.append(1)
            return (x @ y).exp() if len(calls) == 1 else second(x, y)

        checkpoint(function, *matrices(), context_fn=plain_contexts, **options).sum().backward()

    with pytest.raises(
        CheckpointError, match=r"different metadata(.|\n)*position 2(.|\n)*'shape': torch\.Size\(\[2\]\)"
    ):
        run(lambda x, y: (x @ y).sum(0).exp())
    with pytest.raises(CheckpointError, match=r"saved during forward: 3\n.*during recomputation: 4\.$"):
        run(lambda x, y: (x @ y).exp().tanh(), early_stop=False)
    with pytest.raises(CheckpointError, match=r"saved during forward: 3\n.*during recomputation: 0\.$"):
        run(lambda x, y: x + y)
    with pytest.raises(RuntimeError, match="it must return what pack_hook got"):
        run(lambda x, y: (x @ y).sum(0).exp(), determinism_check="none")


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"determinism_check": "x"}, r"determinism_check should be one of \['default', 'none'\], but got x"),
        (
            {"use_reentrant": True, "debug": True},
            "Passing `context_fn` or `debug` is only supported when use_reentrant",
        ),
        ({"debug": True, "context_fn": plain_contexts}, "debug=True is incompatible with non-default context_fn"),
        (
            {"context_fn": selecting([weft.ops.aten.mm])},
            "Expected op in `op_list` to be an OpOverload but got: aten.mm",
        ),
    ],
)
def test_options_that_are_refused(options, text):
    with pytest.raises(ValueError, match=f"^{text}"):
        checkpoint(layered, *matrices(), **options)
    with pytest.raises(TypeError, match=r"^policy_fn_or_list must be either a function or a list of ops, got int$"):
        create_selective_checkpoint_contexts(3)


def test_debug_is_accepted():
    with set_checkpoint_debug_enabled(True):
        checkpoint(layered, *matrices(), use_reentrant=False, debug=True).sum().backward()
    with set_checkpoint_debug_enabled(False):
        checkpoint(layered, *matrices(), debug=True, context_fn=plain_contexts)


def test_helpers_of_old_programs():
    x, _ = matrices()
    leaf, number = detach_variable((x.exp(), 1))
    assert (leaf.is_leaf, leaf.requires_grad, number) == (True, True, 1)
    with pytest.warns(UserWarning, match="Gradients will be None"):
        check_backward_validity([weft.ones(1)])
    check_backward_validity([x])


@pytest.mark.parametrize(
    ("segments", "options", "text"),
    [
        (2, {}, "^checkpoint_sequential: expected from 1 segment to 1, the number of functions, got 2$"),
        (0, {}, "^checkpoint_sequential: expected from 1 segment to 1, the number of functions, got 0$"),
        (2, {"foo": 1}, "^Unexpected keyword arguments: foo$"),
    ],
)
def test_a_chain_has_a_function_for_each_segment(segments, options, text):
    chain = weft.nn.Sequential(weft.nn.Linear(1, 1))
    with pytest.raises(ValueError, match=text):
        checkpoint_sequential(chain, segments, weft.ones(1, 1), use_reentrant=False, **options)
