"""LU factors, eigenvalues, pseudo-inverses and triangular systems; leading dims are batches."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import jax
import jax.numpy as jnp
from jax import lax

from weft._base.dtype import from_numpy
from weft.errors import DomainError, DTypeError, LinAlgError, ShapeError
from weft.ops._dims import Factors, NameOf, Sizes, Static, broadcast_shapes
from weft.ops._findings import Failures, FirstOf, Flags
from weft.ops._kinds import Array, Operand
from weft.ops._shape_dims import square
from weft.ops._table import IN_LINALG, INTERNAL, NO_DERIVATIVE, Check, Derivative, Public, defop
from weft.ops._type_names import scalar_name
from weft.ops.decomposition import (
    MATRIX,
    NUMBER,
    ROWS,
    VECTOR,
    Outs,
    batches,
    check_floating,
    check_matrices,
    check_square,
    definiteness,
    diverges,
    factorises,
    lu_info,
    mirrored,
    non_finite,
    system,
)

# --- LU factors ---


def _lu_factors(A: Array) -> Outs:
    if A.ndim < 2:
        raise ShapeError(
            f"torch.lu_factor: Expected tensor with 2 or more dimensions. Got size: {list(A.shape)} instead"
        )
    check_floating("linalg.lu_factor", A)
    lu, pivots, _ = lax.linalg.lu(A)
    return lu, pivots + 1, lu_info(lu)


_packs = partial(factorises, public=INTERNAL)


@_packs(
    derivative=Derivative(name="LinalgLuFactorEx"),
    dims=batches(MATRIX, VECTOR, NUMBER),
    outputs=("LU", "pivots", "info"),
)
def lu_factors(A: Array) -> Outs:
    """L (without its unit diagonal) and U packed in one matrix, the row exchanges, and a flag for singular matrices.

    Pivot i, counted from 1, is the row that row i was exchanged with. The flag is the place of the first zero on U's
    diagonal, or 0.
    """
    return _lu_factors(A)


ZERO_DIVISOR = (
    "torch.linalg.lu_factor: {0}U[{1},{1}] is zero and using it on lu_solve would result in a division by zero. If you "
    "still want to perform the factorization, consider calling linalg.lu(A, pivot) or linalg.lu_factor_ex(A, pivot)"
)
"""The error's text for LU factors of a singular matrix."""


@_packs(
    derivative=Derivative(name="LinalgLuFactorEx"),
    dims=batches(MATRIX, VECTOR),
    outputs=("LU", "pivots"),
    check=Check(elements=lambda A: Failures(_lu_factors(A)[2]), text=ZERO_DIVISOR, error=LinAlgError),
)
def dividing_lu_factors(A: Array) -> Outs:
    """`lu_factors` without the flag; `LinAlgError` if there is a zero on U's diagonal."""
    return _lu_factors(A)[:2]


def _unpack_dims(shapes: Sequence[Sizes]) -> Factors:
    batch = tuple(range(len(shapes[0]) - 2))
    outs = ((*batch, NameOf("row"), "i"), (*batch, NameOf("row"), "i"), (*batch, "i", NameOf("column")))
    whole = frozenset({"row", "column", "pivot"})
    return Factors(((*batch, "row", "column"), (*batch, "pivot")), outs, whole)


def _bad_pivot(LU_data: Array, LU_pivots: Array, refusal: str = "") -> FirstOf | None:
    if not refusal:
        return None
    return FirstOf((Flags((LU_pivots < 1) | (LU_pivots > LU_data.shape[-2])),), (refusal,))


BAD_PIVOTS_TO_SOLVE = (
    "Pivots given to lu_solve must all be greater or equal to 1 and smaller or equal to LU.size(-2). Did you properly "
    "pass the result of lu_factor?"
)
BAD_PIVOTS_TO_UNPACK = (
    "pivots passed to lu_unpack must be between 1 and LU.size(-2) inclusive.Did you properly pass the result of "
    "lu_factor?"
)


