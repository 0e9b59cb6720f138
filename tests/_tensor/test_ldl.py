"""Factors of indefinite matrices, and extreme eigenvalues."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.linalg

import weft
from weft import linalg

RNG = np.random.default_rng(0)


def _symmetric(*shape: int, hermitian: bool = False) -> np.ndarray:
    a = RNG.standard_normal(shape)
    if hermitian:
        a = a + 1j * RNG.standard_normal(shape)
    a[..., range(0, shape[-1], 2), range(0, shape[-1], 2)] = 0  # so that blocks of two rows are needed
    return a + a.conj().swapaxes(-1, -2)


@pytest.mark.parametrize("hermitian", [False, True])
def test_factors_are_those_of_lapack(hermitian):
    a = _symmetric(2, 5, 5, hermitian=hermitian)
    factors = linalg.ldl_factor(weft.tensor(a), hermitian=hermitian)
    routine = scipy.linalg.lapack.zhetrf if hermitian else scipy.linalg.lapack.dsytrf
    for at in range(2):
        packed, pivots, info = routine(a[at], lower=1)
        assert info == 0
        np.testing.assert_allclose(factors.LD[at].numpy(), np.tril(packed), atol=1e-12)
        assert factors.pivots[at].tolist() == pivots.tolist()
    b = RNG.standard_normal((2, 5, 3)).astype(a.dtype)
    x = linalg.ldl_solve(*factors, weft.tensor(b), hermitian=hermitian)
    np.testing.assert_allclose(a @ x.numpy(), b, atol=1e-10)


def test_gradients_through_factors():
    a = weft.tensor(_symmetric(4, 4)).requires_grad_()
    b = weft.tensor(RNG.standard_normal((4, 2))).requires_grad_()
    linalg.ldl_solve(*linalg.ldl_factor(a), b).square().sum().backward()
    others = a.detach().requires_grad_(), b.detach().requires_grad_()
    linalg.solve(others[0].tril() + others[0].tril(-1).T, others[1]).square().sum().backward()
    for x, y in zip((a, b), others, strict=True):
        np.testing.assert_allclose(x.grad.numpy(), y.grad.numpy(), rtol=1e-8, atol=1e-10)


def test_singular_matrices():
    assert linalg.ldl_factor_ex(weft.zeros(2, 2)).info.item() == 1
    for call in (linalg.ldl_factor, lambda a: linalg.ldl_factor_ex(a, check_errors=True)):
        with pytest.raises(linalg.LinAlgError, match="the block of D at row 1 is zero"):
            weft.as_tensor(call(weft.zeros(2, 2))[0]).tolist()


@pytest.mark.parametrize(
    ("b", "pivots", "text"),
    [
        (weft.ones(2, 1), weft.ones(3, dtype=weft.int32), "Incompatible matrix sizes for torch.linalg.ldl_solve"),
        (weft.ones(3, 1), weft.ones(2, dtype=weft.int32), "torch.linalg.ldl_solve: Expected LD.shape"),
        (weft.ones(3, 1), weft.ones(3), "torch.linalg.ldl_solve: Expected pivots to be integers. Got Float"),
        (weft.ones(3, 1).double(), weft.ones(3, dtype=weft.int32), "Expected b and A to have the same dtype"),
    ],
)
def test_refused_systems(b, pivots, text):
    with pytest.raises(RuntimeError, match=f"^{text}"):
        linalg.ldl_solve(weft.eye(3), pivots, b)


@pytest.mark.slow
@pytest.mark.parametrize("generalised", [False, True])
@pytest.mark.parametrize("largest", [False, True])
def test_extreme_eigenvalues(largest, generalised):
    a, b = RNG.standard_normal((2, 12, 12))
    a, b = a @ a.T, b @ b.T + 12 * np.eye(12)
    other = weft.tensor(b) if generalised else None
    values, vectors = weft.lobpcg(weft.tensor(a), 2, other, largest=largest)
    every = scipy.linalg.eigh(a, b if generalised else None)[0]
    np.testing.assert_allclose(values.numpy(), every[::-1][:2] if largest else every[:2], rtol=1e-6)
    images = (b if generalised else np.eye(12)) @ vectors.numpy() * values.numpy()
    np.testing.assert_allclose(a @ vectors.numpy(), images, atol=1e-5)


def test_gradients_of_eigenvalues_are_projections():
    a = RNG.standard_normal((9, 9))
    a = weft.tensor(a + a.T).requires_grad_()
    values, vectors = weft.lobpcg(a, 2)
    values.sum().backward()
    x = vectors.detach().numpy()
    np.testing.assert_allclose(a.grad.numpy(), x @ x.T, atol=1e-6)


def test_refused_eigenproblems():
    with pytest.raises(ValueError, match=r"^LOBPCG algorithm is not applicable when the number of A rows \(=4\)"):
        weft.lobpcg(weft.eye(4), 2)
    with pytest.raises(AssertionError, match=r"^lobpcg: A must be square"):
        weft.lobpcg(weft.ones(6, 4))
    with pytest.raises(TypeError, match=r"^lobpcg: tracker must be None"):
        weft.lobpcg(weft.eye(4), tracker=print)
