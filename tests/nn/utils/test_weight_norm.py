"""Weight normalisation by a hook."""

from __future__ import annotations

import copy

import numpy as np
import pytest

import weft
from weft import nn
from weft.nn.utils.weight_norm import remove_weight_norm, weight_norm

DEPRECATED = (
    r"^`torch\.nn\.utils\.weight_norm` is deprecated in favor of `torch\.nn\.utils\.parametrizations\.weight_norm`"
)


def normed(dim: int | None = 0):
    layer = nn.Linear(2, 2)
    layer.weight.data = weft.tensor([[3.0, 4.0], [6.0, 8.0]])
    with pytest.warns(FutureWarning, match=DEPRECATED):
        return weight_norm(layer, dim=dim)


def test_lengths_and_directions_are_parameters():
    layer = normed()
    assert list(layer.state_dict()) == ["bias", "weight_g", "weight_v"]
    assert layer.weight_g.tolist() == [[5], [10]]
    layer.weight_g.data = weft.tensor([[10.0], [5.0]])
    layer.bias.data.zero_()
    assert layer(weft.ones(2)).tolist() == [14, 7]
    assert layer.weight.tolist() == [[6, 8], [3, 4]]
    remove_weight_norm(layer)
    assert layer.weight.tolist() == [[6, 8], [3, 4]]
    assert list(layer.state_dict()) == ["bias", "weight"]
    with pytest.raises(ValueError, match=r"^weight_norm of 'weight' not found in Linear"):
        remove_weight_norm(layer)


def test_there_may_be_one_length_for_all():
    assert normed(None).weight_g.shape == ()
    assert normed(1).weight_g.shape == (1, 2)


def test_copies_compute_their_own_weight():
    layer = normed()
    twin = copy.deepcopy(layer)
    assert twin.weight.tolist() == layer.weight.tolist()
    twin.weight.sum().backward()
    assert layer.weight_g.grad is None
    np.testing.assert_allclose(twin.weight_g.grad.tolist(), [[1.4], [1.4]], rtol=1e-6)


def test_what_cannot_be_split_is_refused():
    layer = normed()
    with (
        pytest.warns(FutureWarning, match=DEPRECATED),
        pytest.raises(RuntimeError, match=r"^Cannot register two weight_norm hooks on the same parameter weight$"),
    ):
        weight_norm(layer)
    with (
        pytest.warns(FutureWarning, match=DEPRECATED),
        pytest.raises(ValueError, match=r"^The module passed to `WeightNorm` can't have uninitialized parameters\."),
    ):
        weight_norm(nn.LazyLinear(2))
