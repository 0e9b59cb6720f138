"""Membership, indices of nonzero elements, and histograms with given edges."""

from __future__ import annotations

import math
from collections.abc import Sequence

import jax.numpy as jnp

from weft._base.dtype import FLOAT, INTEGER
from weft.errors import DTypeError, ShapeError
from weft.ops._dims import Factors, Sizes
from weft.ops._kinds import Array, Arrays, Operand, Whole
from weft.ops._rows import category, require
from weft.ops._shape_dims import fresh
from weft.ops._table import COMMON_TYPE, INTERNAL, NO_DERIVATIVE, OTHER_OUT, Public, defop
from weft.ops._type_names import scalar_name


def _isin_dims(shapes: Sequence[Sizes]) -> Factors:
    elements, tested = (tuple(f"{n}:{d}" for d in range(len(s))) for n, s in enumerate(shapes))
    return Factors((elements, tested), (elements,), frozenset(tested))


@defop(dims=_isin_dims, types=COMMON_TYPE, derivative=NO_DERIVATIVE, public=Public(method="", out=OTHER_OUT))
def isin(elements: Operand, test_elements: Operand, *, assume_unique: bool = False, invert: bool = False) -> Array:
    """Whether each element is among the tested ones, or is not if `invert`; NaN is among none."""
    del assume_unique
    if category(elements) not in (INTEGER, FLOAT):
        raise DTypeError(f"Unsupported input type encountered for isin(): {scalar_name(elements)}")
    tested = jnp.sort(test_elements.reshape(-1))
    if not tested.size:
        return jnp.full(elements.shape, invert)
    near = tested[jnp.searchsorted(tested, elements).clip(0, tested.size - 1)]
    return (near != elements) if invert else (near == elements)


@defop(dims=fresh(2), derivative=NO_DERIVATIVE)
def nonzero_static(input: Array, *, size: int, fill_value: Whole = -1) -> Array:
    """Indices of the first `size` nonzero elements, one in each row; missing rows hold `fill_value`."""
    if size < 0:
        raise ShapeError("nonzero_static: 'size' must be an non-negative integer")
    if not input.ndim:
        return jnp.zeros((size, 0), jnp.int64)
    places = jnp.stack(jnp.nonzero(input, size=size), -1).astype(jnp.int64)
    return jnp.where((jnp.arange(size) < jnp.count_nonzero(input))[:, None], places, fill_value)


@defop(dims=fresh(1), derivative=NO_DERIVATIVE, public=INTERNAL)
def histogram_counts(input: Array, edges: Array, weight: Array | None = None, *, density: bool = False) -> Array:
    """Elements counted, or their weights summed, from each edge up to the next; the last bin includes both edges.

    With `density` the result is divided by the widths and by its sum, so that its integral is one.
    """
    return _counts(input.reshape(-1, 1), [edges], weight, density)


def _cells(shapes: Sequence[Sizes]) -> Factors:
    return fresh(shapes[0][-1])(shapes)


@defop(dims=_cells, derivative=NO_DERIVATIVE, public=INTERNAL)
def histogramdd_counts(input: Array, edges: Arrays, weight: Array | None = None, *, density: bool = False) -> Array:
    """As `histogram_counts`, of the vectors in the innermost dim, in the cells of a grid."""
    return _counts(input.reshape(-1, len(edges)), edges, weight, density)


def _counts(points: Array, edges: Sequence[Array], weight: Array | None, density: bool) -> Array:
    require(points, "histogramdd", FLOAT)
    shape = tuple(bounds.shape[0] - 1 for bounds in edges)
    cell, kept = jnp.zeros(points.shape[0], jnp.int64), jnp.ones(points.shape[0], bool)
    for column, bounds, bins in zip(points.T, edges, shape, strict=True):
        place = jnp.searchsorted(bounds, column, side="right") - 1
        # The last bin has its right edge, too, as in NumPy and PyTorch.
        place = jnp.where(column == bounds[-1], bins - 1, place)
        kept &= (column >= bounds[0]) & (column <= bounds[-1])
        cell = cell * bins + place
    cells = math.prod(shape)
    worth = jnp.ones(len(points), points.dtype) if weight is None else weight.reshape(-1).astype(points.dtype)
    # What lies outside goes to a cell that does not exist, which drops it without a size that depends on values.
    counts = jnp.zeros(cells, points.dtype).at[jnp.where(kept, cell, cells)].add(worth, mode="drop").reshape(shape)
    if not density:
        return counts
    counts = counts / counts.sum()
    for dim, bounds in enumerate(edges):
        counts = counts / jnp.diff(bounds).reshape([-1 if d == dim else 1 for d in range(len(shape))])
    return counts
