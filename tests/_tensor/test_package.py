"""Layers in the package's own spellings, and questions about tensors."""

from __future__ import annotations

import numpy as np
import pytest

import weft
from weft.nn import functional as F

X = weft.tensor(np.random.default_rng(3).standard_normal((2, 3, 4)))


@pytest.mark.parametrize("name", ["dropout", "feature_dropout", "alpha_dropout", "feature_alpha_dropout"])
def test_dropouts(name):
    drop, drop_ = getattr(weft, name), getattr(weft, f"{name}_")
    assert drop(X, 0.5, False) is X
    y = X.clone()
    assert drop_(y, 0.5, True) is y
    assert not weft.equal(y, X)
    assert drop(X, 0.5, True).shape == X.shape
    with pytest.raises(RuntimeError, match=r"^dropout probability has to be between 0 and 1, but got 2$"):
        drop(X, 2, True)


def test_feature_dropout_takes_whole_channels():
    kept = weft.feature_dropout(weft.ones(4, 8, 5), 0.5, True)
    assert weft.equal(kept.amin(-1), kept.amax(-1))
    assert set(kept.reshape(-1).tolist()) == {0.0, 2.0}
    with pytest.raises(RuntimeError, match=r"^Feature dropout requires at least 2 dimensions in the input$"):
        weft.feature_dropout(weft.ones(3), 0.5, True)


def test_rrelu():
    assert weft.equal(weft.rrelu(X), F.rrelu(X))
    y = X.clone()
    assert weft.rrelu_(y, 0.5, 0.5, True) is y
    np.testing.assert_allclose(y.numpy(), np.where(X.numpy() > 0, X.numpy(), X.numpy() / 2))


def test_embeddings():
    weight, at = weft.arange(6.0).reshape(3, 2).requires_grad_(), weft.tensor([2, 0])
    weft.embedding(weight, at, 2).sum().backward()
    assert weight.grad.tolist() == [[1, 1], [0, 0], [0, 0]]
    assert weft.embedding(weight, at).tolist() == [[4, 5], [0, 1]]
    table = weft.full((3, 2), 3.0)
    assert weft.embedding_renorm_(table, at, 1.0, 1.0) is table
    np.testing.assert_allclose(table.numpy(), [[0.5, 0.5], [3, 3], [0.5, 0.5]], atol=1e-6)


def test_normalisations():
    mean, var = weft.zeros(3, dtype=weft.float64), weft.ones(3, dtype=weft.float64)
    assert weft.equal(weft.batch_norm(X, None, None, mean, var, False, 0.1, 0.0, True), X)
    found = weft.batch_norm(X, None, None, mean, var, True, 0.1, 1e-5, True)
    np.testing.assert_allclose(found.mean((0, 2)).numpy(), 0, atol=1e-12)
    np.testing.assert_allclose(mean.numpy(), 0.1 * X.numpy().mean((0, 2)))
    found = weft.instance_norm(X, None, None, None, None, True, 0.1, 1e-5, True)
    np.testing.assert_allclose(found.mean(2).numpy(), 0, atol=1e-12)


@pytest.mark.parametrize("dim", [0, 1, 2, -2])
def test_norms_of_slices(dim):
    others = tuple({0, 1, 2} - {dim % 3})
    wanted = np.linalg.norm(np.moveaxis(X.numpy(), dim, 0).reshape(X.shape[dim], -1), 3, axis=1)
    found = weft.norm_except_dim(X, 3, dim)
    assert all(found.shape[d] == 1 for d in others)
    np.testing.assert_allclose(found.reshape(-1).numpy(), wanted)


def test_norms_of_slices_of_a_vector_and_of_everything():
    assert weft.norm_except_dim(weft.tensor([3.0, -4.0])).tolist() == [3, 4]
    assert weft.norm_except_dim(weft.tensor([[3.0, -4.0]]), 2, -1).item() == 5
    with pytest.raises(
        IndexError, match=r"^Dimension out of range \(expected to be in range of \[-1, 0\], but got 5\)"
    ):
        weft.norm_except_dim(weft.ones(2), 2, 5)


def test_pools_give_places():
    values, places = weft.adaptive_max_pool1d(X, 2)
    assert weft.equal(values, X.gather(2, places))
    values, places = weft.max_pool1d_with_indices(X, 2)
    assert weft.equal(values, X.gather(2, places))


