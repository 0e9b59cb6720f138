"""Factorisations of matrices, by the LAPACK routines that XLA calls on CPUs; where one fails, the results are NaN."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np

from weft._base.types import Arg
from weft._lazy.interpreter.table import (
    Array,
    Function,
    MissingPrimitive,
    Params,
    Types,
    library,
    primitive,
    require_arrays,
)

_PREFIXES = {"f": "s", "d": "d", "F": "c", "D": "z"}
_UNITARY = {"orgqr": "ungqr", "syevd": "heevd", "sytrd": "hetrd"}


def _routine(name: str, dtype: np.dtype, of: str = "scipy.linalg.lapack") -> Function:
    """A routine of the SciPy module `of` for an element type; the module is imported when it is first called."""
    if dtype.char not in _PREFIXES:
        raise MissingPrimitive(f"{name}[{dtype}]")
    full = _PREFIXES[dtype.char] + (_UNITARY.get(name, name) if dtype.kind == "c" else name)

    def call(*args: Arg, **options: Arg) -> Arg:
        require_arrays(*[x for x in args if hasattr(x, "dtype")])  # f2py miscounts references when it refuses others
        return getattr(library(of), full)(*args, **options)

    return call


def _batched(function: Function, ins: Types, outs: Types, batch: int) -> Function:
    """A function of single matrices, applied to arrays with `batch` leading dims.

    The function of matrices returns a sequence of results, or None if it fails, which makes all results NaN.
    """
    if any(0 in t.shape[batch:] for t in (*ins, *outs)):
        raise MissingPrimitive("factorisation of empty matrices")
    nothing = [complex(np.nan, np.nan) if t.dtype.kind == "c" else np.nan for t in outs]

    def run(*arrays: Array) -> list[Array]:
        results = [np.empty(shape, dtype) for shape, dtype in outs]
        for at in np.ndindex(outs[0].shape[:batch]):
            parts = function(*[x[at] for x in arrays])
            for place, result in enumerate(results):
                result[at] = nothing[place] if parts is None else parts[place]
        return results

    return run


def _only(run: Function) -> Function:
    """The function for a primitive that has one result."""
    return lambda *arrays: run(*arrays)[0]


def _if_done(info: int, *results: Array) -> Sequence[Array] | None:
    return None if info else results


@primitive("cholesky")
def _cholesky(params: Params, ins: Types, outs: Types) -> Function:
    potrf = _routine("potrf", ins[0].dtype)

    def factor(a: Array) -> Sequence[Array] | None:
        result, info = potrf(a, lower=1, clean=0)
        return _if_done(info, result)

    return _only(_batched(factor, ins, outs, len(ins[0].shape) - 2))


@primitive("triangular_solve")
def _triangular_solve(params: Params, ins: Types, outs: Types) -> Function:
    trsm = _routine("trsm", ins[0].dtype, "scipy.linalg.blas")
    conjugates = params["conjugate_a"] and not params["transpose_a"]
    options = {
        "side": 0 if params["left_side"] else 1,
        "lower": int(params["lower"]),
        "diag": int(params["unit_diagonal"]),
        "trans_a": 1 + bool(params["conjugate_a"]) if params["transpose_a"] else 0,
    }

    def solve(a: Array, b: Array) -> Sequence[Array]:
        return [trsm(1, a.conj() if conjugates else a, b, **options)]

    return _only(_batched(solve, ins, outs, len(ins[0].shape) - 2))


# --- LU -------------------------------------------------------------------------------------------------------


@primitive("lu")
def _lu(params: Params, ins: Types, outs: Types) -> Function:
    getrf = _routine("getrf", ins[0].dtype)
    rows = ins[0].shape[-2]

    def factor(a: Array) -> Sequence[float | Array]:
        factors, pivots, info = getrf(a)
        return np.nan if info < 0 else factors, pivots, _permuted(pivots, rows)

    return _batched(factor, ins, outs, len(ins[0].shape) - 2)


def _permuted(pivots: Array, size: int) -> Array:
    """The permutation of rows by swapping each with its pivot, in order: the original row at each position."""
    order = np.arange(size)
    for at, pivot in enumerate(pivots.tolist()):
        order[at], order[pivot] = order[pivot], order[at]
    return order


@primitive("lu_pivots_to_permutation")
def _lu_pivots_to_permutation(params: Params, ins: Types, outs: Types) -> Function:
    size = params["permutation_size"]

    def permutation(pivots: Array) -> Sequence[Array]:
        return [_permuted(pivots, size)]

    return _only(_batched(permutation, ins, outs, len(ins[0].shape) - 1))


# --- QR -------------------------------------------------------------------------------------------------------


@primitive("geqrf")
def _geqrf(params: Params, ins: Types, outs: Types) -> Function:
    geqrf = _routine("geqrf", ins[0].dtype)

    def factor(a: Array) -> Sequence[Array]:
        return geqrf(a)[:2]

    return _batched(factor, ins, outs, len(ins[0].shape) - 2)


@primitive("geqp3")
def _geqp3(params: Params, ins: Types, outs: Types) -> Function:
    geqp3 = _routine("geqp3", ins[0].dtype)

    def factor(a: Array, _: Array) -> Sequence[Array]:
        return geqp3(a)[:3]

    return _batched(factor, ins, outs, len(ins[0].shape) - 2)


@primitive("householder_product")
def _householder_product(params: Params, ins: Types, outs: Types) -> Function:
    orgqr = _routine("orgqr", ins[0].dtype)

    def product(a: Array, taus: Array) -> Sequence[Array]:
        return orgqr(a, taus)[:1]

    return _only(_batched(product, ins, outs, len(ins[0].shape) - 2))


@primitive("qr")
def _qr(params: Params, ins: Types, outs: Types) -> Function:
    (*batch, rows, columns), dtype = ins[0]
    geqrf, geqp3, orgqr = (_routine(name, dtype) for name in ("geqrf", "geqp3", "orgqr"))
    wanted = outs[0].shape[-1]

    def factor(a: Array) -> Sequence[Array]:
        if params["pivoting"]:
            r, order, taus, *_ = geqp3(a)
        else:
            (r, taus, *_), order = geqrf(a), np.zeros(0, int)
        q = np.zeros((rows, wanted), dtype)
        q[:, : min(columns, wanted)] = r[:, :wanted]
        return orgqr(q, taus)[0], np.triu(r[:wanted]), order - 1

    return _batched(factor, ins, outs, len(batch))


# --- eigenvalues and singular values --------------------------------------------------------------------------


@primitive("eigh")
def _eigh(params: Params, ins: Types, outs: Types) -> Function:
    (shape, dtype), lower = ins[0], int(params["lower"])
    if outs[1].shape != shape[:-1]:
        raise MissingPrimitive("eigh[subset_by_index]")
    syevd = _routine("syevd", dtype)

    def factor(a: Array) -> Sequence[Array] | None:
        values, vectors, info = syevd(a, lower=lower)
        return _if_done(info, vectors, values)

    return _batched(factor, ins, outs, len(shape) - 2)


@primitive("eig")
def _eig(params: Params, ins: Types, outs: Types) -> Function:
    (shape, dtype) = ins[0]
    left, right = params["compute_left_eigenvectors"], params["compute_right_eigenvectors"]
    geev = _routine("geev", dtype)

    def factor(a: Array) -> Sequence[Array] | None:
        *values, of_left, of_right, info = geev(a, compute_vl=left, compute_vr=right)
        if dtype.kind == "c":
            return _if_done(info, values[0], *[v for v, kept in ((of_left, left), (of_right, right)) if kept])
        imag = values[1]
        vectors = [_paired(v, imag) for v, kept in ((of_left, left), (of_right, right)) if kept]
        return _if_done(info, values[0] + 1j * imag, *vectors)

    return _batched(factor, ins, outs, len(shape) - 2)


def _paired(parts: Array, imag: Array) -> Array:
    """Complex eigenvectors from LAPACK's real columns.

    Two conjugate eigenvalues have two adjacent columns: the real and the imaginary part of the first one's vector.
    """
    vectors = parts.astype(np.result_type(parts, 1j))
    for at in np.flatnonzero(imag > 0):
        vectors[:, at] = parts[:, at] + 1j * parts[:, at + 1]
        vectors[:, at + 1] = vectors[:, at].conj()
    return vectors


@primitive("svd")
def _svd(params: Params, ins: Types, outs: Types) -> Function:
    (shape, dtype), uv = ins[0], params["compute_uv"]
    if outs[0].shape[-1] != min(shape[-2:]):
        raise MissingPrimitive("svd[subset_by_index]")
    algorithm = getattr(params.get("algorithm"), "name", "DEFAULT")
    if algorithm not in ("DEFAULT", "QR", "DIVIDE_AND_CONQUER"):
        raise MissingPrimitive(f"svd[{algorithm}]")
    routine = _routine("gesvd" if algorithm == "QR" else "gesdd", dtype)
    decompose = partial(routine, compute_uv=int(uv), full_matrices=int(params["full_matrices"]))

    def factor(a: Array) -> Sequence[Array] | None:
        u, s, vt, info = decompose(a)
        return _if_done(info, s, u, vt)

    return _batched(factor, ins, outs, len(shape) - 2)


# --- other forms ----------------------------------------------------------------------------------------------


@primitive("schur")
def _schur(params: Params, ins: Types, outs: Types) -> Function:
    gees = _routine("gees", ins[0].dtype)
    if params["sort_eig_vals"]:
        raise MissingPrimitive("schur[sort_eig_vals]")

    def factor(a: Array) -> Sequence[Array] | None:
        form, *_, vectors, _, info = gees(_never, a, compute_v=int(params["compute_schur_vectors"]))
        return _if_done(info, form, vectors)

    return _batched(factor, ins, outs, len(ins[0].shape) - 2)


def _never(*_: object) -> bool:
    """The selection of eigenvalues to put first, which `gees` takes: none."""
    return False


@primitive("hessenberg")
def _hessenberg(params: Params, ins: Types, outs: Types) -> Function:
    gehrd = _routine("gehrd", ins[0].dtype)

    def factor(a: Array) -> Sequence[Array] | None:
        form, taus, info = gehrd(a)
        return _if_done(info, form, taus)

    return _batched(factor, ins, outs, len(ins[0].shape) - 2)


@primitive("tridiagonal")
def _tridiagonal(params: Params, ins: Types, outs: Types) -> Function:
    sytrd = _routine("sytrd", ins[0].dtype)

    def factor(a: Array) -> Sequence[Array] | None:
        *results, info = sytrd(a, lower=int(params["lower"]))
        return _if_done(info, *results)

    return _batched(factor, ins, outs, len(ins[0].shape) - 2)


@primitive("tridiagonal_solve")
def _tridiagonal_solve(params: Params, ins: Types, outs: Types) -> Function:
    if params.get("perturb_singular"):
        raise MissingPrimitive("tridiagonal_solve[perturb_singular]")
    gtsv = _routine("gtsv", ins[3].dtype)

    def solve(lower: Array, diagonal: Array, upper: Array, b: Array) -> Sequence[Array] | None:
        *_, x, info = gtsv(lower[1:], diagonal, upper[:-1], b)
        return _if_done(info, x)

    return _only(_batched(solve, ins, outs, len(ins[3].shape) - 2))
