"""Factorisations of matrices, determinants, inverses and solutions of systems; leading dims are batches."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

import jax
import jax.numpy as jnp

from weft._base.dtype import FLOAT
from weft._base.types import Arg
from weft.errors import DTypeError, LinAlgError, OutOfRangeError, ShapeError, UnsupportedDTypeError
from weft.ops._autocast import CPU_FLOAT32
from weft.ops._dims import Factors, NameOf, OfShapes, PartOf, Sizes, Static
from weft.ops._findings import Failures
from weft.ops._kinds import Array
from weft.ops._reduce import wide
from weft.ops._rows import category, documented, without_slope
from weft.ops._shape_dims import square
from weft.ops._table import IN_LINALG, INTERNAL, NO_DERIVATIVE, Check, Derivative, OpDef, Public, Types, defop
from weft.ops._type_names import scalar_name

factorises = partial(defop, types=Types(autocast=CPU_FLOAT32))
Outs = tuple[Array, ...]


def check_batch(name: str, a: Array) -> None:
    if a.ndim < 2:
        raise ShapeError(f"{name}: The input tensor A must have at least 2 dimensions.")


def check_square(name: str, a: Array) -> None:
    check_batch(name, a)
    if a.shape[-1] != a.shape[-2]:
        shape = f"{a.shape[-2]} by {a.shape[-1]}"
        raise ShapeError(f"{name}: A must be batches of square matrices, but they are {shape} matrices")


def check_floating(name: str, a: Array) -> None:
    check_batch(name, a)
    if category(a) < FLOAT:
        raise DTypeError(f"{name}: Expected a floating point or complex tensor as input. Got {scalar_name(a)}")
    if a.dtype.itemsize == 2:
        raise UnsupportedDTypeError(f"{name}: Low precision dtypes not supported. Got {scalar_name(a)}")


def check_matrices(name: str, a: Array) -> None:
    check_square(name, a)
    check_floating(name, a)


def batches(*tails: tuple[str, ...]) -> OfShapes:
    """The rule for batches of matrices: batch dims stay, matrices are whole; `tails` are the outputs' last dims.

    Those that are called "row" or "column" have the name of that dim of the matrix.
    """

    def rule(shapes: Sequence[Sizes]) -> Factors:
        batch = tuple(range(len(shapes[0]) - 2))
        outs = tuple((*batch, *(NameOf(x) if x in ("row", "column") else x for x in tail)) for tail in tails)
        return Factors(((*batch, "row", "column"),), outs, frozenset({"row", "column"}))

    return rule


NUMBER, VECTOR, ROWS, COLUMNS = (), ("i",), ("row", "i"), ("i", "column")
MATRIX, INVERSE = ("row", "column"), ("column", "row")


# --- determinants ---


def _det_row(
    name: str,
    label: str,
    body: Callable[[Array], Array | Outs],
    doc: str,
    outputs: tuple[str, ...] = (),
    **records: Arg,
) -> OpDef:
    """A row over square matrices whose result is a number for each matrix."""

    def checked(input: Array) -> Array | Outs:
        check_matrices(label, input)
        return body(input)

    dims = batches(*[NUMBER] * max(1, len(outputs)))
    return factorises(name, dims=dims, outputs=outputs, **records)(documented(checked, name, doc))


def _det(a: Array) -> Array:
    if a.shape[-1] == 0:  # the empty product, whose derivative jax cannot trace
        return jnp.ones(a.shape[:-2], a.dtype)
    return jnp.linalg.det(a)


def _logdet(a: Array) -> Array:
    sign, log = jnp.linalg.slogdet(a)
    return log + jnp.log(sign)


def _slogdet(a: Array) -> Outs:
    return tuple(jnp.linalg.slogdet(a))


_IN_LINALG = Public(also=("linalg",))
det = _det_row(
    "det",
    "linalg.det",
    _det,
    "Determinant.",
    derivative=Derivative(saves=True, name="LinalgDet"),
    public=_IN_LINALG,
)
logdet = _det_row("logdet", "logdet", _logdet, "Logarithm of the determinant; NaN where that is negative.")
slogdet = _det_row(
    "slogdet",
    "linalg.slogdet",
    _slogdet,
    "Sign of the determinant and logarithm of its size.",
    outputs=("sign", "logabsdet"),
    derivative=Derivative(name="LinalgSlogdet"),
    public=_IN_LINALG,
)


# --- inverses and solutions ---


def lu_info(lu: Array) -> Array:
    """For packed LU factors, the place of the first zero on U's diagonal, or 0."""
    zero = jnp.diagonal(lu, axis1=-2, axis2=-1) == 0
    if not zero.shape[-1]:
        return jnp.zeros(zero.shape[:-1], jnp.int32)
    return jnp.where(zero.any(-1), zero.argmax(-1) + 1, 0).astype(jnp.int32)


