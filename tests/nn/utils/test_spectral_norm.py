"""Spectral normalisation by a hook."""

from __future__ import annotations

import copy

import numpy as np
import pytest

import weft
from weft import nn
from weft.nn.utils.spectral_norm import remove_spectral_norm, spectral_norm

WEIGHT = np.random.default_rng(1).standard_normal((4, 3))


def normed(**options):
    layer = nn.Linear(3, 4, dtype=weft.float64)
    layer.weight.data = weft.tensor(WEIGHT)
    return spectral_norm(layer, **options)


def test_calls_in_training_divide_by_better_and_better_estimates():
    layer = normed(n_power_iterations=5)
    assert {name: tuple(t.shape) for name, t in layer.state_dict().items()} == {
        "bias": (4,),
        "weight_orig": (4, 3),
        "weight_u": (4,),
        "weight_v": (3,),
    }
    x = weft.ones(1, 3, dtype=weft.float64)
    for _ in range(8):
        layer(x)
        layer.weight_u.tolist()  # one program runs in each turn, where the whole loop would be a large one
    np.testing.assert_allclose(layer.weight.tolist(), WEIGHT / np.linalg.norm(WEIGHT, 2), rtol=1e-9)
    layer.eval()
    before = layer.weight_u.tolist()
    layer(x)
    assert layer.weight_u.tolist() == before


def test_removal_leaves_the_normalised_weight_and_no_hook():
    layer = normed()
    layer.eval()
    layer(weft.ones(1, 3, dtype=weft.float64))
    weight = layer.weight.tolist()
    remove_spectral_norm(layer)
    np.testing.assert_allclose(layer.weight.tolist(), weight, rtol=1e-12)
    assert [*layer._forward_pre_hooks, *layer._state_dict_hooks, *layer._load_state_dict_pre_hooks] == []
    layer.load_state_dict(nn.Linear(3, 4, dtype=weft.float64).state_dict())
    with pytest.raises(ValueError, match=r"^spectral_norm of 'weight' not found in Linear"):
        remove_spectral_norm(layer)


def test_copies_compute_their_own_weight():
    layer = normed()
    layer(weft.ones(1, 3, dtype=weft.float64))
    twin = copy.deepcopy(layer)
    estimate = twin.weight_u.tolist()
    layer.eval()(weft.ones(1, 3, dtype=weft.float64))
    expected = layer.weight.tolist()
    np.testing.assert_allclose(twin.weight.tolist(), expected)
    assert twin.weight_u.tolist() == estimate == layer.weight_u.tolist()
    twin.weight.sum().backward()
    assert (twin.weight_orig.grad is None, layer.weight_orig.grad is None) == (False, True)


def test_state_dicts_of_version_0_hold_the_weight_and_no_v():
    layer, other = normed().eval(), normed()
    layer(weft.ones(1, 3, dtype=weft.float64))
    state = layer.state_dict()
    assert state._metadata[""]["spectral_norm"] == {"weight.version": 1}
    del state["weight_v"], state._metadata[""]["spectral_norm"]
    with pytest.raises(RuntimeError, match=r'Missing key\(s\) in state_dict: "weight", "weight_v"'):
        other.load_state_dict(dict(state))
    state["weight"] = layer.weight.detach()
    other.load_state_dict(state)
    other.eval()
    other(weft.ones(1, 3, dtype=weft.float64))
    np.testing.assert_allclose(other.weight.tolist(), layer.weight.tolist(), rtol=1e-9)


REFUSED = [
    (lambda: spectral_norm(normed()), RuntimeError, "^Cannot register two spectral_norm hooks on the same parameter"),
    (lambda: normed(n_power_iterations=0), ValueError, "^Expected n_power_iterations to be positive, but got"),
    (lambda: spectral_norm(nn.LazyLinear(2)), ValueError, "^The module passed to `SpectralNorm` can't have"),
    (
        lambda: spectral_norm(nn.Linear(2, 2, bias=False), "bias"),
        ValueError,
        "^`SpectralNorm` cannot be applied as parameter `bias` is None$",
    ),
]


@pytest.mark.parametrize(("call", "kind", "text"), REFUSED)
def test_what_cannot_be_normalised_is_refused(call, kind, text):
    with pytest.raises(kind, match=text):
        call()


def test_outputs_of_transposed_convolutions_are_counted_by_dim_1():
    assert spectral_norm(nn.ConvTranspose1d(2, 3, 4)).weight_u.shape == (3,)
