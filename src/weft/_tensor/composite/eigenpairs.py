"""A few extreme eigenvalues with PyTorch's arguments."""

from __future__ import annotations

from weft._base.dtype import float32, float64
from weft._tensor.codegen import op
from weft._tensor.dim_names import unnamed
from weft._tensor.functions import composite
from weft._tensor.tensor import Tensor
from weft.errors import ArgumentError, DTypeError, PreconditionError, ValueRangeError
from weft.ops._table import NO_METHOD
from weft.ops._type_names import scalar_name

_ROUNDING = {float32: 1.2e-07, float64: 2.23e-16}


def _check(A: Tensor, B: Tensor | None, X: Tensor | None, n: int, method: str | None, tracker: object) -> None:
    if A.ndim < 2 or A.shape[-2] != A.shape[-1]:
        raise PreconditionError(f"lobpcg: A must be square, got shape {list(A.shape)}")
    if B is not None and A.shape != B.shape:
        raise PreconditionError(f"lobpcg: A and B must have same shape, got {list(A.shape)} vs {list(B.shape)}")
    if A.dtype not in _ROUNDING:
        raise DTypeError(f"lobpcg: A must have float32 or float64 elements, got {scalar_name(A.dtype)}")
    rows = A.shape[-1]
    if rows < 3 * n:
        raise ValueRangeError(
            f"LOBPCG algorithm is not applicable when the number of A rows (={rows}) is smaller than 3 x the number of "
            f"requested eigenpairs (={n})"
        )
    if X is not None and X.shape[-2:] != (rows, n):
        raise PreconditionError(f"lobpcg: X must have shape {[rows, n]}, got {list(X.shape)}")
    if method not in (None, "basic", "ortho"):
        raise ValueRangeError(f"lobpcg: method must be 'basic' or 'ortho', got {method!r}")
    if tracker is not None:
        raise ArgumentError("lobpcg: tracker must be None, since all steps are one operator; use niter to stop earlier")


def _symmetric(A: Tensor) -> Tensor:
    return (A + op.transpose(A, -2, -1)) / 2


def _reduced(A: Tensor, lower: Tensor) -> Tensor:
    """The matrix of the ordinary problem with the eigenvalues of `A x = e B x`, by the Cholesky factor of B."""
    half = op.solve_triangular(lower, _symmetric(A), upper=False)
    return _symmetric(op.solve_triangular(lower, op.transpose(half, -2, -1), upper=False))


@composite(public=NO_METHOD)
def lobpcg(
    A: Tensor,
    k: int | None = None,
    B: Tensor | None = None,
    X: Tensor | None = None,
    n: int | None = None,
    iK: Tensor | None = None,
    niter: int | None = None,
    tol: float | None = None,
    largest: bool | None = None,
    method: str | None = None,
    tracker: object = None,
    ortho_iparams: object = None,
    ortho_fparams: object = None,
    ortho_bparams: object = None,
) -> tuple[Tensor, Tensor]:
    """The k largest eigenvalues of symmetric matrices (the smallest, if not `largest`), and their vectors.

    With a positive definite B, those of `A x = e B x`. Starts from X, by default from random vectors, and goes on until
    residuals are `tol` times the size of A, at most `niter` steps, each improved by the approximate inverse `iK`.
    Both methods keep bases orthonormal, so the parameters of "ortho" have no effect.
    """
    del ortho_iparams, ortho_fparams, ortho_bparams
    a = unnamed(A)
    b, first, inverse = (None if x is None else unnamed(x) for x in (B, X, iK))
    count = (1 if first is None else first.shape[-1]) if k is None else k
    width = (count if n is None else n) if first is None else first.shape[-1]
    _check(a, b, first, width, method, tracker)
    start = op.randn((*a.shape[:-1], width), dtype=a.dtype, device=a.device) if first is None else first
    accuracy = _ROUNDING[a.dtype] ** 0.5 if tol is None else tol
    options = accuracy, count, largest is not False, 1000 if niter is None else niter
    if b is None:
        return tuple(op.extreme_pairs(_symmetric(a), start, inverse, *options))
    lower = op.cholesky(_symmetric(b))
    upper = op.transpose(lower, -2, -1)
    preconditioner = None if inverse is None else op.matmul(op.matmul(upper, inverse), lower)
    values, vectors = op.extreme_pairs(_reduced(a, lower), op.matmul(upper, start), preconditioner, *options)
    return values, op.solve_triangular(upper, vectors, upper=True)
