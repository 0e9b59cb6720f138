"""The factors of symmetric matrices that need not be definite, and systems solved with them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import jax
import jax.numpy as jnp
from jax import lax

from weft._base.dtype import COMPLEX, INTEGER
from weft.errors import DTypeError, LinAlgError, ShapeError
from weft.ops._dims import Factors, NameOf, Sizes, broadcast_shapes
from weft.ops._findings import Failures
from weft.ops._kinds import Array
from weft.ops._rows import category
from weft.ops._table import INTERNAL, Check, Public, defop
from weft.ops._type_names import scalar_name
from weft.ops.decomposition import MATRIX, NUMBER, VECTOR, Outs, batches, check_floating, check_square, factorises

Transposed = Callable[[Array], Array]
"""What makes a column a row: the conjugate for Hermitian matrices."""

_ALPHA = (1 + 17**0.5) / 8
"""Up to which growth a block of one row is preferred."""


def _size(x: Array) -> Array:
    """Absolute values; of complex numbers, the sum of those of the parts, as in LAPACK."""
    return jnp.abs(x.real) + jnp.abs(x.imag) if category(x) == COMPLEX else jnp.abs(x)


def _choose(rest: Array, k: Array) -> tuple[Array, Array]:
    """The row to exchange, and whether the block has two rows, by Bunch and Kaufman's rule (1977)."""
    at = jnp.arange(rest.shape[0])
    column = jnp.where(at > k, _size(rest[:, k]), -1)
    other = jnp.argmax(column)
    own, most = _size(rest[k, k]), jnp.maximum(column[other], 0)
    row = jnp.where((at >= k) & (at != other), _size(rest[other]), 0)
    widest = jnp.maximum(jnp.max(row), most)
    single = (own >= _ALPHA * most) | (own * widest >= _ALPHA * most * most)
    exchanged = single | (_size(rest[other, other]) >= _ALPHA * widest)
    return jnp.where(single, k, other), ~exchanged & (k < rest.shape[0] - 1)


def _swapped(at: Array, first: Array, second: Array) -> Array:
    """The order in which two places are exchanged."""
    return jnp.where(at == first, second, jnp.where(at == second, first, at))


Block = tuple[Array, Array, Array, Array, Array]
"""Rows k and k + 1 of the block, whether it has two, and its columns of the rest of the matrix."""


def _single_columns(at: Array, block: Block) -> tuple[Array, Array]:
    """The column of L below a block of one row, and what it takes with its column from the rest."""
    k, _, _, w, _ = block
    below = jnp.where(at > k, w, 0)
    return below / jnp.where(w[k] == 0, 1, w[k]), below


def _double_columns(at: Array, block: Block, turned: Transposed) -> tuple[Array, Array]:
    """The two columns of L below a block of two rows: the columns of the rest times its inverse, which is scaled."""
    k, after, double, w, v = block
    scale = jnp.where(double, jnp.abs(w[after]), 1)
    p, q, r, s = (jnp.where(double, x / scale, 0) for x in (w[k], w[after], turned(w[after]), v[after]))
    determinant = jnp.where(double, (p * s - q * r) * scale, 1)
    left, right = (jnp.where(at > after, x / determinant, 0) for x in (s * w - q * v, p * v - r * w))
    return left, right


def _step(k: Array, state: tuple[Array, ...], turned: Transposed) -> tuple[Array, ...]:
    """Take the block that starts at row k from the rest of the matrix."""
    rest, factors, pivots, info, _ = state
    count = rest.shape[0]
    at, after = jnp.arange(count), jnp.minimum(k + 1, count - 1)
    # A block of two where no single pivot is large enough: elements then grow by a bounded factor (Bunch and Kaufman,
    # 1977).
    row, double = _choose(rest, k)
    order = _swapped(at, k + double, row)
    rest = rest[order][:, order]
    block = k, after, double, rest[:, k], rest[:, after]
    w, v = block[3:]
    one, below = _single_columns(at, block)
    left, right = _double_columns(at, block, turned)
    product = jnp.where(double, jnp.outer(left, turned(w)) + jnp.outer(right, turned(v)), jnp.outer(one, turned(below)))
    first = jnp.where(at == k, w[k], jnp.where(double, jnp.where(at == after, w[after], left), one))
    second = jnp.where(double, jnp.where(at == after, v[after], right), 0)
    # LAPACK's way to write pivots: from 1, and negative for blocks of two.
    number = jnp.where(double, -1 - row, row + 1).astype(jnp.int32)
    zero = ~double & (jnp.max(jnp.where(at >= k, _size(w), 0)) == 0)
    return (
        rest - product,
        factors.at[:, k].add(first).at[:, after].add(second),
        jnp.where((at == k) | (double & (at == after)), number, pivots),
        jnp.where((info == 0) & zero, k + 1, info).astype(jnp.int32),
        double,
    )