def _singular(a: Array) -> Failures:
    return Failures(lu_info(jax.lax.linalg.lu(a)[0]))


SINGULAR = (
    "linalg.inv: {0}The diagonal element {1} is zero, the inversion could not be completed because the input matrix is "
    "singular."
)
"""The error's text for matrices without an inverse."""

_IS_SINGULAR = Check(text=SINGULAR, error=LinAlgError)


def _inverse(a: Array) -> Array:
    check_matrices("linalg.inv", a)
    return jnp.linalg.inv(a)


def _input_is_singular(input: Array) -> Failures:
    return _singular(input)


@factorises(
    dims=batches(INVERSE),
    derivative=Derivative(name="LinalgInvEx"),
    check=replace(_IS_SINGULAR, elements=_input_is_singular),
)
def inverse(input: Array) -> Array:
    """Inverse; `LinAlgError` where a matrix is singular."""
    return _inverse(input)


@factorises(
    derivative=Derivative(name="LinalgInvEx"),
    dims=batches(INVERSE),
    public=IN_LINALG,
    check=replace(_IS_SINGULAR, elements=lambda A: _singular(A)),
)
def inv(A: Array) -> Array:
    """Inverse; `LinAlgError` where a matrix is singular."""
    return _inverse(A)


@factorises(derivative=Derivative(name="LinalgInvEx"), dims=batches(INVERSE), public=INTERNAL)
def inverse_or_nan(A: Array) -> Array:
    """Inverse; infinite or NaN where a matrix is singular."""
    return _inverse(A)


def _power_is_singular(input: Array, n: int) -> Failures | None:
    return _singular(input) if n < 0 else None


@factorises(
    dims=square, check=replace(_IS_SINGULAR, elements=_power_is_singular), public=Public(out="", also=("linalg",))
)
def matrix_power(input: Array, n: int) -> Array:
    """Product of `n` copies of a square matrix, or of its inverse where `n` is negative."""
    if n < 0:
        return jnp.linalg.matrix_power(_inverse(input), -n)
    check_square("linalg.matrix_power", input)
    return jnp.linalg.matrix_power(input, n)


def _matrix_exp_vjp(g: Array, input: Array) -> Array:
    """The gradient as a block of the exponential of a block matrix (Van Loan, 1978)."""
    a = wide(input).mT.conj()
    blocks = jnp.block([[a, wide(g)], [jnp.zeros_like(a), a]])
    return jax.scipy.linalg.expm(blocks)[..., : a.shape[-1], a.shape[-1] :].astype(input.dtype)


@factorises(
    derivative=Derivative(vjp=_matrix_exp_vjp, name="LinalgMatrixExp"), dims=square, public=Public(also=("linalg",))
)
def matrix_exp(input: Array) -> Array:
    """The matrix exponential: the sum of `input^n / n!` over all n."""
    check_matrices("linalg.matrix_exp", wide(input))
    return jax.scipy.linalg.expm(wide(input)).astype(input.dtype)


def is_vector(A: Sizes, B: Sizes) -> bool:
    """Whether the right side holds vectors rather than matrices."""
    return len(B) == 1 or A[:-1] == B


