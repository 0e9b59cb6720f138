"""Sorting, the largest and smallest elements, and search in sorted values."""

from __future__ import annotations

from collections.abc import Sequence

import jax
import jax.numpy as jnp

from weft.errors import DTypeError, IndexDomainError, OutOfRangeError, ShapeError
from weft.ops._dims import Factors, Sizes, Static, along
from weft.ops._kinds import Array, Dim, IntDim, Operand
from weft.ops._reduce import (
    is_complex,
    is_inexact,
    is_nan,
    lifted,
    moved_vjp,
    positions,
    twice,
)
from weft.ops._rows import refuse_complex
from weft.ops._table import NO_ARITHMETIC, NO_DERIVATIVE, NO_METHOD, Check, Derivative, defop
from weft.ops._type_names import scalar_name

_along_twice = twice(along)


def ranked(x: jax.Array, dim: int, descending: bool = False) -> tuple[jax.Array, jax.Array]:
    """Sorted elements along `dim`, and their indices. The sort is stable; NaN counts as the largest."""
    if is_complex(x.dtype):
        raise DTypeError(" Sort does not support complex dtypes on CPU")
    pair = (x, positions(x.shape, dim))
    if descending:  # sorting the reversed array and reversing the result keeps ties in order
        pair = tuple(jnp.flip(v, dim) for v in pair)
    values, indices = jax.lax.sort(pair, dimension=dim, is_stable=True, num_keys=1)
    if descending:
        values, indices = jnp.flip(values, dim), jnp.flip(indices, dim)
    return values, indices


@defop(types=NO_ARITHMETIC, dims=_along_twice, outputs=("values", "indices"), derivative=Derivative(vjp=moved_vjp))
@lifted
def sort(input: Array, dim: Dim = -1, descending: bool = False, *, stable: bool | None = False) -> tuple[Array, Array]:
    """Sorted elements along `dim`, and the index that each came from. Always stable."""
    return ranked(input, dim, descending)


@defop(types=NO_ARITHMETIC, dims=along)
@lifted
def argsort(input: Array, dim: Dim = -1, descending: bool = False, *, stable: bool = False) -> Array:
    """Indices that sort the input along `dim`; int64. Always stable."""
    return ranked(input, dim, descending)[1]


def _along_first(shapes: Sequence[Sizes], static: Static) -> Factors:
    return along(shapes, {**static, "dim": 0})


@defop(types=NO_ARITHMETIC, dims=_along_first)
@lifted
def msort(input: Array) -> Array:
    """Sorted elements along the first dim."""
    return ranked(input, 0)[0]


@defop(types=NO_ARITHMETIC, dims=_along_twice, outputs=("values", "indices"), derivative=Derivative(vjp=moved_vjp))
@lifted
def topk(input: Array, k: int, dim: IntDim = -1, largest: bool = True, sorted: bool = True) -> tuple[Array, Array]:
    """The `k` largest or smallest elements along `dim` in order, and their indices."""
    if is_complex(input.dtype) or input.dtype == jnp.bool_:
        kind = "complex" if is_complex(input.dtype) else "bool"
        raise DTypeError(f"topk does not support {kind} dtypes on CPU")
    if not 0 <= k <= input.shape[dim]:
        raise ShapeError("selected index k out of range")
    if largest:
        # top_k ranks NaN by its sign, so all NaNs are made positive, which ranks them largest
        x = jnp.where(is_nan(input), jnp.nan, input) if is_inexact(input.dtype) else input
        values, indices = jax.lax.top_k(jnp.moveaxis(x, dim, -1), k)
        return jnp.moveaxis(values, -1, dim), jnp.moveaxis(indices, -1, dim).astype(jnp.int64)
    values, indices = (jax.lax.slice_in_dim(v, 0, k, axis=dim) for v in ranked(input, dim))
    return values, indices


def _searches(shapes: Sequence[Sizes]) -> Factors:
    """The sorted dim is whole; the values have a last dim of their own, and share the dims before it."""
    sequence, values, *sorter = shapes
    batch = tuple(range(len(sequence) - 1))
    own = tuple(range(len(values)))
    if batch:
        own = (*batch, "values")
    sought = (*batch, "sorted")
    return Factors((sought, own, *(sought for _ in sorter)), (own,), frozenset({"sorted"}))


