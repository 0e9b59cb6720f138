"""Orthogonal matrices, weight normalisation and spectral normalisation, against NumPy."""

from __future__ import annotations

import numpy as np
import pytest

import weft
from weft import nn
from weft.nn.utils import parametrizations as ready
from weft.nn.utils.parametrize import remove_parametrizations

RNG = np.random.default_rng(3)


def layer_of(weight):
    layer = nn.Linear(weight.shape[1], weight.shape[0], bias=False, dtype=weft.float64)
    layer.weight.data = weft.tensor(weight)
    return layer


def gram(q):
    """The product with the adjoint that is the identity if `q` is orthogonal."""
    return q.mH @ q if q.shape[-2] >= q.shape[-1] else q @ q.mH


@pytest.mark.parametrize(
    ("chosen", "shape", "trivial"),
    [
        ("matrix_exp", (4, 2), True),
        ("matrix_exp", (3, 3), False),
        ("cayley", (2, 4), True),
        ("cayley", (4, 2), False),
        ("householder", (4, 2), True),
        ("householder", (2, 4), False),
        ("householder", (3, 3), False),
    ],
)
def test_matrices_stay_orthogonal(chosen, shape, trivial):
    layer = ready.orthogonal(layer_of(RNG.standard_normal(shape)), orthogonal_map=chosen, use_trivialization=trivial)
    layer.parametrizations.weight.original.data = weft.tensor(RNG.standard_normal(shape))
    if chosen == "householder":  # a truncated diagonal of zeros would be no sign
        layer.parametrizations.weight.original.data.diagonal().fill_(-1)
    np.testing.assert_allclose(gram(layer.weight).tolist(), np.eye(min(shape)), atol=1e-12)
    assert ("parametrizations.weight.0.base" in layer.state_dict()) is trivial


@pytest.mark.parametrize(
    ("shape", "chosen", "trivial"),
    [
        ((3, 3), "cayley", True),
        ((4, 2), None, True),
        ((2, 4), "cayley", True),
        ((2, 4), "householder", False),
    ],
)
def test_an_orthogonal_matrix_can_be_assigned(shape, chosen, trivial):
    layer = ready.orthogonal(layer_of(RNG.standard_normal(shape)), orthogonal_map=chosen, use_trivialization=trivial)
    q, _ = np.linalg.qr(RNG.standard_normal(sorted(shape, reverse=True)))
    q = q if shape[0] >= shape[1] else q.T
    layer.weight = weft.tensor(q)
    np.testing.assert_allclose(layer.weight.tolist(), q, atol=1e-12)


def test_unitary_matrices():
    weight = RNG.standard_normal((3, 3)) + 1j * RNG.standard_normal((3, 3))
    layer = nn.Linear(3, 3, bias=False, dtype=weft.complex128)
    layer.weight.data = weft.tensor(weight)
    ready.orthogonal(layer, orthogonal_map="cayley")
    np.testing.assert_allclose(gram(layer.weight).tolist(), np.eye(3), atol=1e-12)
    with pytest.raises(ValueError, match=r"^The householder parametrization does not support complex tensors\.$"):
        ready.orthogonal(nn.Linear(3, 3, dtype=weft.complex128), orthogonal_map="householder")


def test_the_householder_map_has_a_gradient():
    layer = ready.orthogonal(layer_of(np.eye(3, 2)), use_trivialization=False)
    x = RNG.standard_normal((3, 2))
    np.fill_diagonal(x, 1.5)  # the map takes its sign
    assert weft.autograd.gradcheck(layer.parametrizations.weight[0], (weft.tensor(x, requires_grad=True),))


REFUSED = [
    (
        lambda: ready.orthogonal(nn.Linear(2, 2), orthogonal_map="x"),
        '^orthogonal_map has to be one of "matrix_exp", "cay',
    ),
    (
        lambda: ready.orthogonal(nn.Linear(2, 2), "bias"),
        "^Expected a matrix or batch of matrices. Got a tensor of 1 dim",
    ),
    (lambda: ready.orthogonal(nn.Linear(2, 2), "x"), "has no parameter or buffer with name 'x'$"),
    (lambda: ready.spectral_norm(nn.Linear(2, 2), "x"), "has no parameter or buffer with name 'x'$"),
    (
        lambda: ready.spectral_norm(nn.Linear(2, 2), n_power_iterations=0),
        "^Expected n_power_iterations to be positive, but got n_power_iterations=0$",
    ),
    (
        lambda: setattr(ready.orthogonal(nn.Linear(2, 2)), "weight", weft.ones(3, 2)),
        r"^Expected a matrix or batch of matrices of shape torch.Size\(\[2, 2\]\). Got a tensor of shape torch.Size",
    ),
]


