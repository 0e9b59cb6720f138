"""The adaptive softmax, and the cross entropy of a linear layer."""

from __future__ import annotations

import numpy as np
import pytest

import weft
from weft import nn
from weft.nn import functional as F


def cosines(*shape):
    return weft.tensor(np.cos(np.arange(np.prod(shape)) * 0.9).reshape(shape))


def made(**options):
    return nn.AdaptiveLogSoftmaxWithLoss(8, 12, [3, 7], div_value=2.0, **options).double()


def test_clusters_have_fewer_features():
    sizes = {name: tuple(value.shape) for name, value in made(head_bias=True).state_dict().items()}
    assert sizes == {
        "head.weight": (5, 8),
        "head.bias": (5,),
        "tail.0.0.weight": (4, 8),
        "tail.0.1.weight": (4, 4),
        "tail.1.0.weight": (2, 8),
        "tail.1.1.weight": (5, 2),
    }


def test_log_probabilities_are_those_of_all_classes():
    softmax, x = made(), cosines(6, 8)
    every = softmax.log_prob(x)
    np.testing.assert_allclose(every.exp().sum(1).detach().numpy(), np.ones(6))
    targets = weft.tensor([0, 2, 3, 6, 7, 11])
    output, loss = softmax(x, targets)
    np.testing.assert_allclose(output.detach().numpy(), every.detach().numpy()[np.arange(6), targets.numpy()])
    assert loss.item() == pytest.approx(-output.mean().item())
    assert softmax(x[0], targets[0]).output.shape == ()
    loss.backward()
    assert all(parameter.grad is not None for parameter in softmax.parameters())


def test_predictions_look_into_clusters_that_the_head_prefers():
    softmax, x = made(), cosines(6, 8)
    head = softmax.head(x).argmax(1)
    every = softmax.log_prob(x).argmax(1)
    assert softmax.predict(x).tolist() == [
        h if h < 3 else e for h, e in zip(head.tolist(), every.tolist(), strict=True)
    ]


@pytest.mark.parametrize("cutoffs", [[5, 5], [5, 3], [0, 5], [5, 12], [1.5]])
def test_cutoffs_must_rise(cutoffs):
    with pytest.raises(ValueError, match=r"^cutoffs should be a sequence of unique, positive integers sorted"):
        nn.AdaptiveLogSoftmaxWithLoss(8, 12, cutoffs)


def test_there_must_be_a_cutoff():
    with pytest.raises(ValueError, match=r"^cutoffs should be a sequence of length larger than 0$"):
        nn.AdaptiveLogSoftmaxWithLoss(8, 12, [])


@pytest.mark.parametrize(
    ("shape", "target", "text"),
    [
        ((2, 8), [[1]], "^0D or 1D target tensor expected, multi-target not supported$"),
        ((2, 8), [1], "^Input and target should have the same size in the batch dimension.$"),
        ((8,), [1] * 8, "^1D target tensor expects 2D input tensors, but found inputs with size torch.Size"),
        ((2, 8), 1, "^0D target tensor expects 1D input tensors, but found inputs with size torch.Size"),
    ],
)
def test_bad_targets(shape, target, text):
    with pytest.raises(RuntimeError, match=text):
        made()(cosines(*shape), weft.tensor(target))


@pytest.mark.parametrize("target", [12, -1])
def test_targets_outside_are_told_where_the_loss_is_read(target):
    with pytest.raises(RuntimeError, match=r"Target values should be in \[0, 11\], but values in range"):
        made()(cosines(1, 8), weft.tensor([target])).loss.item()


def test_the_cross_entropy_of_a_linear_layer():
    loss = nn.LinearCrossEntropyLoss(3, 4, out_features=(2,), bias=True).double()
    x, target = cosines(5, 3), weft.tensor(np.arange(10).reshape(5, 2) % 4)
    scores = loss.linear(x).reshape(5, 4, 2)
    assert loss(x, target).item() == pytest.approx(F.cross_entropy(scores, target).item())
    assert repr(loss) == (
        "LinearCrossEntropyLoss(\n"
        "  in_features=3, num_classes=4, out_features=(2,), bias=True, reduction=mean, ignore_index=None, "
        "label_smoothing=0.0, options=None\n"
        "  (linear): Linear(in_features=3, out_features=8, bias=True)\n)"
    )


W, Y = weft.ones(4, 3), weft.zeros(2).long()
BAD = [
    (
        "F.linear_cross_entropy(cosines(2, 2, 3), W, Y)",
        RuntimeError,
        "^expected input with dimensionality 1 or 2, got 3$",
    ),
    ("F.linear_cross_entropy(cosines(2, 3), W[0], Y)", RuntimeError, "^expected linear_weight with dimensionality at"),
    ("F.linear_cross_entropy(cosines(2, 2), W, Y)", RuntimeError, r"\(in_features\), got 2 and 3, respectively$"),
    (
        "F.linear_cross_entropy(cosines(2, 3), W, Y, linear_bias=Y)",
        RuntimeError,
        r"linear_bias shape \(4,\), got \(2,\)",
    ),
    ("F.linear_cross_entropy(cosines(3), W[:, None], Y)", RuntimeError, r"^K-dimensional loss .* with shape \(3,\)$"),
    ("F.linear_cross_entropy(cosines(2, 3), W, W[:2, :1].expand(2, 4), ignore_index=1)", RuntimeError, "^ignore_index"),
    ("nn.LinearCrossEntropyLoss(3, 4, weight=Y)", RuntimeError, r"^expected weight shape to be \(4,\), got \(2,\)$"),
    ("nn.LinearCrossEntropyLoss(3, 4, label_smoothing=2)", RuntimeError, r"to be in range \[0, 1\], got 2$"),
    ("nn.LinearCrossEntropyOptions(acc_policy='x')", ValueError, "^invalid acc_policy: 'x'$"),
    ("nn.LinearCrossEntropyOptions(chunking_method='aspect_ratio:0')", ValueError, "^invalid chunking_method: 'aspect"),
    ("nn.LinearCrossEntropyOptions(batch_chunk_size=0)", ValueError, "^batch_chunk_size must be positive int or None"),
    (
        "nn.LinearCrossEntropyOptions(acc_dtype=weft.int64)",
        ValueError,
        "^acc_dtype must be one of {None, torch.float16",
    ),
]


@pytest.mark.parametrize(("call", "error", "text"), BAD, ids=[case[0] for case in BAD])
def test_bad_losses(call, error, text):
    with pytest.raises(error, match=text):
        eval(call)