@pytest.mark.parametrize(("number", "name"), [(0, "none"), (1, "mean"), (2, "sum")])
def test_divergence(number, name):
    target = X.softmax(-1)
    assert weft.equal(weft.kl_div(X, target, number), F.kl_div(X, target, reduction=name))
    with pytest.raises(ValueError, match=r"^5 is not a valid value for reduction$"):
        weft.kl_div(X, target, 5)


def test_methods_as_functions():
    y = X.clone()
    assert weft.zero_(y) is y
    assert not y.any()
    assert weft.resize_as_(y, weft.ones(6, 4)).shape == (6, 4)
    leaf = weft.ones(2, requires_grad=True)
    assert not weft.detach(leaf).requires_grad
    assert weft.constant_pad_nd(weft.ones(1), [1, 2], 3).tolist() == [3, 1, 3, 3]


def test_names_of_types():
    assert weft.typename(weft.ones(1, dtype=weft.int64)) == "torch.LongTensor"
    assert (weft.typename(3), weft.typename([]), weft.typename(np.float32)) == ("int", "list", "numpy.float32")


def test_questions_with_one_answer():
    assert not any(ask(X) for ask in (weft.is_conj, weft.is_neg, weft.is_inference, weft.is_distributed))
    with pytest.raises(TypeError, match=r"^is_conj\(\): argument 'input' must be Tensor, not int$"):
        weft.is_conj(3)


@pytest.mark.parametrize(
    ("name", "error"),
    [("_check", RuntimeError), ("_check_index", IndexError), ("_check_value", ValueError), ("_check_type", TypeError)],
)
def test_conditions_are_asserted(name, error):
    check = getattr(weft, name)
    check(True)
    with pytest.raises(error, match=r"^Expected cond to be True, but got False\. \(Could this error message"):
        check(False)
    with pytest.raises(error, match=r"^too few$"):
        check(False, lambda: "too few")
    with pytest.raises(TypeError, match=r"^cond must be a bool, but got a Tensor\. For tensor conditions, use torch"):
        check(weft.tensor(True))


def test_conditions_of_tensors_are_asserted():
    weft._check_tensor_all(weft.tensor([True, True]))
    with pytest.raises(RuntimeError, match=r"^not all$"):
        weft._check_tensor_all(weft.tensor([True, False]), lambda: "not all")
    weft._assert_async(weft.tensor(2))
    with pytest.raises(RuntimeError, match=r"^Expected Tensor with single nonzero value, but got zero$"):
        weft._assert_async(weft.tensor(0.0))


_A, _B, _SIGNS = X[0], X[1], weft.tensor([1.0, -1.0]).double()[weft.tensor([0, 1, 0])]


@pytest.mark.parametrize(
    ("name", "args"),
    [
        ("binary_cross_entropy_with_logits", (_A, _B.sigmoid())),
        ("cosine_embedding_loss", (_A, _B, _SIGNS, 0.1)),
        ("hinge_embedding_loss", (_A, _B.sign(), 0.5)),
        ("kl_div", (_A.log_softmax(1), _B.softmax(1))),
        ("margin_ranking_loss", (_A, _B, _B.sign(), 0.1)),
        ("triplet_margin_loss", (_A, _B, _A * _B, 0.7)),
    ],
)
def test_losses_are_reduced_by_number_and_not_at_all_by_default(name, args):
    function, named = getattr(weft, name), getattr(F, name)
    assert weft.equal(function(*args), named(*args, reduction="none"))
    for number, reduction in enumerate(("none", "mean", "sum")):
        assert weft.equal(function(*args, reduction=number), named(*args, reduction=reduction))


def test_losses_with_other_options_before_the_reduction():
    counts = _B.abs().round()
    assert weft.poisson_nll_loss(_A, counts, True, False, 1e-8, 2) == F.poisson_nll_loss(_A, counts, reduction="sum")
    scores, targets = X.log_softmax(2), weft.tensor([[1], [2], [3]])
    lengths = (scores, targets, [2, 2, 2], [1, 1, 1])
    assert weft.equal(weft.ctc_loss(*lengths), F.ctc_loss(*lengths, reduction="none"))
    assert weft.ctc_loss(*lengths, 0, 1) == F.ctc_loss(*lengths)


def test_norms_take_the_flag_of_cudnn():
    assert weft.equal(weft.layer_norm(X, (4,), None, None, 1e-5, False), F.layer_norm(X, (4,)))
    assert weft.equal(weft.group_norm(X, 3, None, None, 1e-5, False), F.group_norm(X, 3))
