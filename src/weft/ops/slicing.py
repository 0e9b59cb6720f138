"""Views of some of the elements: slices, diagonals and sliding windows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

import jax.numpy as jnp
import numpy as np
from jax import lax

from weft.errors import OutOfRangeError, ShapeError
from weft.ops import _strides as strides
from weft.ops._dims import Factors, NameOf, Rule, Sizes, Static, along
from weft.ops._findings import Misses
from weft.ops._index import OUT_OF_BOUNDS, isolated, outside_dim, part_at, require_extent, with_part
from weft.ops._kinds import Array, Dim, HostArray, Scalar, Whole
from weft.ops._table import INTERNAL, IS_LINEAR, Check, Derivative, Public, View, defop

view_op = partial(defop, shards=IS_LINEAR)


def _losing(names: Mapping[str, int | None], adds: tuple[str, ...] = ()) -> Rule:
    """The dims that these parameters (name: default) give disappear and must be whole; the letters `adds` come last."""

    def rule(shapes: Sequence[Sizes], static: Static) -> Factors:
        letters = tuple(range(len(shapes[0])))
        gone = frozenset(static.get(name, default) for name, default in names.items())
        return Factors((letters,), (tuple(d for d in letters if d not in gone) + adds,), gone)

    return rule


@isolated
def _select_write(base: Array, value: Array, dim: int, index: Scalar) -> Array:
    return with_part(base, lax.expand_dims(value, [dim]), index, dim)


def _select_on_host(input: HostArray, index: Scalar, *, dim: int) -> HostArray:
    at = int(index)
    return input[(*[slice(None)] * dim, at, ...)] if dim else input[at, ...]


def _select_at_on_host(input: HostArray, index: Scalar, *, dim: int) -> HostArray:
    last = input.shape[dim] - 1
    return _select_on_host(input, min(max(int(index), -1 - last), last), dim=dim)


@view_op(
    dims=_losing({"dim": None}),
    view=View(layout=strides.selected, write=_select_write),
    host=_select_on_host,
    public=INTERNAL,
)
def select(input: Array, dim: Dim, index: Scalar) -> Array:
    """The slice at `index` along `dim`, without that dim. The caller has checked the index, which is not negative."""
    return lax.squeeze(part_at(input, index, 1, dim), [dim])


@isolated
def _select_at_write(base: Array, value: Array, dim: int, index: Scalar) -> Array:
    return lax.dynamic_update_index_in_dim(base, value, index, dim)


def _select_at_check(input: Array, dim: int, index: Array) -> Misses:
    return outside_dim(index, input, dim, negative=True)


@view_op(
    dims=_losing({"dim": None}),
    view=View(layout=strides.selected, write=_select_at_write),
    host=_select_at_on_host,
    check=Check(elements=_select_at_check, text=OUT_OF_BOUNDS),
    derivative=Derivative(name="Select"),
    public=INTERNAL,
)
def select_at(input: Array, dim: Dim, index: Scalar) -> Array:
    """`select` with an index that is known only when the program runs, and is checked then."""
    require_extent(index, input.shape[dim])
    return lax.dynamic_index_in_dim(input, index, dim, keepdims=False)


@isolated
def _slice_write(base: Array, value: Array, dim: int, start: Scalar, length: int, step: int = 1) -> Array:
    if step == 1:
        return with_part(base, value, start, dim)
    at = start + step * jnp.arange(length)
    return jnp.moveaxis(jnp.moveaxis(base, dim, 0).at[at].set(jnp.moveaxis(value, dim, 0)), 0, dim)


def _slice_on_host(input: HostArray, start: Scalar, *, dim: int, length: int, step: int = 1) -> HostArray:
    first = int(start)
    return input[(*[slice(None)] * dim, slice(first, first + length * step, step))]


@view_op(
    derivative=Derivative(name="Slice"),
    dims=along,
    view=View(layout=strides.sliced, write=_slice_write),
    host=_slice_on_host,
    public=INTERNAL,
)
def slice_dim(input: Array, dim: Dim, start: Scalar, length: int, step: int = 1) -> Array:
    """`length` slices along `dim`, every `step`-th from `start` on. The caller has checked the range."""
    span = part_at(input, start, max(0, (length - 1) * step + 1), dim)
    return lax.slice_in_dim(span, 0, None, step, dim)


@isolated
def _diagonal_write(
    base: Array, value: Array, offset: Whole = 0, dim1: int = 0, dim2: int = 1, length: int | None = None
) -> Array:
    del length
    matrices = jnp.moveaxis(base, (dim1, dim2), (-2, -1))
    written = matrices.at[..., *_places_along(offset, value.shape[-1])].set(value)
    return jnp.moveaxis(written, (-2, -1), (dim1, dim2))


@view_op(
    dims=_losing({"dim1": 0, "dim2": 1}, adds=("diagonal",)),
    view=View(layout=strides.diagonals, write=_diagonal_write),
    public=INTERNAL,
)
def diagonal(input: Array, offset: Whole = 0, dim1: Dim = 0, dim2: Dim = 1, length: int | None = None) -> Array:
    """The diagonals of the matrices over `dim1` and `dim2`, along a new last dim.

    For another offset than 0 the caller gives their length.
    """
    if dim1 == dim2:
        raise ShapeError(f"diagonal dimensions cannot be identical {dim1}, {dim2}")
    matrices = jnp.moveaxis(input, (dim1, dim2), (-2, -1))
    return diagonals(matrices, offset, min(matrices.shape[-2:]) if length is None else length)


def diagonals(matrices: Array, offset: Whole, length: int) -> Array:
    """The diagonals of the matrices over the last two dims. `jnp.diagonal` hides that they are linear."""
    return matrices[..., *_places_along(offset, length)]


def _places_along(offset: Whole, length: int) -> tuple[Array, Array]:
    """The rows and the columns of the elements of a diagonal."""
    at, by = jnp.arange(length), jnp.asarray(offset)
    return at + jnp.maximum(-by, 0), at + jnp.maximum(by, 0)


def _unfold_dims(shapes: Sequence[Sizes], static: Static) -> Factors:
    letters = tuple(range(len(shapes[0])))
    at = static["dimension"]
    if not letters:
        return Factors(((),), (("window",),))
    return Factors((letters,), ((*letters[:at], NameOf(at), *letters[at + 1 :], "window"),), frozenset({at}))


def _places(have: int, size: int, step: int) -> HostArray:
    """The positions in each window: (windows, size)."""
    return (step * np.arange((have - size) // step + 1))[:, None] + np.arange(size)


@isolated
def _window_write(base: Array, value: Array, dimension: int, size: int, step: int) -> Array:
    if not base.ndim:
        return value.reshape(()) if size else base
    last = jnp.moveaxis(base, dimension, -1)
    written = last.at[..., _places(last.shape[-1], size, step)].set(jnp.moveaxis(value, dimension, -2))
    return jnp.moveaxis(written, -1, dimension)


@view_op(
    "window",
    derivative=Derivative(name="Unfold"),
    dims=_unfold_dims,
    view=View(layout=strides.windows, write=_window_write, spreads=True),
    public=Public(function=False, method="unfold"),
)
def window(input: Array, dimension: Dim, size: int, step: int) -> Array:
    """Windows of `size` elements every `step` along a dim; the elements of a window are the new last dim."""
    whole = jnp.atleast_1d(input)
    have = whole.shape[dimension]
    if size < 0:
        raise OutOfRangeError(f"size is {size} but must be >= 0")
    if size > have:
        raise ShapeError(f"maximum size for tensor at dimension {dimension} is {have} but size is {size}")
    if step <= 0:
        raise ShapeError(f"step is {step} but must be > 0")
    windows = jnp.take(whole, _places(have, size, step), axis=dimension)
    out = jnp.moveaxis(windows, dimension + 1, -1)
    return out if input.ndim else out[0]