@pytest.mark.parametrize(("call", "text"), REFUSED)
def test_bad_arguments_are_refused(call, text):
    with pytest.raises(ValueError, match=text):
        call()


def test_without_a_base_two_maps_cannot_be_assigned_to():
    layer = ready.orthogonal(nn.Linear(2, 2), use_trivialization=False)
    with pytest.raises(
        NotImplementedError, match=r"^It is not possible to assign to the matrix exponential or the Cayley"
    ):
        layer.weight = weft.eye(2)


@pytest.mark.parametrize(("dim", "axes"), [(0, (1,)), (1, (0,)), (None, (0, 1))])
def test_weight_norm_splits_lengths_from_directions(dim, axes):
    weight = RNG.standard_normal((3, 2))
    layer = ready.weight_norm(layer_of(weight), dim=dim)
    lengths = layer.parametrizations.weight.original0
    np.testing.assert_allclose(lengths.tolist(), np.sqrt((weight**2).sum(axes, keepdims=dim is not None)))
    lengths.data = lengths.data * 2
    np.testing.assert_allclose(layer.weight.tolist(), weight * 2)
    remove_parametrizations(layer, "weight")
    np.testing.assert_allclose(layer.weight.tolist(), weight * 2)


def test_weight_norm_takes_the_keys_of_its_predecessor():
    layer = ready.weight_norm(nn.Linear(2, 3))
    state = {"bias": weft.zeros(3), "weight_g": weft.full((3, 1), 5.0), "weight_v": weft.tensor([[3.0, 4.0]] * 3)}
    layer.load_state_dict(state)
    np.testing.assert_allclose(layer.weight.tolist(), [[3, 4]] * 3, rtol=1e-6)


def test_spectral_norm_divides_by_the_largest_singular_value():
    u, _, v = np.linalg.svd(RNG.standard_normal((4, 3)), full_matrices=False)
    weight = u @ np.diag([3, 1, 0.5]) @ v  # the power method gains a factor of 9 in each step
    layer = ready.spectral_norm(layer_of(weight))
    for _ in range(30):
        layer.weight  # each read improves the estimate
    layer.eval()
    np.testing.assert_allclose(layer.weight.tolist(), weight / np.linalg.norm(weight, 2), rtol=1e-9)
    assert {name: tuple(t.shape) for name, t in layer.state_dict().items()} == {
        "parametrizations.weight.original": (4, 3),
        "parametrizations.weight.0._u": (4,),
        "parametrizations.weight.0._v": (3,),
    }


def test_the_power_method_rests_in_evaluation():
    layer = ready.spectral_norm(layer_of(RNG.standard_normal((4, 3))), n_power_iterations=2)
    state = layer.parametrizations.weight[0]
    state._u.data = weft.tensor([1.0, 2.0, 3.0, 4.0], dtype=weft.float64)
    layer.eval()
    layer.weight
    assert state._u.tolist() == [1, 2, 3, 4]
    layer.train()
    layer.weight
    assert state._u.tolist() != [1, 2, 3, 4]


def test_spectral_norm_of_vectors_and_of_transposed_convolutions():
    layer = nn.Linear(1, 2)
    layer.bias.data = weft.tensor([3.0, 4.0])
    np.testing.assert_allclose(ready.spectral_norm(layer, "bias").bias.tolist(), [0.6, 0.8], rtol=1e-6)
    layer = ready.spectral_norm(nn.ConvTranspose1d(2, 3, 4))
    assert layer.parametrizations.weight[0]._u.shape == (3,)
    with pytest.raises(
        IndexError, match=r"^Dimension out of range \(expected to be in range of \[-2, 1\] but got 4\)$"
    ):
        ready.spectral_norm(nn.Linear(2, 2), dim=4)