@defop(
    derivative=Derivative(name="LinalgLu"),
    dims=_unpack_dims,
    outputs=("P", "L", "U"),
    public=INTERNAL,
    check=Check(elements=_bad_pivot, text="{}", error=DomainError),
)
def lu_parts(LU_data: Array, LU_pivots: Array, refusal: str = "") -> Outs:
    """The permutation, the lower and the upper triangular factor, from packed LU factors.

    `refusal` is the error's text for pivots that are not row numbers. Without it pivots are not checked.
    """
    del refusal
    rows, columns = LU_data.shape[-2:]
    size = min(rows, columns)
    order = lax.linalg.lu_pivots_to_permutation(jnp.clip(LU_pivots, 1, rows) - 1, rows)
    permutation = jax.nn.one_hot(order, rows, dtype=LU_data.dtype).mT
    lower = jnp.tril(LU_data[..., :size], -1) + jnp.eye(rows, size, dtype=LU_data.dtype)
    return permutation, lower, jnp.triu(LU_data[..., :size, :])


# --- systems ---


def _system_dims(shapes: Sequence[Sizes], static: Static) -> Factors:
    a, b = shapes
    return system(len(broadcast_shapes(a[:-2], b[:-2])), a, b, ("right",), static.get("left", True))


@factorises(dims=_system_dims, public=IN_LINALG)
def solve_triangular(A: Array, B: Array, *, upper: bool, left: bool = True, unitriangular: bool = False) -> Array:
    """The X with `A X = B`, or with `X A = B` if not `left`.

    Only one triangle of A is read; its diagonal is not read if `unitriangular`.
    """
    name = "linalg.solve_triangular"
    check_square(name, A)
    if B.ndim < 2:
        raise ShapeError(f"{name}: The input tensor B must have at least 2 dimensions.")
    check_floating(name, A)
    if A.dtype != B.dtype:
        raise DTypeError(
            f"{name}: Expected A and B to have the same dtype, but found A of type "
            f"{scalar_name(A)} and B of type {scalar_name(B)} instead"
        )
    if B.shape[-2 if left else -1] != A.shape[-1]:
        sides = "AX = B" if left else "XA = B"
        shapes = f"{A.shape[-2]}x{A.shape[-1]} and {B.shape[-2]}x{B.shape[-1]}"
        raise ShapeError(f"{name}: Incompatible shapes of A and B for the equation {sides} ({shapes})")
    batch = broadcast_shapes(A.shape[:-2], B.shape[:-2])
    a, b = (jnp.broadcast_to(x, (*batch, *x.shape[-2:])) for x in (A, B))
    return lax.linalg.triangular_solve(a, b, left_side=left, lower=not upper, unit_diagonal=unitriangular)


def _cholesky_system_dims(shapes: Sequence[Sizes]) -> Factors:
    """The dims of the input stay; those of the factor of a symmetric matrix have no part in them."""
    b, a = shapes
    ndim = len(broadcast_shapes(a[:-2], b[:-2]))
    lead = [tuple(range(ndim - len(s) + 2, ndim)) for s in shapes]
    ins = (*lead[0], "column", "right"), (*lead[1], "row", "factor")
    return Factors(ins, ((*range(ndim), NameOf("column"), "right"),), frozenset({"row", "column", "factor"}))


def _from_factor(input: Array, L: Array, upper: bool) -> Array:
    """The X with `A X = input`, from a triangular factor of A."""
    batch = broadcast_shapes(L.shape[:-2], input.shape[:-2])
    a, b = (jnp.broadcast_to(x, (*batch, *x.shape[-2:])) for x in (L, input))
    for adjoint in (upper, not upper):
        b = lax.linalg.triangular_solve(a, b, left_side=True, lower=not upper, transpose_a=adjoint, conjugate_a=adjoint)
    return b


@factorises(dims=_cholesky_system_dims)
def cholesky_solve(input: Array, L: Array, upper: bool = False) -> Array:
    """The X with `A X = input`, from the Cholesky factor of A."""
    for name, matrix in (("b", input), ("u", L)):
        if matrix.ndim < 2:
            raise ShapeError(f"{name} should have at least 2 dimensions, but has {matrix.ndim} dimensions instead")
    if L.shape[-1] != input.shape[-2]:
        raise ShapeError(
            f"Incompatible matrix sizes for cholesky_solve: each A matrix is {L.shape[-1]} by {L.shape[-1]} but each b "
            f"matrix is {input.shape[-2]} by {input.shape[-1]}"
        )
    check_floating("cholesky_solve", L)
    return _from_factor(input, L, upper)


