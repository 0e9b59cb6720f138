"""Contractions by equation, and other operators on vectors and matrices."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import inf

import jax.numpy as jnp
import numpy as np

from weft._base.dtype import COMPLEX, FLOAT, INTEGER
from weft._base.types import AnyCallable
from weft.errors import DTypeError, OutOfRangeError, ShapeError
from weft.ops._autocast import ACCELERATOR_PROMOTE, CPU_FLOAT32, Cast, PerDevice
from weft.ops._dims import Factors, Letters, PartOf, Sizes, Static, broadcast_shapes, wrap_dim
from weft.ops._dims import einsum as einsum_rule
from weft.ops._equation import LETTERS, parse
from weft.ops._kinds import Array, Arrays, DTypeArg, OwnDim
from weft.ops._memory import require_room
from weft.ops._rows import category, documented, factory, require, unbroadcast
from weft.ops._shape_dims import fresh, once
from weft.ops._table import (
    COMMON_TYPE,
    IN_FLOAT32,
    IS_LINEAR,
    LOWERED,
    NO_FUNCTION,
    Arithmetic,
    Derivative,
    Public,
    Shards,
    Types,
    defop,
)
from weft.ops._type_names import scalar_name

# --- contractions ---


def _einsum_dims(shapes: Sequence[Sizes], static: Static) -> Factors:
    """Names of subscripts that are summed over are not compared; one that an operand has twice has no name there."""
    terms = parse(static["equation"], shapes)

    def spelled(term: Sequence[int]) -> Letters:
        letters = [LETTERS[x] if x < len(LETTERS) else x for x in term]  # dims under an ellipsis are lined up
        carries = [x in terms.out and term.count(x) == 1 for x in term]
        return tuple(x if own else PartOf(x) for x, own in zip(letters, carries, strict=True))

    return Factors(tuple(map(spelled, terms.ins)), (spelled(terms.out),))


def _without_stretched(operand: Array, term: Sequence[int], sizes: Mapping[int, int]) -> tuple[Array, list[int]]:
    """Drop dims of size one whose letter has a larger size elsewhere: they broadcast."""
    kept = [d for d, letter in enumerate(term) if operand.shape[d] == sizes[letter]]
    return operand.reshape([operand.shape[d] for d in kept]), [term[d] for d in kept]


@defop(dims=_einsum_dims, types=LOWERED, shards=Shards(partial="sum", linear="each"), public=NO_FUNCTION)
def einsum(operands: Arrays, equation: str) -> Array:
    """Sum of products over the subscripts that are missing from the result."""
    for other in operands[1:]:
        if other.dtype != operands[0].dtype:
            words = f"{scalar_name(operands[0])} but found {scalar_name(other)}"
            raise DTypeError(f"expected scalar type {words}")
    terms = parse(equation, [x.shape for x in operands])
    if len(operands) == 1 and category(operands[0]) < FLOAT and set(terms.ins[0]) - set(terms.out):
        operands = (operands[0].astype(jnp.int64),)  # sums of integers are int64
    pairs = [_without_stretched(x, term, terms.sizes) for x, term in zip(operands, terms.ins, strict=True)]
    return jnp.einsum(*(arg for pair in pairs for arg in pair), list(terms.out))


def _tensordot_dims(shapes: Sequence[Sizes], static: Static) -> Factors:
    met = {("b", d): PartOf(c) for c, d in zip(static["dims_a"], static["dims_b"], strict=True)}
    met |= {("a", c): PartOf(c) for c in static["dims_a"]}
    ins = tuple([tuple(met.get((x, d), (x, d)) for d in range(len(s))) for x, s in zip("ab", shapes, strict=True)])
    return Factors(ins, (tuple(x for term in ins for x in term if not isinstance(x, PartOf)),))


@defop(
    types=Types(autocast=PerDevice(cpu=Cast.LOWER, accelerator=Cast.PROMOTE), arithmetic=Arithmetic.OWN),
    dims=_tensordot_dims,
    shards=Shards(partial="sum", linear="each"),
    public=NO_FUNCTION,
)
def tensordot(a: Array, b: Array, dims_a: tuple[int, ...], dims_b: tuple[int, ...]) -> Array:
    """Sum of products over pairs of dims; the other dims of `a`, then of `b` stay."""
    for dims in (dims_a, dims_b):
        once(dims)
    stretched = [(c, d) for c, d in zip(dims_a, dims_b, strict=True) if a.shape[c] != b.shape[d]]
    for c, d in stretched:
        if 1 not in (a.shape[c], b.shape[d]):
            raise ShapeError(
                f"contracted dimensions need to match, but first has size {a.shape[c]} in dim {c} and "
                f"second has size {b.shape[d]} in dim {d}"
            )
    if a.dtype != b.dtype:
        raise DTypeError("both inputs should have same dtype")
    require(a, "addmm_impl_cpu_", INTEGER, FLOAT, COMPLEX)
    if stretched:  # a dim of size one is paired with every slice of the other, so these can be summed first
        a = a.sum([c for c, _ in stretched], dtype=a.dtype, keepdims=True)
        b = b.sum([d for _, d in stretched], dtype=b.dtype, keepdims=True)
    return jnp.tensordot(a, b, (dims_a, dims_b))


@defop(dims=lambda shapes, static: fresh(max(map(len, shapes)))(shapes), types=COMMON_TYPE)
def kron(input: Array, other: Array) -> Array:
    """Every element of `input` times the whole of `other`, as blocks."""
    ndim = max(input.ndim, other.ndim)
    a, b = (x.reshape((1,) * (ndim - x.ndim) + x.shape) for x in (input, other))
    blocks = jnp.expand_dims(a, range(1, 2 * ndim, 2)) * jnp.expand_dims(b, range(0, 2 * ndim, 2))
    return blocks.reshape([m * n for m, n in zip(a.shape, b.shape, strict=True)])


# --- vectors and matrices ---


@defop(dims=fresh(0), types=Types(autocast=CPU_FLOAT32), shards=IS_LINEAR)
def trace(input: Array) -> Array:
    """Sum of a matrix's diagonal; integers add up to int64."""
    if input.ndim != 2:
        raise ShapeError(f"trace: expected a matrix, but got tensor with dim {input.ndim}")
    require(input, "trace", INTEGER, FLOAT, COMPLEX)
    return jnp.trace(input, dtype=jnp.int64 if category(input) == INTEGER else None)