def system(ndim: int, a: Sizes, b: Sizes, rest: tuple[str, ...], left: bool) -> Factors:
    """The rule for systems `A X = B`, or `X A = B`, with `ndim` batch dims; `rest` is the letter of B's other dim.

    The result has the names of B, but for the dim over which the product is summed, which has that of A's.
    """
    summed, result = (PartOf("row"), NameOf("column")) if left else (PartOf("column"), NameOf("row"))
    of_b, of_x = ((x, *rest) if left else (*rest, x) for x in (summed, result))
    ins = tuple((*range(ndim - len(s) + len(t), ndim), *t) for s, t in ((a, ("row", "column")), (b, of_b)))
    return Factors(ins, ((*range(ndim), *of_x),), frozenset({"row", "column"}))


def _solve_dims(shapes: Sequence[Sizes], static: Static) -> Factors:
    a, b = shapes
    rest = ("right",) * (not is_vector(a, b))
    ndim = max(len(a) - 2, len(b) - 1 - len(rest))
    return system(ndim, a, b, rest, static.get("left", True))


def _solution(A: Array, B: Array, left: bool) -> Array:
    check_matrices("linalg.solve", A)
    if A.dtype != B.dtype:
        raise DTypeError(
            "linalg.solve: Expected A and B to have the same dtype, but found A of type "
            f"{scalar_name(A)} and B of type {scalar_name(B)} instead"
        )
    vector = is_vector(A.shape, B.shape)
    right = B[..., None] if vector else B
    if right.shape[-2 if left else -1] != A.shape[-1]:
        sides = "AX = B" if left else "XA = B"
        shapes = f"{A.shape[-2]}x{A.shape[-1]} and {right.shape[-2]}x{right.shape[-1]}"
        raise ShapeError(f"linalg.solve: Incompatible shapes of A and B for the equation {sides} ({shapes})")
    if not left:
        return jnp.linalg.solve(A.mT, right.mT).mT
    out = jnp.linalg.solve(A, right)
    return out[..., 0] if vector else out


UNSOLVABLE = "torch.linalg.solve: {0}The solver failed because the input matrix is singular."


@factorises(
    derivative=Derivative(name="LinalgSolveEx"),
    dims=_solve_dims,
    public=IN_LINALG,
    check=Check(elements=lambda A, B, *, left=True: _singular(A), text=UNSOLVABLE, error=LinAlgError),
)
def solve(A: Array, B: Array, *, left: bool = True) -> Array:
    """The X with `A X = B`, or with `X A = B` if not `left`; `LinAlgError` where A is singular."""
    return _solution(A, B, left)


@factorises(derivative=Derivative(name="LinalgSolveEx"), dims=_solve_dims, public=INTERNAL)
def solution_or_nan(A: Array, B: Array, *, left: bool = True) -> Array:
    """The solution of `solve`; infinite or NaN where A is singular."""
    return _solution(A, B, left)


# --- factorisations ---


def definiteness(a: Array) -> Array:
    """LAPACK's `info` of a Cholesky factorisation: the size of the first leading block that has none, or 0."""
    size = a.shape[-1]
    if not a.size:
        return jnp.zeros(a.shape[:-2], jnp.int32)

    def failing() -> Array:
        inside = jnp.arange(size) <= jnp.arange(size)[:, None]  # row k: whether an index is in leading block k
        blocks = jnp.where(inside[:, :, None] & inside[:, None, :], a[..., None, :, :], jnp.eye(size, dtype=a.dtype))
        bad = ~jnp.isfinite(jnp.linalg.cholesky(blocks)).all((-2, -1))
        return jnp.where(bad.any(-1), bad.argmax(-1) + 1, 0).astype(jnp.int32)

    sound = jnp.isfinite(jnp.linalg.cholesky(a)).all()
    return jax.lax.cond(sound, lambda: jnp.zeros(a.shape[:-2], jnp.int32), failing)


INDEFINITE = (
    "linalg.cholesky: {0}The factorization could not be completed because the input is not positive-definite (the "
    "leading minor of order {1} is not positive-definite)."
)
"""The error's text for matrices without a Cholesky factor."""


def _factor(a: Array, upper: bool) -> Array:
    check_matrices("linalg.cholesky", a)
    return jnp.linalg.cholesky(a, upper=upper)


