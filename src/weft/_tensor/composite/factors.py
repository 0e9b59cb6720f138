"""The older functions of factorisations outside of `linalg`, with other results or orders of arguments."""

from __future__ import annotations

from weft._tensor.codegen import op
from weft._tensor.functions import composite
from weft._tensor.named_results import named_result
from weft._tensor.overriding import require_not_overridden
from weft._tensor.tensor import Results, Tensor
from weft.errors import NotDefinedError, ShapeError, ValueRangeError
from weft.ops._autocast import CPU_FLOAT32
from weft.ops._table import NO_METHOD, OTHER_OUT, PLAIN, Public

_QR = named_result("qr", ("Q", "R"))
_SVD = named_result("svd", ("U", "S", "V"))
_Triangular = named_result("triangular_solve", ("solution", "cloned_coefficient"))


@composite(public=Public(out=OTHER_OUT))
def cholesky(input: Tensor, upper: bool = False) -> Tensor:
    """`linalg.cholesky`."""
    return op.cholesky(input, upper=upper)


@composite(public=Public(out=OTHER_OUT))
def qr(input: Tensor, some: bool = True) -> Results:
    """`linalg.qr`, in mode "complete" if not `some`."""
    return _QR(*op.qr(input, "reduced" if some else "complete"))


@composite(public=Public(out=OTHER_OUT))
def svd(input: Tensor, some: bool = True, compute_uv: bool = True) -> Results:
    """U, singular values and V (not its adjoint); U and V are zeros unless `compute_uv`."""
    if compute_uv:
        U, S, Vh = op.svd(input, not some)
        return _SVD(U, S, op.adjoint(Vh))
    values = op.svdvals(input)
    zeros = [op.zeros((*input.shape[:-2], n, n), dtype=input.dtype, device=input.device) for n in input.shape[-2:]]
    return _SVD(zeros[0], values, zeros[1])


@composite(public=Public(out=OTHER_OUT), cast=CPU_FLOAT32)
def triangular_solve(
    input: Tensor, A: Tensor, upper: bool = True, transpose: bool = False, unitriangular: bool = False
) -> Results:
    """The X with `A X = input`, and A, of which one triangle is read; with `transpose`, for the transposed A."""
    a = op.transpose(A, -2, -1) if transpose else A
    solution = op.solve_triangular(a, input, upper=upper != transpose, unitriangular=unitriangular)
    return _Triangular(solution, op.clone(A))


@composite(public=Public(out=""))
def orgqr(input: Tensor, tau: Tensor) -> Tensor:
    """`linalg.householder_product`."""
    return op.householder_product(input, tau)


@composite(public=Public(out=""), cast=CPU_FLOAT32)
def ormqr(input: Tensor, tau: Tensor, other: Tensor, left: bool = True, transpose: bool = False) -> Tensor:
    """The product of Q, given by Householder reflectors, or its adjoint, with `other` on the left or right."""
    for name, x, least in (("input", input, 2), ("other", other, 2)):
        if x.ndim < least:
            raise ShapeError(f"torch.ormqr: {name} must have at least {least} dimensions.")
    rows, columns = input.shape[-2:]
    reflectors = min(other.shape[-2 if left else -1], columns)
    if tau.shape[-1:] != (reflectors,):
        raise ShapeError(
            f"torch.ormqr: tau.shape[-1] must be equal to min(other.shape[{-2 if left else -1}], input.shape[-1]), "
            f"but got {list(tau.shape)} and {reflectors}"
        )
    if other.shape[-2 if left else -1] != rows:
        side = "left" if left else "right"
        raise ShapeError(
            f"torch.ormqr: other.shape[{-2 if left else -1}] must be equal to input.shape[-2] (multiplied from the "
            f"{side}), but got {other.shape[-2 if left else -1]} and {rows}"
        )
    missing = op.zeros((*input.shape[:-2], rows, max(rows - columns, 0)), dtype=input.dtype, device=input.device)
    Q = op.householder_product(op.cat([input, missing], -1)[..., :rows], tau)
    factor = op.adjoint(Q) if transpose else Q
    return op.matmul(factor, other) if left else op.matmul(other, factor)


# ---- approximations


@composite(public=NO_METHOD)
def svd_lowrank(A: Tensor, q: int | None = 6, niter: int | None = 2, M: Tensor | None = None) -> Results:
    """U, singular values and V of a random approximation of `A - M` of rank `q` (Halko et al., 2009).

    A matrix with fewer rows or columns than `q` has as many singular values.
    """
    matrix = A if M is None else A - op.expand(M, A.shape)
    rows, columns = matrix.shape[-2:]
    count = min(6 if q is None else q, rows, columns)
    if count < 0:
        raise ValueRangeError(f"svd_lowrank: q must be a non-negative integer, got {q}")
    tall = op.adjoint(matrix) if rows < columns else matrix
    start = op.randn((tall.shape[-1], count), dtype=tall.dtype, device=tall.device)
    basis = op.qr(op.matmul(tall, start)).Q
    for _ in range(2 if niter is None else niter):
        basis = op.qr(op.matmul(tall, op.qr(op.matmul(op.adjoint(tall), basis)).Q)).Q
    U, S, Vh = op.svd(op.matmul(op.adjoint(basis), tall), False)
    left, right = op.matmul(basis, U), op.adjoint(Vh)
    return (right, S, left) if rows < columns else (left, S, right)


@composite(public=NO_METHOD)
def pca_lowrank(A: Tensor, q: int | None = None, center: bool = True, niter: int = 2) -> Results:
    """`svd_lowrank` of the rows, minus their mean if `center`: V has the `q` (at most 6) principal directions."""
    rows, columns = A.shape[-2:]
    count = min(6, rows, columns) if q is None else q
    if not 0 <= count <= min(rows, columns):
        raise ValueRangeError(
            f"q(={count}) must be non-negative integer and not greater than min(m, n)={min(rows, columns)}"
        )
    if niter < 0:
        raise ValueRangeError(f"niter(={niter}) must be non-negative integer")
    return svd_lowrank(A, count, niter, op.mean(A, -2, True) if center else None)


# --- what PyTorch has removed -----------------------------------------------------------------------------------


def _removed(name: str, advice: str, method: bool = True) -> None:
    text = f"{name}: this function was deprecated since version 1.9 and is now removed; {advice}"

    @composite(name, doc=f"Raises `RuntimeError`: {advice}.", public=PLAIN if method else NO_METHOD)
    def removed(input: Tensor, *args: object, **kwargs: object) -> Results:
        require_not_overridden(input)
        raise NotDefinedError(text)


_removed("symeig", "use torch.linalg.eigh, or eigvalsh for eigenvalues alone, whose UPLO is 'L' by default")
_removed("eig", "use torch.linalg.eig, or eigvals for eigenvalues alone, whose results are complex")
_removed("lstsq", "use torch.linalg.lstsq, whose arguments are in reverse order: lstsq(A, B) for lstsq(B, A)")
_removed("solve", "use torch.linalg.solve, whose arguments are in reverse order: solve(A, B) for solve(B, A)")
_removed("matrix_rank", "use torch.linalg.matrix_rank, whose `hermitian` is the former `symmetric`", method=False)