def _three(a: Sizes, b: Sizes, dim: int | None) -> int:
    """The dim of size three to use; if `dim` is None, the first one of that size."""
    if len(a) != len(b):
        raise ShapeError("linalg.cross: inputs must have the same number of dimensions.")
    if dim is None:
        if 3 not in a:
            raise ShapeError("no dimension of size 3 in input")
        dim = a.index(3)
    at = wrap_dim(dim, len(a))
    if a[at] != 3 or b[at] != 3:
        raise ShapeError(f"linalg.cross: inputs dimension {dim} must have length 3. Got {a[at]} and {b[at]}")
    return at


def _cross_dims(shapes: Sequence[Sizes], static: Static) -> Factors:
    at = _three(shapes[0], shapes[1], static["dim"])
    letters = tuple(range(len(broadcast_shapes(*shapes))))
    return Factors((letters, letters), (letters,), frozenset({at}))


@defop(
    derivative=Derivative(name="LinalgCross"),
    dims=_cross_dims,
    types=Types(autocast=ACCELERATOR_PROMOTE),
    shards=IS_LINEAR,
)
def cross(input: Array, other: Array, dim: OwnDim | None = None) -> Array:
    """Vector products along a dim of size three, by default the first."""
    at = _three(input.shape, other.shape, dim)
    if input.dtype != other.dtype:
        raise DTypeError(f"expected scalar type {scalar_name(input)} but found {scalar_name(other)}")
    require(input, "cross", INTEGER, FLOAT, COMPLEX)
    return jnp.cross(input, other, axis=at)


