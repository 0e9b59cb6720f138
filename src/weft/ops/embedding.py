"""Bags of embeddings: sums, means and maxima of rows of a table."""

from __future__ import annotations

from collections.abc import Sequence

import jax
import jax.numpy as jnp
from jax.typing import DTypeLike

from weft.errors import DTypeError, IndexDomainError, ShapeError
from weft.ops._dims import Factors, Sizes, Static
from weft.ops._findings import FirstOf, Flags, misses
from weft.ops._index import outside
from weft.ops._kinds import Array, Whole
from weft.ops._reduce import wide
from weft.ops._table import INTERNAL, OWN_ARITHMETIC, Check, defop
from weft.ops._type_names import scalar_name


def _bag_dims(shapes: Sequence[Sizes], static: Static) -> Factors:
    """Features may be split; so may bags, where each is a row of indices and gradients do not depend on other bags."""
    if len(shapes[0]) == 2:
        index, rest, whole = ("bag", "place"), (("bag", "place"),), {"row", "place"}
        whole |= {"bag"} if static["scale_grad_by_freq"] else set()
    else:
        index, rest, whole = ("place",), (("start",), ("place",)), {"row", "place", "start"}
    ins = (index, ("row", "feature"), *rest[: len(shapes) - 2])
    return Factors(ins, (("bag", "feature"),), frozenset(whole))


def _require(kind: str, array: Array, allowed: tuple[DTypeLike, ...], choices: str) -> None:
    if array.dtype not in allowed:
        raise DTypeError(
            f"Expected tensor for argument #1 '{kind}' to have one of the following scalar types: {choices}; "
            f"but got torch.{scalar_name(array)}Tensor instead (while checking arguments for embedding_bag)"
        )


def _check(input: Array, weight: Array, offsets: Array | None, each: Array | None) -> None:
    for index in (input, offsets):
        if index is not None and not jnp.issubdtype(index.dtype, jnp.integer):
            _require("indices", index, (jnp.int64, jnp.int32), "Long, Int")
    floats = (jnp.float16, jnp.bfloat16, jnp.float32, jnp.float64)
    _require("weight", weight, floats, "Half, BFloat16, Float, Double")
    if each is not None and each.dtype != weight.dtype:
        raise DTypeError(
            "Expected tensor for argument #1 'weight' to have the same type as tensor for argument #1 "
            f"'per_sample_weights'; but type torch.{scalar_name(weight)}Tensor does not equal "
            f"torch.{scalar_name(each)}Tensor (while checking arguments for embedding_bag)"
        )


def _bad_bag(input: Array, weight: Array, offsets: Array | None) -> FirstOf:
    rows = outside(input, weight.shape[0], "")
    if offsets is None or not offsets.size:
        return FirstOf((rows,), (_BAD_ROW,))
    first, last = offsets[:1], offsets[-1:]
    parts = (
        misses(first, first != 0, ""),
        misses(last, last > input.size, str(input.size)),
        rows,
        Flags(offsets[1:] < offsets[:-1]),
    )
    return FirstOf(parts, (_BAD_FIRST, _BAD_LAST, _BAD_ROW, "offsets have to rise"))


_BAD_ROW = "embedding_bag: Expected idx >= 0 && idx < num_embeddings but found idx to be {}"
_BAD_FIRST = (
    "offsets[0] has to be 0, i.e., the first sequence in the mini-batch has to start from position 0. However, got {}"
)
_BAD_LAST = "offsets[-1] can not be greater than input's length {1} but got offsets[-1] of {0}"


def _bags(input: Array, offsets: Array | None, include_last_offset: bool) -> tuple[Array, int]:
    """The bag number of each index, and the number of bags."""
    if offsets is None:
        return jnp.repeat(jnp.arange(input.shape[0]), input.shape[1], total_repeat_length=input.size), input.shape[0]
    count = offsets.shape[0] - include_last_offset
    if count < 0:
        raise ShapeError("include_last_offset: number of offset should be at least 1")
    return jnp.searchsorted(offsets, jnp.arange(input.shape[0]), side="right") - 1, count  # past the last bag: `count`


def _scaled_gradients(vectors: Array, rows: Array, size: int) -> Array:
    """The vectors unchanged; their gradients are divided by how often their row is read."""
    counts = jnp.zeros(size, vectors.dtype).at[rows].add(1, mode="drop")
    share = 1 / jnp.take(counts, rows, mode="clip")[:, None]
    return vectors + (share - 1) * (vectors - jax.lax.stop_gradient(vectors))


def _summed(x: Array, bags: Array, count: int, places: int | None) -> Array:
    """Sums over bags: of `places` elements each, or of varying sizes if None."""
    if places is not None:
        return jnp.sum(x.reshape(count, places, *x.shape[1:]), axis=1)
    return jax.ops.segment_sum(x, bags, count)


def _largest(vectors: Array, used: Array, bags: Array, count: int) -> Array:
    """The largest element of each bag, 0 where it is empty; among equal ones the gradient goes to the first."""
    values = jax.lax.stop_gradient(jnp.where(used[:, None], vectors, -jnp.inf))
    peak = jax.ops.segment_max(values, bags, count)
    best = used[:, None] & ((values == jnp.take(peak, bags, axis=0, mode="clip")) | jnp.isnan(values))
    places = jnp.where(best, jnp.arange(vectors.shape[0])[:, None], vectors.shape[0])
    first = jax.ops.segment_min(places, bags, count)
    some = first < vectors.shape[0]
    return jnp.where(some, jnp.take_along_axis(vectors, jnp.where(some, first, 0), axis=0), 0)


@defop(
    types=OWN_ARITHMETIC,
    dims=_bag_dims,
    public=INTERNAL,
    check=Check(elements=_bad_bag, text="{}", error=IndexDomainError),
)
def embedding_bag(
    input: Array,
    weight: Array,
    offsets: Array | None = None,
    per_sample_weights: Array | None = None,
    mode: str = "mean",
    include_last_offset: bool = False,
    padding_idx: Whole | None = None,
    scale_grad_by_freq: bool = False,
) -> Array:
    """Sums, means or maxima of the rows of `weight` at the indices of each bag: (bags, features).

    A bag is a row of a 2D input; of a 1D input, it is the range from one offset to the next. Indices equal to
    `padding_idx` are left out.
    """
    _check(input, weight, offsets, per_sample_weights)
    bags, count = _bags(input, offsets, include_last_offset)
    rows = input.reshape(-1)
    if not rows.size:
        return jnp.zeros((count, weight.shape[1]), weight.dtype)
    # Bags may be long: sums are in float32 and rounded once.
    vectors = wide(jnp.take(weight, rows, axis=0, mode="clip"))
    if scale_grad_by_freq:
        vectors = _scaled_gradients(vectors, rows, weight.shape[0])
    used = jnp.full(rows.shape, True) if padding_idx is None else rows != padding_idx % weight.shape[0]
    if mode == "max":
        return _largest(vectors, used, bags, count).astype(weight.dtype)
    if per_sample_weights is not None:
        vectors = vectors * wide(per_sample_weights.reshape(-1))[:, None]
    places = input.shape[1] if offsets is None else None
    total = _summed(jnp.where(used[:, None], vectors, 0), bags, count, places)
    if mode == "mean":
        total = total / jnp.maximum(_summed(used.astype(total.dtype), bags, count, places), 1)[:, None]
    return total.astype(weight.dtype)
