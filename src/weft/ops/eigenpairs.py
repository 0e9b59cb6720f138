"""A few extreme eigenvalues of large matrices."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import jax
import jax.numpy as jnp
from jax import lax

from weft.ops._dims import Factors, NameOf, Sizes
from weft.ops._jax import jvp
from weft.ops._kinds import Array, Arrays, Scalar
from weft.ops._table import INTERNAL
from weft.ops.decomposition import Outs, factorises

Pairs = tuple[Array, Array]


def _ends(values: Array, vectors: Array, count: int, largest: bool) -> Pairs:
    """The first `count` eigenvalues, from the largest or from the smallest, and their vectors."""
    if largest:
        values, vectors = values[..., ::-1], vectors[..., ::-1]
    return values[..., :count], vectors[..., :count]


def _by_all(A: Array, count: int, largest: bool) -> Pairs:
    values, vectors = jnp.linalg.eigh(A)
    return _ends(values, vectors, count, largest)


def _step(A: Array, iK: Array | None, largest: bool, basis: Pairs) -> tuple[Pairs, Array, Array]:
    """One step from vectors and directions: the next ones, the eigenvalues, and the lengths of the residuals."""
    vectors, directions = basis
    size = vectors.shape[-1]
    images = A @ vectors
    values = jnp.sum(vectors * images, -2)
    residuals = images - vectors * values[..., None, :]
    steps = residuals if iK is None else iK @ residuals
    orthogonal = jnp.linalg.qr(jnp.concatenate([vectors, steps, directions], -1))[0]
    projected = orthogonal.mT @ (A @ orthogonal)
    _, mixed = _by_all((projected + projected.mT) / 2, size, largest)
    following = orthogonal @ mixed, orthogonal[..., size:] @ mixed[..., size:, :]
    return following, values, jnp.linalg.vector_norm(residuals, axis=-2)


def _iterated(A: Array, X: Array, iK: Array | None, tol: Array, count: int, largest: bool, niter: int) -> Pairs:
    """Knyazev's locally optimal block preconditioned conjugate gradients (2001); bases are made orthonormal by QR."""
    scale = jnp.linalg.matrix_norm(A)[..., None]

    def goes_on(state: tuple[Array, Pairs, Array]) -> Array:
        return (state[0] < niter) & (state[2] > tol)

    def advance(state: tuple[Array, Pairs, Array]) -> tuple[Array, Pairs, Array]:
        basis, values, lengths = _step(A, iK, largest, state[1])
        errors = lengths / (scale + jnp.abs(values))
        return state[0] + 1, basis, jnp.max(errors[..., :count])

    start = jnp.zeros((), jnp.int32), (jnp.linalg.qr(X)[0], jnp.zeros_like(X)), jnp.full((), jnp.inf, A.dtype)
    vectors = lax.while_loop(goes_on, advance, start)[1][0]
    values = jnp.sum(vectors * (A @ vectors), -2)
    return values[..., :count], vectors[..., :count]


@partial(jax.custom_jvp, nondiff_argnums=(4, 5, 6))
def _pairs(A: Array, X: Array, iK: Array | None, tol: Array, count: int, largest: bool, niter: int) -> Pairs:
    return _iterated(A, X, iK, tol, count, largest, niter)


@_pairs.defjvp
def _pairs_jvp(count: int, largest: bool, niter: int, primals: Arrays, tangents: Arrays) -> tuple[Pairs, Pairs]:
    """The derivative of all eigenvalues and vectors, whose signs are made equal; none by what the steps start from."""
    values, vectors = _pairs(*primals, count, largest, niter)
    exact = partial(_by_all, count=count, largest=largest)
    (_, others), (by_values, by_vectors) = jvp(exact, primals[:1], tangents[:1])
    signs = jnp.sign(jnp.sum(lax.stop_gradient(vectors * others), -2, keepdims=True))
    return (values, vectors), (by_values, by_vectors * signs)


def _pair_dims(shapes: Sequence[Sizes]) -> Factors:
    batch = tuple(range(len(shapes[0]) - 2))
    ins = tuple((*batch, *tail) for tail in (("row", "column"), ("row", "guess"), ("row", "column"))[: len(shapes)])
    return Factors(ins, ((*batch, "pair"), (*batch, NameOf("row"), "pair")), frozenset({"row", "column", "guess"}))


@factorises(dims=_pair_dims, outputs=("eigenvalues", "eigenvectors"), public=INTERNAL)
def extreme_pairs(A: Array, X: Array, iK: Array | None, tol: Scalar, count: int, largest: bool, niter: int) -> Outs:
    """The first `count` eigenvalues, from the largest or the smallest, and eigenvectors of symmetric matrices.

    The steps start from X, whose number of columns is that of the vectors that are computed together, and end with
    residuals of length `tol`, relative to the matrix, or after `niter`. `iK` approximates the inverse. The derivative
    is that of `eigh`.
    """

    return _pairs(A, X, iK, jnp.asarray(tol).astype(A.dtype), count, largest, niter)
