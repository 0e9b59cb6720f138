"""Linear algebra composed of factorisations: norms, condition numbers, systems, and functions that check errors."""

from __future__ import annotations

from math import prod

from weft._base.dtype import DType, int64
from weft._base.guards import is_list
from weft._base.numpy_guards import INTEGERS
from weft._base.types import Arg
from weft._tensor.arguments import AnyDims, Dim
from weft._tensor.codegen import op
from weft._tensor.composite.names import diagonals
from weft._tensor.composite.pointwise import conj
from weft._tensor.dim_names import names_of, with_names
from weft._tensor.functions import composite
from weft._tensor.named_results import named_result
from weft._tensor.tensor import Results, Tensor
from weft.errors import DTypeError, LinAlgError, OutOfRangeError, ShapeError
from weft.ops._autocast import CPU_FLOAT32
from weft.ops._findings import Failures
from weft.ops._table import IN_LINALG, NO_METHOD, OTHER_OUT, Public
from weft.ops._type_names import scalar_name
from weft.ops.decomposition import INDEFINITE, SINGULAR, UNSOLVABLE
from weft.ops.ldl import ZERO_BLOCK
from weft.ops.solving import BAD_PIVOTS_TO_SOLVE, BAD_PIVOTS_TO_UNPACK, ZERO_DIVISOR

_LINALG = "linalg"


def _refuse(info: Tensor, template: str, name: str) -> None:
    """Wait for LAPACK's `info`; raises `LinAlgError` if it shows a failure, with the text of `{name}_ex`."""
    host: Arg = info._host()
    failures = Failures(host)
    code = int(failures.code())
    if code:
        raise LinAlgError(failures.text(template, code).replace(name, f"{name}_ex", 1))


# ---- LU


def _without_pivots(name: str) -> ShapeError:
    return ShapeError(f"{name}: LU without pivoting is not implemented on the CPU")


_Factored = named_result("linalg_lu_factor", ("LU", "pivots"))
_FactoredEx = named_result("linalg_lu_factor_ex", ("LU", "pivots", "info"))
_LU = named_result("linalg_lu", ("P", "L", "U"))
_Unpacked = named_result("lu_unpack", ("P", "L", "U"))


@composite(public=Public(module=_LINALG, out=OTHER_OUT))
def lu_factor_ex(A: Tensor, *, pivot: bool = True, check_errors: bool = False) -> Results:
    """Packed LU factors, the pivots counted from 1, and the place of the first zero on U's diagonal, or 0."""
    if not pivot:
        raise _without_pivots("linalg.lu_factor")
    factors = op.lu_factors(A)
    if check_errors:
        _refuse(factors.info, ZERO_DIVISOR, "torch.linalg.lu_factor")
    return _FactoredEx(*factors)


@composite(public=Public(module=_LINALG, out=OTHER_OUT))
def lu_factor(A: Tensor, *, pivot: bool = True) -> Results:
    """Packed LU factors, and the pivots: row i, counted from 1, was exchanged with row `pivots[i]`."""
    if not pivot:
        raise _without_pivots("linalg.lu_factor")
    return _Factored(*op.dividing_lu_factors(A))


@composite(public=Public(module=_LINALG, out=OTHER_OUT))
def lu(A: Tensor, *, pivot: bool = True) -> Results:
    """Permutation, unit lower triangular and upper triangular factor with `A = P L U`."""
    if not pivot:
        raise _without_pivots("linalg.lu_factor")
    return _LU(*op.lu_parts(*op.lu_factors(A)[:2]))


@composite("lu", public=Public(method="lu"))
def packed_lu(A: Tensor, pivot: bool = True, get_infos: bool = False) -> Results:
    """`linalg.lu_factor`, or `linalg.lu_factor_ex` with `get_infos`, as plain tuples."""
    return tuple(lu_factor_ex(A, pivot=pivot) if get_infos else lu_factor(A, pivot=pivot))