def _indefinite(input: Array) -> Failures:
    return Failures(definiteness(input))


@factorises(
    derivative=Derivative(name="LinalgCholeskyEx"),
    dims=square,
    public=IN_LINALG,
    check=Check(elements=_indefinite, text=INDEFINITE, error=LinAlgError),
)
def cholesky(input: Array, *, upper: bool = False) -> Array:
    """The triangular L with `L L^H = input`, or its adjoint if `upper`; `LinAlgError` if not positive definite."""
    return _factor(input, upper)


@factorises(derivative=Derivative(name="LinalgCholeskyEx"), dims=square, public=INTERNAL)
def factor_or_nan(input: Array, *, upper: bool = False) -> Array:
    """The factor of `cholesky`; NaN where a matrix is not positive definite."""
    return _factor(input, upper)


_QR_MODES = ("reduced", "complete", "r")
_R_ALONE = (
    "The derivative of linalg.qr depends on Q, which is not computed when mode='r'. Please use "
    "linalg.qr(A, mode='reduced') if you are going to differentiate through linalg.qr."
)
_TALL = "The QR decomposition is not differentiable when mode='complete' and nrows > ncols."


def _qr_dims(shapes: Sequence[Sizes], static: Static) -> Factors:
    factors = batches(ROWS, COLUMNS)(shapes)
    if static.get("mode") != "r":
        return factors
    return Factors(factors.ins, (("empty",), factors.outs[1]), factors.whole)


@factorises(dims=_qr_dims, outputs=("Q", "R"), public=IN_LINALG)
def qr(A: Array, mode: str = "reduced") -> Outs:
    """Orthonormal and upper triangular factors; in mode `"r"` the first is empty."""
    check_floating("linalg.qr", A)
    if mode not in _QR_MODES:
        raise OutOfRangeError(
            f"qr received unrecognized mode '{mode}' but expected one of 'reduced' (default), 'r', or 'complete'"
        )
    if mode == "r":
        return jnp.zeros((0,), A.dtype), without_slope(jnp.linalg.qr(A, mode="r"), A, _R_ALONE)
    factors = jnp.linalg.qr(A, mode=mode)
    if mode == "complete" and A.shape[-2] > A.shape[-1]:
        return tuple(without_slope(x, A, _TALL) for x in factors)
    return tuple(factors)


@factorises(dims=batches(MATRIX, VECTOR), outputs=("a", "tau"), derivative=NO_DERIVATIVE, public=Public(out=""))
def geqrf(input: Array) -> Outs:
    """The QR decomposition as Householder reflectors: R in and above the diagonal, vectors below it, and factors."""
    check_floating("geqrf", input)
    h, tau = jnp.linalg.qr(input, mode="raw")
    return h.mT, tau


def _reflector_dims(shapes: Sequence[Sizes]) -> Factors:
    batch = tuple(range(len(shapes[0]) - 2))
    ins = (*batch, "row", "column"), (*batch, "reflector")
    return Factors(ins, ((*batch, NameOf("row"), "i"),), frozenset({"row", "column", "reflector"}))


_NARROWER = "torch.linalg.householder_product: {} must be greater than or equal to {}"


