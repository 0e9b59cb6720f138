"""Membership, indices of nonzero elements, and histograms with given edges."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import jax.numpy as jnp

from weft._base.dtype import FLOAT, INTEGER
from weft.errors import DTypeError, ShapeError
from weft.ops._dims import Factors, Sizes
from weft.ops._rows import category, require
from weft.ops._shape_dims import fresh
from weft.ops._table import OTHER_OUT, Array, Operand, Promote, defop
from weft.ops._type_names import scalar_name


def _isin_dims(shapes: Sequence[Sizes], static: Mapping[str, Any]) -> Factors:
    del static
    elements, tested = (tuple(f"{n}:{d}" for d in range(len(s))) for n, s in enumerate(shapes))
    return Factors((elements, tested), (elements,), frozenset(tested))


@defop(dims=_isin_dims, promote=Promote.COMMON, differentiable=False, method=False, out_text=OTHER_OUT)
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


@defop(dims=fresh(2), differentiable=False)
def nonzero_static(input: Array, *, size: int, fill_value: int = -1) -> Array:
    """Indices of the first `size` nonzero elements, one in each row; missing rows hold `fill_value`."""
    if size < 0:
        raise ShapeError("nonzero_static: 'size' must be an non-negative integer")
    if not input.ndim:
        return jnp.zeros((size, 0), jnp.int64)
    return jnp.stack(jnp.nonzero(input, size=size, fill_value=fill_value), -1).astype(jnp.int64)


@defop(dims=fresh(1), differentiable=False, function=False, method=False)
def histogram_counts(input: Array, edges: Array, weight: Array | None = None, *, density: bool = False) -> Array:
    """Elements counted, or their weights summed, from each edge up to the next; the last bin includes both edges.

    With `density` the result is divided by the widths and by its sum, so that its integral is one.
    """
    require(input, "histogramdd", FLOAT)
    flat = input.reshape(-1)
    bins = edges.shape[0] - 1
    place = jnp.searchsorted(edges, flat, side="right") - 1
    place = jnp.where(flat == edges[-1], bins - 1, place)
    kept = (flat >= edges[0]) & (flat <= edges[-1])
    worth = jnp.ones_like(flat) if weight is None else weight.reshape(-1).astype(flat.dtype)
    counts = jnp.zeros(bins, flat.dtype).at[jnp.where(kept, place, bins)].add(worth, mode="drop")
    return counts / counts.sum() / jnp.diff(edges) if density else counts