@composite(public=Public(method="", out=OTHER_OUT))
def lu_unpack(LU_data: Tensor, LU_pivots: Tensor, unpack_data: bool = True, unpack_pivots: bool = True) -> Results:
    """The factors P, L and U with `A = P L U` of a packed decomposition; those not requested are empty."""
    if LU_pivots.dtype.name != "int32":
        raise DTypeError("torch.lu_unpack: LU_pivots is expected to be a contiguous tensor of torch.int32 dtype.")
    parts = op.lu_parts(LU_data, LU_pivots, BAD_PIVOTS_TO_UNPACK)
    none = op.zeros((0,), dtype=LU_data.dtype, device=LU_data.device)
    return _Unpacked(
        parts.P if unpack_pivots else none, parts.L if unpack_data else none, parts.U if unpack_data else none
    )


@composite("lu_solve", public=Public(module=_LINALG, out=OTHER_OUT), cast=CPU_FLOAT32)
def solve_packed(LU: Tensor, pivots: Tensor, B: Tensor, *, left: bool = True, adjoint: bool = False) -> Tensor:
    """The X with `A X = B`, or with `X A = B` if not `left`, from packed factors of A or (`adjoint`) of its adjoint."""
    if pivots.dtype.name != "int32":
        raise DTypeError("linalg.lu_solve: pivots should be a Tensor of scalar type torch.int32")
    if B.ndim < 2:
        raise ShapeError("linalg.lu_solve: The input tensor B must have at least 2 dimensions.")
    if not left:
        return op.adjoint(solve_packed(LU, pivots, op.adjoint(B), adjoint=not adjoint))
    if LU.shape[-1] != B.shape[-2]:
        shapes = f"{LU.shape[-2]}x{LU.shape[-1]} and {B.shape[-2]}x{B.shape[-1]}"
        raise ShapeError(f"linalg.lu_solve: Incompatible shapes of A and B for the equation AX = B ({shapes})")
    P, L, U = op.lu_parts(LU, pivots, BAD_PIVOTS_TO_SOLVE)
    if adjoint:
        half = op.solve_triangular(op.adjoint(U), B, upper=False)
        return op.matmul(P, op.solve_triangular(op.adjoint(L), half, upper=True, unitriangular=True))
    half = op.solve_triangular(L, op.matmul(op.transpose(P, -2, -1), B), upper=False, unitriangular=True)
    return op.solve_triangular(U, half, upper=True)


@composite(public=Public(out=OTHER_OUT), cast=CPU_FLOAT32)
def lu_solve(input: Tensor, LU_data: Tensor, LU_pivots: Tensor) -> Tensor:
    """The X with `A X = input`, from packed factors of A."""
    return solve_packed(LU_data, LU_pivots, input)


# ---- LDL

_Symmetric = named_result("linalg_ldl_factor", ("LD", "pivots"))
_SymmetricEx = named_result("linalg_ldl_factor_ex", ("LD", "pivots", "info"))


@composite(public=Public(module=_LINALG, out=OTHER_OUT))
def ldl_factor(A: Tensor, *, hermitian: bool = False) -> Results:
    """The factors of symmetric, or Hermitian, matrices that `ldl_solve` takes; the lower triangle is read.

    `LinAlgError` where a block of D is zero.
    """
    return _Symmetric(*op.dividing_ldl_factors(A, hermitian=hermitian))


@composite(public=Public(module=_LINALG, out=OTHER_OUT))
def ldl_factor_ex(A: Tensor, *, hermitian: bool = False, check_errors: bool = False) -> Results:
    """`ldl_factor`, and the place of the first block of zeros of D, or 0."""
    factors = op.ldl_factors(A, hermitian=hermitian)
    if check_errors:
        _refuse(factors.info, ZERO_BLOCK, "torch.linalg.ldl_factor")
    return _SymmetricEx(*factors)


# ---- what tells about errors

_Inverse = named_result("linalg_inv_ex", ("inverse", "info"))
_Factor = named_result("linalg_cholesky_ex", ("L", "info"))
_Solution = named_result("linalg_solve_ex", ("result", "info"))


