"""Bags of embeddings."""

from __future__ import annotations

import numpy as np
import pytest

import weft
from weft import nn
from weft.nn import functional as F

TABLE = np.cos(np.arange(12) * 0.9).reshape(6, 2)
INDICES, OFFSETS = [0, 2, 2, 5, 1], [0, 3, 3]
BAGS = [[0, 2, 2], [], [5, 1]]
MODES = {"sum": np.sum, "mean": np.mean, "max": np.max}


def expected(bags, mode, padding=None):
    kept = [[i for i in bag if i != padding] for bag in bags]
    return np.stack([MODES[mode](TABLE[bag], axis=0) if bag else np.zeros(2) for bag in kept])


def table():
    return weft.tensor(TABLE).requires_grad_()


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("padding", [None, 2, -1])
def test_bags_of_a_vector_end_where_the_next_begins(mode, padding):
    found = F.embedding_bag(weft.tensor(INDICES), table(), weft.tensor(OFFSETS), mode=mode, padding_idx=padding)
    padded = None if padding is None else padding % 6
    np.testing.assert_allclose(found.detach().numpy(), expected(BAGS, mode, padded), atol=1e-12)


@pytest.mark.parametrize("mode", MODES)
def test_rows_of_indices_are_bags(mode):
    rows = [[0, 2], [3, 3], [5, 1]]
    found = F.embedding_bag(weft.tensor(rows), table(), mode=mode)
    np.testing.assert_allclose(found.detach().numpy(), expected(rows, mode), atol=1e-12)


def test_a_last_offset_ends_the_last_bag():
    found = F.embedding_bag(weft.tensor(INDICES), table(), weft.tensor([0, 3, 4]), mode="sum", include_last_offset=True)
    np.testing.assert_allclose(found.detach().numpy(), expected([[0, 2, 2], [5]], "sum"), atol=1e-12)


def test_gradients_of_sums_with_weights():
    weight, each = table(), weft.tensor([1.0, 2.0, 3.0, 4.0, 5.0]).double().requires_grad_()
    F.embedding_bag(
        weft.tensor(INDICES), weight, weft.tensor(OFFSETS), mode="sum", per_sample_weights=each
    ).sum().backward()
    np.testing.assert_allclose(weight.grad.numpy()[:, 0], [1, 5, 5, 0, 0, 4])
    np.testing.assert_allclose(each.grad.numpy(), TABLE[INDICES].sum(1))


@pytest.mark.parametrize(
    ("options", "gradient"),
    [
        ({"mode": "mean"}, [1 / 3, 1 / 2, 2 / 3, 0, 0, 1 / 2]),
        ({"mode": "mean", "padding_idx": 2}, [1, 1 / 2, 0, 0, 0, 1 / 2]),
        ({"mode": "sum", "scale_grad_by_freq": True}, [1, 1, 1, 0, 0, 1]),
        ({"mode": "max"}, [1, 1, 0, 0, 0, 0]),
    ],
)
def test_gradients_of_the_table(options, gradient):
    weight = table()
    F.embedding_bag(weft.tensor(INDICES), weight, weft.tensor(OFFSETS), **options)[:, 0].sum().backward()
    np.testing.assert_allclose(weight.grad.numpy()[:, 0], gradient)


def test_long_vectors_are_shortened_in_place():
    weight = table()
    F.embedding_bag(weft.tensor([[0, 5]]), weight, max_norm=0.5)
    norms = np.linalg.norm(weight.detach().numpy(), axis=1)
    assert norms[[0, 5]] == pytest.approx([0.5, 0.5])
    assert norms[1:5] == pytest.approx(np.linalg.norm(TABLE, axis=1)[1:5])


def test_the_layer():
    bags = nn.EmbeddingBag(6, 2, mode="sum", padding_idx=-1, max_norm=1.0, norm_type=3.0)
    assert repr(bags) == "EmbeddingBag(6, 2, max_norm=1.0, norm_type=3.0, mode='sum', padding_idx=5)"
    assert list(bags.state_dict()) == ["weight"]
    assert not bags.weight[5].any()
    assert bags(weft.tensor([[0, 1], [2, 5]])).shape == (2, 2)


