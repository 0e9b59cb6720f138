"""Reflectors and the matrix exponential, against NumPy."""

from __future__ import annotations

import numpy as np
import pytest

import weft

RNG = np.random.default_rng(5)


def test_reflectors_give_the_decomposition_back():
    a = RNG.standard_normal((2, 4, 3)) + 1j * RNG.standard_normal((2, 4, 3))
    found, tau = weft.geqrf(weft.tensor(a))
    q = weft.linalg.householder_product(found, tau)
    np.testing.assert_allclose((q.mH @ q).tolist(), np.broadcast_to(np.eye(3), (2, 3, 3)), atol=1e-12)
    np.testing.assert_allclose((q @ found[:, :3].triu()).tolist(), a, atol=1e-12)


def test_the_product_is_that_of_the_reflectors():
    v, tau = np.tril(RNG.standard_normal((4, 3)), -1) + np.eye(4, 3), np.array([0.5, 0.0, 1.5])
    wanted = np.eye(4)
    for at in range(3):
        wanted = wanted @ (np.eye(4) - tau[at] * np.outer(v[:, at], v[:, at]))
    found = weft.linalg.householder_product(weft.tensor(v), weft.tensor(tau))
    np.testing.assert_allclose(found.tolist(), wanted[:, :3], atol=1e-12)


@pytest.mark.parametrize(
    ("shape", "taus", "text"),
    [
        ((2, 3), 2, r"input\.shape\[-2\] must be greater than or equal to input\.shape\[-1\]$"),
        ((3, 2), 3, r"input\.shape\[-1\] must be greater than or equal to tau\.shape\[-1\]$"),
    ],
)
def test_too_many_reflectors_are_refused(shape, taus, text):
    with pytest.raises(RuntimeError, match=rf"^torch\.linalg\.householder_product: {text}"):
        weft.linalg.householder_product(weft.ones(shape), weft.ones(taus))


def test_the_matrix_exponential_and_its_gradient():
    values, vectors = np.array([0.1, -0.7, 2.0]), np.linalg.qr(RNG.standard_normal((3, 3)))[0]
    a = weft.tensor(vectors @ np.diag(values) @ vectors.T, requires_grad=True)
    wanted = vectors @ np.diag(np.exp(values)) @ vectors.T
    found = weft.matrix_exp(a)
    np.testing.assert_allclose(found.tolist(), wanted, atol=1e-12)
    found.trace().backward()
    np.testing.assert_allclose(a.grad.tolist(), wanted.T, atol=1e-12)
    with pytest.raises(
        RuntimeError, match=r"^linalg\.matrix_exp: A must be batches of square matrices, but they are 2 by"
    ):
        weft.matrix_exp(weft.ones(2, 3))