@composite(public=Public(module=_LINALG, out=OTHER_OUT))
def inv_ex(A: Tensor, *, check_errors: bool = False) -> Results:
    """The inverse, and 0 or the place of the zero on U's diagonal that makes a matrix singular."""
    inverse = op.inverse_or_nan(A)
    info = op.lu_factors(A).info
    if check_errors:
        _refuse(info, SINGULAR, "linalg.inv")
    return _Inverse(inverse, info)


@composite(public=Public(module=_LINALG, out=OTHER_OUT))
def cholesky_ex(input: Tensor, *, upper: bool = False, check_errors: bool = False) -> Results:
    """The Cholesky factor, NaN if there is none, and 0 or the size of the first leading block without one."""
    factor = op.factor_or_nan(input, upper=upper)
    info = op.cholesky_info(input)
    if check_errors:
        _refuse(info, INDEFINITE, "linalg.cholesky")
    return _Factor(factor, info)


@composite(public=Public(module=_LINALG, out=OTHER_OUT))
def solve_ex(A: Tensor, B: Tensor, *, left: bool = True, check_errors: bool = False) -> Results:
    """The X with `A X = B`, or with `X A = B` if not `left`, and 0 unless A is singular."""
    result = op.solution_or_nan(A, B, left=left)
    info = op.lu_factors(A).info
    if check_errors:
        _refuse(info, UNSOLVABLE, "torch.linalg.solve")
    return _Solution(result, info)


# ---- eigenvalues, ranks, norms


@composite(public=Public(module=_LINALG, out=OTHER_OUT))
def eigvalsh(A: Tensor, UPLO: str = "L") -> Tensor:
    """Eigenvalues of Hermitian matrices in ascending order; only one triangle is read."""
    return op.eigh(A, UPLO).eigenvalues


def _require_real(name: str, **tolerances: object) -> None:
    for which, x in tolerances.items():
        if isinstance(x, Tensor) and x.is_complex():
            raise DTypeError(f"{name}: {which} tensor of complex type is not supported. Got {scalar_name(x.dtype)}")


@composite(public=Public(module=_LINALG, out=""))
def pinv(
    A: Tensor, rcond: object = None, hermitian: bool = False, *, atol: object = None, rtol: object = None
) -> Tensor:
    """The Moore-Penrose inverse; singular values up to `max(atol, rtol * the largest)` count as zero.

    `rtol` defaults to the type's epsilon times the larger size; `rcond` is its former name.
    """
    _require_real("torch.linalg.pinv", rcond=rcond, atol=atol, rtol=rtol)
    return op.pseudo_inverse(A, atol, rtol if rcond is None else rcond, hermitian)


@composite(public=Public(method="pinverse"))
def pinverse(input: Tensor, rcond: float = 1e-15) -> Tensor:
    """`linalg.pinv` with another tolerance."""
    return pinv(input, rcond)


@composite(public=Public(module=_LINALG, out=""))
def matrix_rank(
    A: Tensor, tol: object = None, hermitian: bool = False, *, atol: object = None, rtol: object = None
) -> Tensor:
    """The number of singular values above `max(atol, rtol * the largest)`; `tol` is an older name of `atol`."""
    _require_real("torch.linalg.matrix_rank", tol=tol, atol=atol, rtol=rtol)
    if tol is not None:
        atol, rtol = tol, 0.0
    return op.rank(A, atol, rtol, hermitian)


_CONDITIONS = ("fro", "nuc", float("inf"), float("-inf"), 1, -1, 2, -2)