def _factored(A: Array, hermitian: bool) -> Outs:
    """LAPACK's `sytf2` or `hetf2` for the lower triangle of one matrix."""
    turned: Transposed = jnp.conj if hermitian else lambda x: x
    diagonal = jnp.diagonal(A).real.astype(A.dtype) if hermitian else jnp.diagonal(A)
    strict = jnp.tril(A, -1)

    def step(k: Array, state: tuple[Array, ...]) -> tuple[Array, ...]:
        unchanged = *state[:-1], jnp.zeros((), bool)  # the second row of a block is done
        return tuple(jnp.where(state[-1], x, y) for x, y in zip(unchanged, _step(k, state, turned), strict=True))

    start = (
        strict + turned(strict.T) + jnp.diag(diagonal),
        jnp.zeros_like(A),
        jnp.zeros(A.shape[0], jnp.int32),
        jnp.zeros((), jnp.int32),
        jnp.zeros((), bool),
    )
    return lax.fori_loop(0, A.shape[0], step, start)[1:4]


def _all_factors(A: Array, hermitian: bool) -> Outs:
    check_square("torch.linalg.ldl_factor_ex", A)
    check_floating("torch.linalg.ldl_factor_ex", A)
    if not A.size:
        batch = A.shape[:-2]
        return A, jnp.zeros(A.shape[:-1], jnp.int32), jnp.zeros(batch, jnp.int32)
    function = jnp.vectorize(partial(_factored, hermitian=hermitian), signature="(n,n)->(n,n),(n),()")
    return tuple(function(A))


_packs = partial(factorises, public=INTERNAL)


@_packs(dims=batches(MATRIX, VECTOR, NUMBER), outputs=("LD", "pivots", "info"))
def ldl_factors(A: Array, *, hermitian: bool = False) -> Outs:
    """L and the block diagonal D of symmetric (or Hermitian) matrices in one, as LAPACK packs them, the row exchanges,
    and the place of the first block of zeros, or 0. Two rows of one block have one pivot, which is negative.
    """
    return _all_factors(A, hermitian)


ZERO_BLOCK = (
    "torch.linalg.ldl_factor: {0}the block of D at row {1} is zero, so the factors would divide by zero in ldl_solve. "
    "If you still want them, call linalg.ldl_factor_ex"
)
"""The error's text for the factors of a singular matrix."""


@_packs(
    dims=batches(MATRIX, VECTOR),
    outputs=("LD", "pivots"),
    check=Check(
        elements=lambda A, *, hermitian=False: Failures(_all_factors(A, hermitian)[2]),
        text=ZERO_BLOCK,
        error=LinAlgError,
    ),
)
def dividing_ldl_factors(A: Array, *, hermitian: bool = False) -> Outs:
    """`ldl_factors` without the place; `LinAlgError` if there is one."""
    return _all_factors(A, hermitian)[:2]


# ---- solutions


def _unpacked(factors: Array, pivots: Array) -> tuple[Array, Array]:
    """The unit lower triangular factor of the matrix with its rows in order, and that order."""
    count = factors.shape[0]
    at = jnp.arange(count)
    second = _is_second(pivots)

    def exchange(k: Array, state: tuple[Array, Array]) -> tuple[Array, Array]:
        lower, order = state
        row = jnp.abs(pivots[k]) - 1
        double = pivots[k] < 0
        swap = jnp.where(double & ~second[k], at, _swapped(at, k, row))
        columns = at < k - (double & second[k])
        return jnp.where(columns, lower[swap], lower), order[swap]

    below = at[:, None] > at + ((pivots < 0) & ~second)
    lower = jnp.where(below, factors, 0) + jnp.eye(count, dtype=factors.dtype)
    return lax.fori_loop(0, count, exchange, (lower, at))