_NO_FACTOR = (
    "cholesky_inverse: {0}The diagonal element {1} is zero, the inversion could not be completed because the input "
    "matrix is singular."
)


def _has_zero_diagonal(input: Array) -> Failures:
    return Failures(lu_info(input))


@factorises(dims=square, check=Check(elements=_has_zero_diagonal, text=_NO_FACTOR, error=LinAlgError))
def cholesky_inverse(input: Array, upper: bool = False) -> Array:
    """The inverse of a matrix from its Cholesky factor."""
    check_matrices("cholesky_inverse", input)
    return _from_factor(jnp.broadcast_to(jnp.eye(input.shape[-1], dtype=input.dtype), input.shape), input, upper)


@factorises(dims=batches(NUMBER), public=INTERNAL, derivative=NO_DERIVATIVE)
def cholesky_info(A: Array) -> Array:
    """The size of the first leading block that is not positive definite, or 0."""
    check_matrices("linalg.cholesky_ex", A)
    return definiteness(A)


# --- eigenvalues and singular values ---


def _check_eigen(name: str, A: Array) -> None:
    if A.ndim >= 2 and A.shape[-1] == A.shape[-2] and not from_numpy(A.dtype).is_differentiable:
        raise DTypeError(f"Unknown Complex ScalarType for {scalar_name(A)}")
    check_matrices(name, A)


@jax.custom_vjp
def _eigen(A: Array) -> Outs:
    return tuple(jnp.linalg.eig(A))


def _eigen_pull(residuals: tuple[Outs, bool], g: Outs) -> tuple[Array]:
    """The gradient by implicit differentiation (Giles, 2008); it does not depend on the eigenvectors' lengths."""
    (values, vectors), is_complex = residuals
    g_values, g_vectors = g[0].conj(), g[1].conj()
    adjoint, unit = vectors.mT.conj(), jnp.eye(vectors.shape[-1], dtype=values.dtype)
    inner = adjoint @ g_vectors
    along = jnp.diagonal(inner, axis1=-2, axis2=-1).real[..., None, :]
    apart = (values[..., None, :] - values[..., :, None]).conj() + unit
    core = (1 - unit) * (inner - adjoint @ vectors * along) / apart + unit * g_values[..., None, :]
    gradient = jnp.linalg.solve(adjoint, core @ adjoint)
    return (gradient.conj() if is_complex else gradient.real,)


def _eigen_known(A: Array) -> tuple[Outs, tuple[Outs, bool]]:
    out = _eigen(A)
    return out, (out, jnp.iscomplexobj(A))


_eigen.defvjp(_eigen_known, _eigen_pull)


_finite = partial(
    factorises,
    check=Check(
        elements=non_finite, text="torch.linalg.eig: input tensor should not contain infs or NaNs.", error=LinAlgError
    ),
    public=IN_LINALG,
)


@_finite(dims=batches(VECTOR, ROWS), outputs=("eigenvalues", "eigenvectors"), public=Public(out="", module="linalg"))
def eig(A: Array) -> Outs:
    """Eigenvalues and eigenvectors of any square matrix; complex, in no particular order."""
    _check_eigen("linalg.eig", A)
    return _eigen(A)


@_finite(derivative=Derivative(name="LinalgEig"), dims=batches(VECTOR), public=Public(out="", module="linalg"))
def eigvals(A: Array) -> Array:
    """Eigenvalues of any square matrix; complex, in no particular order."""
    _check_eigen("linalg.eigvals", A)
    return jnp.linalg.eigvals(A)


@diverges(derivative=Derivative(name="LinalgSvd"), dims=batches(VECTOR), public=IN_LINALG)
def svdvals(A: Array) -> Array:
    """Singular values in descending order."""
    check_floating("linalg.svd", A)
    return jnp.linalg.svd(A, compute_uv=False)