@composite(public=Public(module=_LINALG, out=""))
def cond(A: Tensor, p: object = None) -> Tensor:
    """The condition number in the `p`-norm; by default the ratio of the largest and smallest singular values."""
    if A.ndim < 2:
        raise ShapeError("linalg.cond: The input tensor must have at least 2 dimensions.")
    if p not in (None, *_CONDITIONS):
        raise OutOfRangeError(f"linalg.cond got an invalid norm type: {p}")
    if p in (None, 2, -2):
        s = op.svdvals(A)
        ends = op.select(s, -1, s.shape[-1] - 1), op.select(s, -1, 0)
        return ends[0] / ends[1] if p == -2 else ends[1] / ends[0]
    if A.shape[-1] != A.shape[-2]:
        raise ShapeError(
            f"linalg.cond(ord={p}): A must be batches of square matrices, but they are {A.shape[-2]} by "
            f"{A.shape[-1]} matrices"
        )
    singular = op.ne(op.lu_factors(A).info, 0)
    result = op.matrix_norm(A, p) * op.matrix_norm(op.inverse_or_nan(A), p)
    return op.masked_fill(result, singular, float("inf"))


@composite("norm", public=Public(module=_LINALG, out=OTHER_OUT))
def linalg_norm(
    A: Tensor, ord: object = None, dim: AnyDims = None, keepdim: bool = False, *, dtype: DType | None = None
) -> Tensor:
    """A norm of vectors over one dim or of matrices over two dims, depending on `ord` and the number of dims."""
    over = (dim,) if isinstance(dim, INTEGERS) else dim
    if over is not None and len(over) not in (1, 2):
        raise ShapeError(f"linalg.norm: If dim is specified, it must be of length 1 or 2. Got {list(over)}")
    if over is None and ord is not None and A.ndim not in (1, 2):
        raise ShapeError(f"linalg.norm: If dim is not specified but ord is, the input must be 1D or 2D. Got {A.ndim}D.")
    if ord is None or (not isinstance(ord, str) and (A.ndim if over is None else len(over)) == 1):
        return op.vector_norm(A, 2 if ord is None else ord, over, keepdim, dtype=dtype)
    return op.matrix_norm(A, ord, (-2, -1) if over is None else over, keepdim, dtype=dtype)


@composite(public=NO_METHOD)
def frobenius_norm(input: Tensor, dim: AnyDims, keepdim: bool = False) -> Tensor:
    """The 2-norm of all elements over `dim`."""
    return op.vector_norm(input, 2, tuple(dim) if is_list(dim) else dim, keepdim)


@composite(public=NO_METHOD)
def nuclear_norm(input: Tensor, dim: AnyDims = (-2, -1), keepdim: bool = False) -> Tensor:
    """The sum of the singular values of the matrices over two dims."""
    return op.matrix_norm(input, "nuc", tuple(dim), keepdim)


# ---- least squares

_Least = named_result("linalg_lstsq", ("solution", "residuals", "rank", "singular_values"))
_DRIVERS = ("gels", "gelsy", "gelsd", "gelss")


@composite(public=IN_LINALG, cast=CPU_FLOAT32)
def lstsq(A: Tensor, B: Tensor, rcond: float | None = None, *, driver: str | None = None) -> Results:
    """The X of smallest norm that minimises the distance of `A X` and B, the squared distances, rank, singular values.

    It is always computed from singular values. The driver determines the other results: "gels" assumes full rank,
    "gelsy" (the default) computes the rank, "gelsd" and "gelss" also the singular values. Residuals are empty unless
    there are more rows than columns and the rank is full, for which this waits.
    """
    name = "torch.linalg.lstsq"
    if A.ndim < 2:
        raise ShapeError(f"{name}: input must have at least 2 dimensions.")
    if B.ndim < 1:
        raise ShapeError(f"{name}: other must have at least 1 dimension.")
    if driver not in (None, *_DRIVERS):
        raise OutOfRangeError(f"{name}: parameter `driver` should be one of ({', '.join(_DRIVERS)})")
    if A.dtype is not B.dtype:
        raise DTypeError(
            f"{name}: Expected input and other to have the same dtype, but got input's dtype {scalar_name(A.dtype)} "
            f"and other's dtype {scalar_name(B.dtype)}"
        )
    vector = B.ndim == 1 or tuple(A.shape[:-1]) == tuple(B.shape)
    right = op.unsqueeze(B, -1) if vector else B
    if A.shape[-2] != right.shape[-2]:
        dim = -1 if vector else -2
        raise ShapeError(f"{name}: input.size(-2) should match other.size({dim})")
    solution = op.matmul(op.pseudo_inverse(A, None, rcond, False), right)
    rank = op.rank(A, None, rcond, False)
    none = op.zeros((0,), dtype=A.dtype.to_real(), device=A.device)
    residuals = none
    full = A.shape[-2] > A.shape[-1] and (driver == "gels" or bool((rank == A.shape[-1]).all()))
    if full and driver not in (None, "gelsy"):
        residuals = op.sum(op.square(op.abs(right - op.matmul(A, solution))), -2)
    return _Least(
        op.squeeze(solution, -1) if vector else solution,
        residuals,
        op.zeros((0,), dtype=int64, device=A.device) if driver == "gels" else rank,
        op.svdvals(A) if driver in ("gelsd", "gelss") else none,
    )