@factorises(dims=_reflector_dims, public=Public(out="", module="linalg"))
def householder_product(input: Array, tau: Array) -> Array:
    """The first columns of the product of the Householder reflectors `I - tau v v^H`.

    The vectors v are the columns of `input` below the diagonal, with 1 on the diagonal. The product is computed as
    `I - V T V^H` (Joffrain et al., 2006).
    """
    if input.ndim < 2:
        raise ShapeError("torch.linalg.householder_product: input must have at least 2 dimensions.")
    if tau.ndim != input.ndim - 1:
        raise ShapeError(
            "torch.linalg.householder_product: Expected tau to have one dimension less than input, but got tau.ndim "
            f"equal to {tau.ndim} and input.ndim is equal to {input.ndim}"
        )
    if tau.shape[:-1] != input.shape[:-2]:
        raise ShapeError(
            "torch.linalg.householder_product: Expected batch dimensions of tau to be equal to input.shape[:-2], but "
            f"got {list(tau.shape[:-1])}"
        )
    check_floating("linalg.householder_product", input)
    if tau.dtype != input.dtype:
        raise DTypeError(
            f"torch.linalg.householder_product: tau dtype {scalar_name(tau)} does not match input dtype "
            f"{scalar_name(input)}"
        )
    rows, columns = input.shape[-2:]
    if rows < columns:
        raise ShapeError(_NARROWER.format("input.shape[-2]", "input.shape[-1]"))
    if columns < tau.shape[-1]:
        raise ShapeError(_NARROWER.format("input.shape[-1]", "tau.shape[-1]"))
    v = jnp.tril(input[..., : tau.shape[-1]], -1) + jnp.eye(rows, tau.shape[-1], dtype=input.dtype)
    adjoint = v.mT.conj()
    system = jnp.eye(tau.shape[-1], dtype=input.dtype) + tau[..., None] * jnp.triu(adjoint @ v, 1)
    right = tau[..., None] * adjoint[..., :columns]
    return jnp.eye(rows, columns, dtype=input.dtype) - v @ jax.scipy.linalg.solve_triangular(
        system, right, lower=False, unit_diagonal=True
    )


@factorises(dims=batches(VECTOR, ROWS), outputs=("eigenvalues", "eigenvectors"), public=IN_LINALG)
def eigh(A: Array, UPLO: str = "L") -> Outs:
    """Eigenvalues, in ascending order, and eigenvectors of Hermitian matrices; one triangle is read."""
    check_matrices("linalg.eigh", A)
    if UPLO.upper() not in ("L", "U"):
        raise OutOfRangeError(f"Expected UPLO argument to be 'L' or 'U', but got {UPLO}")
    return tuple(jnp.linalg.eigh(mirrored(A, UPLO.upper() == "L"), symmetrize_input=False))


def mirrored(A: Array, lower: bool) -> Array:
    """A Hermitian matrix from one triangle. The gradient is Hermitian and of the whole of `A`, as in PyTorch."""
    part = jnp.tril(A) if lower else jnp.triu(A)
    whole = part + (jnp.tril(A, -1) if lower else jnp.triu(A, 1)).mT.conj()
    mean = (A + A.mT.conj()) / 2
    return jax.lax.stop_gradient(whole) + (mean - jax.lax.stop_gradient(mean))


def non_finite(A: Array, *options: object, **named: object) -> Failures:
    """Matrices that hold NaN or infinities."""
    del options, named
    return Failures((~jnp.isfinite(A)).any((-2, -1)).astype(jnp.int32))


diverges = partial(
    factorises,
    check=Check(
        elements=non_finite,
        text="linalg.svd: {0}The algorithm failed to converge because the input matrix contained non-finite values.",
        error=LinAlgError,
    ),
)
"""The rows whose results include singular values."""


@diverges(dims=batches(ROWS, VECTOR, COLUMNS), outputs=("U", "S", "Vh"), public=IN_LINALG)
def svd(A: Array, full_matrices: bool = True, *, driver: str | None = None) -> Outs:
    """Orthonormal U, singular values in descending order, and orthonormal Vh with `A = U diag(S) Vh`."""
    if driver is not None:
        raise OutOfRangeError(
            "torch.linalg.svd: keyword argument `driver=` is only supported on CUDA inputs with cuSOLVER backend."
        )
    check_floating("linalg.svd", A)
    u, s, vh = jnp.linalg.svd(A, full_matrices=False)
    if not full_matrices or A.shape[-2] == A.shape[-1]:
        return u, s, vh
        # The vectors that complete the basis are arbitrary, so no gradient flows through them.
    full_u, _, full_vh = jnp.linalg.svd(jax.lax.stop_gradient(A), full_matrices=True)
    rank = s.shape[-1]
    u = jnp.concatenate([u, full_u[..., rank:]], -1)
    return u, s, jnp.concatenate([vh, full_vh[..., rank:, :]], -2)
