"""Factorisations: the same signs as XLA's, NaN where there is none."""

from __future__ import annotations

import jax
import numpy as np
import pytest
from jax import lax

from tests._lazy.interpreter.check import Case, check

TYPES = [np.float32, np.float64, np.complex64, np.complex128]


def matrices(dtype, *shape):
    rng = np.random.default_rng(0)
    x = rng.standard_normal(shape)
    return (x + 1j * rng.standard_normal(shape) if np.dtype(dtype).kind == "c" else x).astype(dtype)


def positive(dtype, *shape):
    x = matrices(dtype, *shape, shape[-1])
    return x @ x.swapaxes(-1, -2).conj() + np.eye(shape[-1], dtype=dtype)


def case(name, function, *arrays):
    return Case(name, function, arrays, 512, False)


@pytest.mark.parametrize("dtype", TYPES)
def test_factorisations(dtype):
    x, square, tall, wide = (matrices(dtype, *shape) for shape in ((2, 3, 4, 4), (4, 4), (2, 5, 3), (2, 3, 5)))
    spd = positive(dtype, 2, 4)

    def reflectors(x):
        transposed, taus = jax.numpy.linalg.qr(x, mode="raw")
        return transposed, taus, lax.linalg.householder_product(transposed.swapaxes(-1, -2), taus)

    check(
        [
            case("cholesky", lambda x: lax.linalg.cholesky(x), spd),
            case("cholesky, other triangle", lambda x: lax.linalg.cholesky(x, symmetrize_input=False), x),
            *[case(f"lu {a.shape}", lambda x: lax.linalg.lu(x), a) for a in (x, square, tall, wide)],
            *[
                case(f"qr {a.shape} {full}", lambda x, f=full: lax.linalg.qr(x, full_matrices=f), a)
                for a in (square, tall, wide)
                for full in (False, True)
            ],
            *[
                case(f"pivoted qr {a.shape}", lambda x: lax.linalg.qr(x, pivoting=True, full_matrices=False), a)
                for a in (square, tall, wide)
            ],
            case("reflectors", reflectors, tall),
            *[
                case(f"eigh {low}", lambda x, low=low: lax.linalg.eigh(x, lower=low, symmetrize_input=False), spd)
                for low in (False, True)
            ],
            case("eig", lambda x: lax.linalg.eig(x), x),
            case("eigenvalues", lambda x: jax.numpy.linalg.eigvals(x), x),
            *[
                case(f"svd {a.shape} {full}", lambda x, f=full: lax.linalg.svd(x, full_matrices=f), a)
                for a in (square, tall, wide)
                for full in (False, True)
            ],
            case("singular values", lambda x: lax.linalg.svd(x, compute_uv=False), tall),
            case("svd by QR", lambda x: lax.linalg.svd(x, algorithm=lax.linalg.SvdAlgorithm.QR), tall),
            case("schur", lambda x: lax.linalg.schur(x), x),
            case("schur form", lambda x: lax.linalg.schur(x, compute_schur_vectors=False), x),
            case("hessenberg", lambda x: lax.linalg.hessenberg(x), x),
            *[
                case(f"tridiagonal {low}", lambda x, low=low: lax.linalg.tridiagonal(x, lower=low), spd)
                for low in (False, True)
            ],
        ]
    )


@pytest.mark.parametrize("dtype", TYPES)
def test_solving(dtype):
    a, b = positive(dtype, 2, 4), matrices(dtype, 2, 4, 3)
    options = [
        {"left_side": left, "lower": lower, "transpose_a": trans, "conjugate_a": conj, "unit_diagonal": unit}
        for left in (False, True)
        for lower in (False, True)
        for trans in (False, True)
        for conj in (False, True)
        for unit in (False, True)
    ]
    diagonals = matrices(dtype, 3, 2, 4)
    diagonals[0, :, 0] = diagonals[2, :, -1] = 0
    check(
        [
            *[
                case(
                    str(o),
                    lambda a, b, o=o: lax.linalg.triangular_solve(a, b, **o),
                    a,
                    b if o["left_side"] else b.swapaxes(1, 2).copy(),
                )
                for o in options
            ],
            case("tridiagonal", lambda d, b: lax.linalg.tridiagonal_solve(*d, b), diagonals, b),
            case("solve", lambda a, b: jax.numpy.linalg.solve(a, b), a, b),
            case("derivative", lambda a, b: jax.vjp(jax.numpy.linalg.solve, a, b)[1](b), a, b),
        ]
    )


def test_what_cannot_be_factorised_is_nan():
    singular, broken = np.zeros((2, 3, 3), np.float32), np.full((2, 3, 3), np.nan, np.float32)
    mixed = np.stack([np.eye(3, dtype=np.float32), -np.eye(3, dtype=np.float32)])
    check(
        [
            *[case("cholesky", lambda x: lax.linalg.cholesky(x), x) for x in (singular, broken, mixed)],
            *[case("lu", lambda x: lax.linalg.lu(x)[0], x) for x in (singular, mixed)],
            case("solve", lambda a, b: lax.linalg.triangular_solve(a, b, left_side=True), singular, mixed),
            case("svd", lambda x: lax.linalg.svd(x, compute_uv=False), broken),
            case("inverse", lambda x: jax.numpy.linalg.inv(x), singular),
            case("no batch", lambda x: lax.linalg.cholesky(x), singular[:0]),
        ]
    )