# --- distances ---


def _differences(x1: Array, x2: Array) -> Array:
    return x1[..., :, None, :] - x2[..., None, :, :]  # (..., rows of x1, rows of x2, columns)


def _distances(x1: Array, x2: Array, p: float) -> Array:
    size = jnp.abs(_differences(x1, x2))
    if p == 0:
        return jnp.sum(size != 0, -1).astype(x1.dtype)
    if p == inf:
        return jnp.max(size, -1, initial=0)
    if p == 2:
        return jnp.sqrt(jnp.sum(size * size, -1))
    return jnp.sum(size, -1) if p == 1 else jnp.sum(size**p, -1) ** (1 / p)


def _cdist_vjp(g: Array, out: Array, x1: Array, x2: Array, p: float) -> tuple[Array, Array]:
    """The gradient: 0 where rows are equal, else `sign(d) * (|d| / distance) ** (p - 1)`; at inf, to the maximum."""
    diff = _differences(x1, x2)
    far = (out != 0)[..., None]
    # Rows that are equal have distance 0 and gradient 0, as in PyTorch; dividing by 1 keeps NaN out.
    ratio = jnp.abs(diff) / jnp.where(far, out[..., None], 1)
    if p in (0, inf):
        slope = jnp.sign(diff) * ((jnp.abs(diff) == out[..., None]) & far) * (p == inf)
    else:
        live = far & ((diff != 0) | (p >= 1))
        slope = jnp.where(live, jnp.sign(diff) * jnp.where(diff != 0, ratio, p >= 1) ** (p - 1), 0)
    flow = g[..., None] * slope
    return unbroadcast(flow.sum(-2), x1), unbroadcast(-flow.sum(-3), x2)


@defop(dims=einsum_rule("... p k, ... r k -> ... p r"), types=IN_FLOAT32, derivative=Derivative(vjp=_cdist_vjp))
def cdist(x1: Array, x2: Array, p: float = 2.0, compute_mode: str | None = None) -> Array:
    """Distance in the p-norm between every row of `x1` and every row of `x2`.

    `compute_mode` chooses an algorithm in PyTorch; here it is ignored, and the result is always exact.
    """
    del compute_mode
    for name, x in (("X1", x1), ("X2", x2)):
        if category(x) != FLOAT:
            raise DTypeError(f"cdist only supports floating-point dtypes, {name} got: {scalar_name(x)}")
        if x.ndim < 2:
            raise ShapeError(f"cdist only supports at least 2D tensors, {name} got: {x.ndim}D")
    if x1.shape[-1] != x2.shape[-1]:
        raise ShapeError(f"X1 and X2 must have the same number of columns. X1: {x1.shape[-1]} X2: {x2.shape[-1]}")
    if p < 0:
        raise OutOfRangeError("cdist only supports non-negative p values")
    if x1.dtype != x2.dtype:
        raise DTypeError(f"expected scalar type {scalar_name(x1)} but found {scalar_name(x2)}")
    return _distances(x1, x2, p)


# --- indices of triangles ---


def _triangle_indices(name: str, positions: AnyCallable, doc: str) -> None:
    def body(row: int, col: int, offset: int = 0, *, dtype: DTypeArg = None) -> Array:
        for label, size in (("row", row), ("col", col)):
            if size < 0:
                raise ShapeError(f"{label} must be non-negative, got{size}")
        require_room((row, col), np.dtype(bool))  # the mask that NumPy makes
        indices = np.stack(positions(row, offset, col))
        return jnp.asarray(indices, dtype.numpy if dtype else jnp.int64)

    factory(name, public=Public(factory=True))(documented(body, name, doc))


_triangle_indices("tril_indices", np.tril_indices, "Row and column numbers of a lower triangle.")
_triangle_indices("triu_indices", np.triu_indices, "Row and column numbers of an upper triangle.")