def _is_second(pivots: Array) -> Array:
    """Which rows are the second of a block."""
    negative = pivots < 0
    return negative & (jnp.cumsum(negative) % 2 == 0)


def _solved(factors: Array, pivots: Array, B: Array, hermitian: bool) -> Array:
    """The solution for one matrix: `L D L^T` with exchanged rows (LAPACK's `sytrs`)."""
    lower, order = _unpacked(factors, pivots)
    upper = jnp.conj(lower.T) if hermitian else lower.T
    half = jax.scipy.linalg.solve_triangular(lower, B[order], lower=True, unit_diagonal=True)
    scaled = _divided(factors, _is_second(pivots), pivots < 0, half, hermitian)
    x = jax.scipy.linalg.solve_triangular(upper, scaled, lower=False, unit_diagonal=True)
    return jnp.zeros_like(x).at[order].set(x)


def _divided(factors: Array, second: Array, double: Array, B: Array, hermitian: bool) -> Array:
    """The solution with the block diagonal factor."""
    diagonal = jnp.diagonal(factors)
    below = jnp.append(jnp.diagonal(factors, -1), 0)
    other = jnp.where(second, jnp.roll(diagonal, 1), jnp.roll(diagonal, -1))
    lower = jnp.where(second, jnp.roll(below, 1), below)
    upper = jnp.conj(lower) if hermitian else lower
    neighbour = jnp.where(second[:, None], jnp.roll(B, 1, 0), jnp.roll(B, -1, 0))
    across = jnp.where(second, lower, upper)
    scale = jnp.where(double, jnp.abs(lower), 1)
    determinant = (diagonal / scale) * other - (lower / scale) * upper
    paired = ((other / scale)[:, None] * B - (across / scale)[:, None] * neighbour) / jnp.where(double, determinant, 1)[
        :, None
    ]
    return jnp.where(double[:, None], paired, B / jnp.where(double, 1, diagonal)[:, None])


def _solve_dims(shapes: Sequence[Sizes]) -> Factors:
    ndim = max(len(shapes[0]), len(shapes[2])) - 2
    ins = tuple(
        (*range(ndim - len(s) + len(tail), ndim), *tail)
        for s, tail in zip(shapes, (("row", "column"), ("row",), (NameOf("row"), "right")), strict=True)
    )
    return Factors(ins, ((*range(ndim), NameOf("column"), "right"),), frozenset({"row", "column"}))


@defop(dims=_solve_dims, public=Public(out="", module="linalg"))
def ldl_solve(LD: Array, pivots: Array, B: Array, *, hermitian: bool = False) -> Array:
    """The X with `A X = B`, from the factors of `ldl_factor`."""
    name = "torch.linalg.ldl_solve"
    check_square(name, LD)
    check_floating(name, LD)
    if B.ndim < 2:
        raise ShapeError(f"{name}: Expected B to have at least 2 dimensions, but it has {B.ndim} dimensions instead")
    if LD.shape[:-1] != pivots.shape:
        raise ShapeError(
            f"{name}: Expected LD.shape[:-1] and pivots.shape to be the same, but got pivots with shape "
            f"{list(pivots.shape)} instead"
        )
    if category(pivots) != INTEGER:
        raise DTypeError(f"{name}: Expected pivots to be integers. Got {scalar_name(pivots)}")
    if LD.dtype != B.dtype:
        raise DTypeError(
            f"Expected b and A to have the same dtype, but found b of type {scalar_name(B)} and A of type "
            f"{scalar_name(LD)} instead."
        )
    if LD.shape[-1] != B.shape[-2]:
        sizes = "{} by {}".format(*LD.shape[-2:]), "{} by {}".format(*B.shape[-2:])
        raise ShapeError(
            f"Incompatible matrix sizes for {name}: each A matrix is {sizes[0]} but each b matrix is {sizes[1]}"
        )
    batch = broadcast_shapes(LD.shape[:-2], B.shape[:-2])
    if not B.size:
        return jnp.zeros((*batch, *B.shape[-2:]), B.dtype)
    solve = partial(_solved, hermitian=hermitian)
    return jnp.vectorize(solve, signature="(n,n),(n),(n,m)->(n,m)")(LD, pivots, B)