def _require_searchable(sequence: jax.Array, values: jax.Array, sorter: jax.Array | None) -> None:
    refuse_complex(sequence, f"\"searchsorted_out_cpu\" not implemented for '{scalar_name(sequence)}'")
    at = "torch.searchsorted(): "
    a, b = list(sequence.shape), list(values.shape)
    if not a:
        raise ShapeError(f"{at}boundaries tensor should have positive dimension, but got 0 dimension")
    if not b and len(a) > 1:
        raise ShapeError(
            f"{at}input value can be a scalar only when boundaries tensor dimension is 1, "
            f"but we got boundaries tensor dim({len(a)}) and input value's dim(0) numel(1)"
        )
    if len(a) > 1 and a[:-1] != b[:-1]:
        raise ShapeError(
            f"{at}boundaries tensor should be 1 dimension or the first N-1 dimensions of boundaries tensor "
            f"and input value tensor must match, but we got boundaries tensor {a} and input value tensor {b}"
        )
    if sorter is None:
        return
    if sorter.shape != sequence.shape:
        raise ShapeError(
            f"{at}boundary and sorter must have the same size, but got boundary tensor {a}and got sorter "
            f"tensor {list(sorter.shape)}"
        )
    if sorter.dtype != jnp.int64:
        raise DTypeError(f"{at}sorter must be a tensor of long dtype but got dtype {scalar_name(sorter)}")


def _side(right: bool, side: str | None) -> str:
    if side not in (None, "left", "right"):
        raise OutOfRangeError(f"torch.searchsorted(): side can only be 'left' or 'right' but got {side}")
    if side == "left" and right:
        raise OutOfRangeError(
            "torch.searchsorted(): side and right can't be set to opposites, got side of left while right was True"
        )
    return "right" if right else side or "left"


def _search(sequence: jax.Array, values: jax.Array, side: str, out_int32: bool) -> jax.Array:
    """Insertion indices; leading dims of the sequence are paired with those of the values."""

    def find(row: jax.Array, sought: jax.Array) -> jax.Array:
        return jnp.searchsorted(row, sought, side=side)

    for _ in range(sequence.ndim - 1):
        find = jax.vmap(find)
    return find(sequence, values).astype(jnp.int32 if out_int32 else jnp.int64)


def _sorter_out_of_range(sorted_sequence: Array, sorter: Array | None) -> Array | None:
    if sorter is None:
        return None
    return (sorter < 0) | (sorter >= sorted_sequence.shape[-1])


@defop(
    types=NO_ARITHMETIC,
    dims=_searches,
    check=Check(
        elements=_sorter_out_of_range, text="torch.searchsorted(): sorter index out of range", error=IndexDomainError
    ),
    public=NO_METHOD,
    derivative=NO_DERIVATIVE,
)
def searchsorted(
    sorted_sequence: Array,
    input: Operand,
    *,
    out_int32: bool = False,
    right: bool = False,
    side: str | None = None,
    sorter: Array | None = None,
) -> Array:
    """Indices at which values go into sequences sorted along the last dim; before equal elements unless `right`."""
    _require_searchable(sorted_sequence, input, sorter)
    sequence = sorted_sequence if sorter is None else jnp.take_along_axis(sorted_sequence, sorter, axis=-1)
    return _search(sequence, input, _side(right, side), out_int32)


def _buckets(shapes: Sequence[Sizes]) -> Factors:
    letters = tuple(range(len(shapes[0])))
    return Factors((letters, ("sorted",)), (letters,), frozenset({"sorted"}))


@defop(types=NO_ARITHMETIC, dims=_buckets, public=NO_METHOD, derivative=NO_DERIVATIVE)
def bucketize(input: Operand, boundaries: Array, *, out_int32: bool = False, right: bool = False) -> Array:
    """The interval between sorted `boundaries` that holds each value; closed on the right unless `right`."""
    if boundaries.ndim != 1:
        raise ShapeError(f"boundaries tensor must be 1 dimension, but got dim({boundaries.ndim})")
    _require_searchable(boundaries, input, None)
    return _search(boundaries, input, _side(right, None), out_int32)