# ---- vectors and tensors


@composite(public=Public(module=_LINALG, out=OTHER_OUT))
def vecdot(x: Tensor, y: Tensor, *, dim: Dim = -1) -> Tensor:
    """Inner products along `dim`, with the elements of `x` conjugated."""
    if x.dtype is not y.dtype:
        raise DTypeError(f"linalg.vecdot: Expected x and y to have the same dtype, but got {x.dtype} and {y.dtype}")
    return op.sum(conj(x) * y, dim, dtype=x.dtype)


@composite(public=IN_LINALG)
def vander(x: Tensor, *, N: int | None = None) -> Tensor:
    """Rows of powers from 0 to N - 1; N defaults to the number of elements."""
    x = x if x.ndim else op.reshape(x, (1,))
    count = x.shape[-1] if N is None else N
    if count <= 1:
        raise OutOfRangeError("N must be greater than 1.")
    column = op.unsqueeze(x, -1)
    powers = op.cumprod(op.expand(column, (*x.shape, count - 1)), -1)
    return op.cat([op.ones(tuple(column.shape), dtype=powers.dtype, device=x.device), powers], -1)


@composite(public=Public(module=_LINALG, out=""))
def tensorinv(A: Tensor, ind: int = 2) -> Tensor:
    """The inverse of the map from the last dims to the first `ind`: `tensordot(tensorinv(A), B, ind)` solves for X."""
    if ind <= 0:
        raise OutOfRangeError(f"Expected a strictly positive integer for 'ind', but got {ind}")
    first, last = A.shape[:ind], A.shape[ind:]
    if prod(first) != prod(last):
        raise ShapeError(
            "Expected self to satisfy the requirement prod(self.shape[ind:]) == prod(self.shape[:ind]), but got "
            f"{prod(last)} != {prod(first)}"
        )
    inverse = op.reshape(op.inv(op.reshape(A, (prod(first), prod(last)))), (*last, *first))
    return with_names(inverse, (*names_of(A)[ind:], *names_of(A)[:ind]))


@composite(public=Public(module=_LINALG, out=""))
def tensorsolve(A: Tensor, B: Tensor, dims: Arg = None) -> Tensor:
    """The X with `tensordot(A, X, X.ndim) = B`; `dims` of A are moved to the end first."""
    moved = A if dims is None else op.movedim(A, tuple(dims), tuple(range(A.ndim - len(dims), A.ndim)))
    first, last = moved.shape[: B.ndim], moved.shape[B.ndim :]
    size = prod(first) if B.numel() == prod(last) else B.numel()
    if prod(last) != size:
        raise ShapeError(
            "Expected self to satisfy the requirement prod(self.shape[other.ndim:]) == prod(self.shape[:other.ndim]), "
            f"but got {prod(last)} != {size}"
        )
    flat = op.reshape(moved, (prod(first), prod(last)))
    return op.reshape(op.solve(flat, op.reshape(B, (-1,))), last)


@composite(public=IN_LINALG)
def diagonal(A: Tensor, *, offset: int = 0, dim1: Dim = -2, dim2: Dim = -1) -> Tensor:
    """The diagonals of matrices."""
    return diagonals(A, offset, dim1, dim2)