# --- pseudo-inverses ---


@jax.custom_vjp
def _pinv(A: Array, atol: Array | None, rtol: Array | None) -> Array:
    u, s, vh = jnp.linalg.svd(A, full_matrices=False)
    kept = s > tolerance(s, A.shape, atol, rtol)[..., None]
    inverted = jnp.where(kept, 1 / jnp.where(kept, s, 1), 0)
    return (vh.mT.conj() * inverted[..., None, :].astype(A.dtype)) @ u.mT.conj()


def _pinv_known(A: Array, atol: Array | None, rtol: Array | None) -> tuple[Array, Outs]:
    out = _pinv(A, atol, rtol)
    return out, (A, out)


def _pinv_pull(residuals: Outs, g: Array) -> tuple[Array, None, None]:
    """The derivative at constant rank (Golub and Pereyra, 1973)."""
    A, p = residuals
    p_h, g_h = p.mT.conj(), g.mT
    k = g_h @ p
    gradient = (p_h @ p) @ (g_h - k @ A) + (k - A @ (p @ k)) @ p_h - (p @ k).mT.conj()
    return gradient.conj(), None, None


_pinv.defvjp(_pinv_known, _pinv_pull)


def _pinv_dims(shapes: Sequence[Sizes]) -> Factors:
    batch = tuple(range(len(shapes[0]) - 2))
    tolerances = tuple(batch[len(batch) - len(s) :] for s in shapes[1:])
    return Factors(((*batch, "row", "column"), *tolerances), ((*batch, "column", "row"),), frozenset({"row", "column"}))


@diverges(derivative=Derivative(name="LinalgPinv"), dims=_pinv_dims, public=INTERNAL)
def pseudo_inverse(A: Array, atol: Operand | None, rtol: Operand | None, hermitian: bool) -> Array:
    """The Moore-Penrose inverse; singular values up to the larger tolerance count as zero."""
    if A.ndim < 2:
        raise ShapeError(
            f"linalg.pinv({scalar_name(A)}{{{list(A.shape)}}}): expected a tensor with 2 or more dimensions of float, "
            "double, cfloat or cdouble types"
        )
    check_floating("linalg.pinv", A)
    if hermitian:
        check_matrices("linalg.eigh", A)
    if not A.size:
        return jnp.zeros((*A.shape[:-2], A.shape[-1], A.shape[-2]), A.dtype)
    return _pinv(mirrored(A, lower=True) if hermitian else A, atol, rtol)


def tolerance(s: Array, shape: Sizes, atol: Array | None, rtol: Array | None) -> Array:
    """The threshold below which singular values, sorted with the largest first, count as zero."""
    if rtol is None:
        default = jnp.asarray(max(shape[-2:]) * jnp.finfo(s.dtype).eps, s.dtype)
        rtol = default if atol is None else jnp.where(atol > 0, 0, default)
    largest = rtol * s[..., 0]
    return largest if atol is None else jnp.maximum(atol, largest)


@diverges(
    dims=lambda shapes, static: Factors(
        _pinv_dims(shapes).ins, (tuple(range(len(shapes[0]) - 2)),), frozenset({"row", "column"})
    ),
    public=INTERNAL,
    derivative=NO_DERIVATIVE,
)
def rank(A: Array, atol: Operand | None, rtol: Operand | None, hermitian: bool) -> Array:
    """The number of singular values above the larger tolerance; for Hermitian matrices, of absolute eigenvalues."""
    name = "torch.linalg.matrix_rank"
    if A.ndim < 2:
        raise ShapeError(f"{name}: The input tensor input must have at least 2 dimensions.")
    if hermitian:
        check_matrices("linalg.eigh", A)
    check_floating("linalg.svd", A)
    s = jnp.linalg.svd(mirrored(A, lower=True) if hermitian else A, compute_uv=False)
    if not s.shape[-1]:
        return jnp.zeros(A.shape[:-2], jnp.int64)
    return jnp.sum(s > tolerance(s, A.shape, atol, rtol)[..., None], -1)
