"""Connectionist temporal classification, against the sum over all alignments."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import weft
from weft import nn
from weft.autograd import gradcheck
from weft.nn import functional as F

CLASSES = 3
LENGTHS, TARGETS = (4, 2, 4, 0), [[1, 2], [1, 1], [2, 0], [0, 0]]
TARGET_LENGTHS = (2, 2, 1, 0)


def scores(*shape):
    return weft.tensor(np.cos(np.arange(np.prod(shape)) * 0.9).reshape(shape))


def collapsed(path, blank):
    """A path without its repetitions and blanks."""
    return [c for c, _ in itertools.groupby(path) if c != blank]


def alignments(probabilities, target, blank=0):
    """The probability of a target as the sum over all paths; `probabilities` are (time, class)."""
    times, classes = probabilities.shape
    paths = itertools.product(range(classes), repeat=times)
    return sum(
        np.prod([probabilities[t, c] for t, c in enumerate(path)])
        for path in paths
        if collapsed(path, blank) == list(target)
    )


def expected():
    p = np.exp(F.log_softmax(scores(4, 4, CLASSES), 2).numpy())
    with np.errstate(divide="ignore"):
        return np.array(
            [
                -np.log(alignments(p[:time, n], TARGETS[n][:length]))
                for n, (time, length) in enumerate(zip(LENGTHS, TARGET_LENGTHS, strict=True))
            ]
        )


def losses(targets, *lengths, **options):
    return F.ctc_loss(F.log_softmax(scores(4, 4, CLASSES), 2), targets, *lengths, **options)


def test_losses_are_sums_over_alignments():
    padded = weft.tensor(TARGETS)
    found = losses(padded, LENGTHS, TARGET_LENGTHS, reduction="none")
    np.testing.assert_allclose(found.numpy(), expected(), atol=1e-12)
    assert found[1].item() == np.inf  # two steps are too few for two equal labels


@pytest.mark.parametrize("targets", [TARGETS, [1, 2, 1, 1, 2]], ids=["padded", "joined"])
@pytest.mark.parametrize("kind", [tuple, weft.tensor])
def test_targets_and_lengths_have_two_forms_each(targets, kind):
    found = losses(weft.tensor(targets), kind(LENGTHS), kind(TARGET_LENGTHS), reduction="none")
    np.testing.assert_allclose(found.numpy(), expected(), atol=1e-12)


def test_reductions_and_infinities():
    finite = np.where(np.isinf(expected()), 0, expected())
    options = {"zero_infinity": True}
    assert losses(weft.tensor(TARGETS), LENGTHS, TARGET_LENGTHS, reduction="sum", **options).item() == pytest.approx(
        finite.sum()
    )
    mean = nn.CTCLoss(**options)(F.log_softmax(scores(4, 4, CLASSES), 2), weft.tensor(TARGETS), LENGTHS, TARGET_LENGTHS)
    assert mean.item() == pytest.approx((finite / np.maximum(TARGET_LENGTHS, 1)).mean())


def test_one_sample_needs_no_batch():
    log_probs = F.log_softmax(scores(4, CLASSES), 1)
    found = F.ctc_loss(log_probs, weft.tensor([0, 1]), (4,), (2,), blank=2, reduction="none")
    assert found.shape == ()
    assert found.item() == pytest.approx(-np.log(alignments(np.exp(log_probs.numpy()), [0, 1], blank=2)))


def test_the_derivative_is_that_of_the_scores():
    x = scores(4, 2, CLASSES).requires_grad_()
    target = weft.tensor([[1, 2], [1, 1]])
    assert gradcheck(lambda x: F.ctc_loss(F.log_softmax(x, 2), target, (4, 4), (2, 2), reduction="none"), (x,))


@pytest.mark.parametrize(("zero_infinity", "inside"), [(False, np.nan), (True, 0.0)])
def test_the_derivative_of_an_impossible_target(zero_infinity, inside):
    x = scores(3, 1, CLASSES).requires_grad_()
    F.ctc_loss(x, weft.tensor([[1, 1]]), (2,), (2,), zero_infinity=zero_infinity).backward()
    assert x.grad is not None
    np.testing.assert_array_equal(x.grad.numpy()[:, 0], [[inside] * 3, [inside] * 3, [0.0] * 3])


WHERE = r"\(while checking arguments for ctc_loss_allocate_outputs\)$"
BAD = [
    ("(4, 5), (2, 2)", RuntimeError, f"^Expected input_lengths to have value at most 4, but got value 5 {WHERE}"),
    ("(4, -1), (2, 2)", RuntimeError, f"^Expected input_lengths to have value at least 0, but got value -1 {WHERE}"),
    ("(4, 4), (2, -1)", RuntimeError, f"^Expected target_lengths to have value at least 0, but got value -1 {WHERE}"),
    (
        "(4, 4), (2, 3)",
        RuntimeError,
        f"^Expected tensor to have size at least 3 at dimension 1, but got size 2 for argument #2 'targets' {WHERE}",
    ),
    ("(4, 4, 4), (2, 2)", RuntimeError, "^input_lengths must be of size batch_size$"),
    ("(4, 4), (2,)", RuntimeError, "^target_lengths must be of size batch_size$"),
    ("(4, 4), (2, 2), 3", RuntimeError, "^blank must be in label range$"),
    ("(4, 4), (2, 2), 0, 'x'", ValueError, "^x is not a valid value for reduction$"),
    ("weft.tensor([4, 4]), (2, 2)", TypeError, "must both be tensors, or both tuples of ints$"),
    ("weft.tensor([4.0, 4]), weft.tensor([2, 2])", RuntimeError, "^input_lengths must be integral$"),
]


@pytest.mark.parametrize(("arguments", "error", "text"), BAD, ids=[case[0] for case in BAD])
def test_bad_arguments(arguments, error, text):
    with pytest.raises(error, match=text):
        F.ctc_loss(scores(4, 2, CLASSES), weft.tensor([[1, 2], [1, 2]]), *eval(arguments))


def test_bad_targets():
    with pytest.raises(RuntimeError, match=f"^Expected tensor to have size 4 at dimension 0, but got size 3 .*{WHERE}"):
        F.ctc_loss(scores(4, 2, CLASSES), weft.tensor([1, 2, 1]), (4, 4), (2, 2))
    with pytest.raises(RuntimeError, match=f"^Expected 1 to 2 dimensions, but got 3-dimensional tensor .*{WHERE}"):
        F.ctc_loss(scores(4, 2, CLASSES), weft.ones(1, 1, 1).long(), (4, 4), (1, 1))
    with pytest.raises(RuntimeError, match=r"^log_probs tensor must not be empty$"):
        F.ctc_loss(scores(4, 0, CLASSES), weft.ones(0, 2).long(), (), ())
    with pytest.raises(NotImplementedError, match="\"ctc_loss_cpu\" not implemented for 'Half'"):
        F.ctc_loss(scores(4, 1, CLASSES).half(), weft.ones(1, 2).long(), (4,), (2,))


@pytest.mark.parametrize(("label", "time"), [(3, 4), (1, 5)])
def test_bad_values_are_told_where_the_loss_is_read(label, time):
    loss = F.ctc_loss(scores(4, 1, CLASSES), weft.tensor([[label]]), weft.tensor([time]), weft.tensor([1]))
    with pytest.raises(RuntimeError, match="a length is negative or longer than its tensor, or a label is outside"):
        loss.item()