def test_a_given_table_is_frozen_by_default():
    fixed = nn.EmbeddingBag.from_pretrained(weft.tensor(TABLE))
    assert not fixed.weight.requires_grad
    np.testing.assert_allclose(fixed(weft.tensor([[0, 1]])).numpy(), expected([[0, 1]], "mean"))
    assert nn.EmbeddingBag.from_pretrained(weft.tensor(TABLE), freeze=False).weight.requires_grad


I, O = weft.tensor, weft.tensor([0])  # noqa: E741  short names for the calls below
BAD = [
    ("I([[[0]]]), table()", ValueError, "^input has to be 1D or 2D Tensor, but got Tensor of dimension 3$"),
    ("I([[0]]), table(), O", ValueError, "^if input is 2D, then offsets has to be None"),
    ("I([0]), table()", ValueError, "^offsets has to be a 1D Tensor but got None$"),
    ("I([0]), table(), O[None]", ValueError, "^offsets has to be a 1D Tensor$"),
    ("I([0]), table()[0], O", ValueError, "^weight has to be a 2D Tensor, but got Tensor of dimension 1$"),
    ("I([0]), table(), O, None, 2, False, 'x'", ValueError, "^mode has to be one of sum, mean or max$"),
    ("I([0]), table(), O, None, 2, True, 'max'", ValueError, "^max mode does not support scaling the gradient"),
    ("I([0]), table(), O, None, 2, False, 'max', True", ValueError, "^max mode does not support sparse weights$"),
    (
        "I([0]), table(), O, None, 2, False, 'mean', False, weft.ones(1)",
        NotImplementedError,
        r"per_sample_weights is only supported for mode='sum' \(got mode='mean'\)",
    ),
    (
        "I([0]), table(), O, None, 2, False, 'sum', False, weft.ones(2)",
        ValueError,
        "is not None, then it must have the same shape as the input",
    ),
    ("I([0.0]), table(), O", RuntimeError, "^Expected tensor for argument #1 'indices' to have .* torch.FloatTensor"),
    (
        "I([0]), table(), O, None, 2, False, 'sum', False, None, False, 6",
        RuntimeError,
        "^padding_idx must be within the number of embeddings, -6 through 5, but got 6$",
    ),
]


@pytest.mark.parametrize(("arguments", "error", "text"), BAD, ids=[case[0] for case in BAD])
def test_bad_arguments(arguments, error, text):
    with pytest.raises(error, match=text):
        F.embedding_bag(*eval(arguments))


@pytest.mark.parametrize(
    ("index", "offsets", "text"),
    [
        (6, [0], "Expected idx >= 0 && idx < num_embeddings but found idx to be 6"),
        (0, [1], r"offsets\[0\] has to be 0, .* However, got 1"),
        (0, [0, 2], r"offsets\[-1\] can not be greater than input's length 1 but got offsets\[-1\] of 2"),
        (0, [0, 1, 0], "offsets have to rise"),
    ],
)
def test_bad_values_are_refused_by_the_call(index, offsets, text):
    with pytest.raises(RuntimeError, match=text):
        F.embedding_bag(weft.tensor([index]), table(), weft.tensor(offsets))


def test_bad_tables():
    with pytest.raises(AssertionError, match=r"^padding_idx must be within num_embeddings$"):
        nn.EmbeddingBag(3, 2, padding_idx=3)
    with pytest.raises(AssertionError, match=r"^Shape of weight does not match num_embeddings and embedding_dim$"):
        nn.EmbeddingBag(3, 2, _weight=weft.ones(2, 2))
    with pytest.raises(AssertionError, match=r"^Embeddings parameter is expected to be 2-dimensional$"):
        nn.EmbeddingBag.from_pretrained(weft.ones(2))
