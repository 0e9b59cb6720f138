"""Views that read a storage as another type, or with any strides."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import jax.numpy as jnp
import numpy as np
from jax import lax

from weft._base.dtype import DType, from_numpy
from weft.errors import DTypeError, ShapeError
from weft.ops import _strides as strides
from weft.ops._autocast import CPU_FLOAT32
from weft.ops._dims import Factors, NameOf, Sizes
from weft.ops._index import isolated
from weft.ops._kinds import Array, DTypeArg, HostDType, Scalar, Shape
from weft.ops._shape_dims import fresh
from weft.ops._table import INTERNAL, IS_LINEAR, NO_DERIVATIVE, NO_METHOD, Arithmetic, Derivative, Types, View, defop
from weft.ops._type_names import scalar_name

view_op = partial(defop, shards=IS_LINEAR)

# --- complex numbers and their parts ---


def _real_dims(shapes: Sequence[Sizes]) -> Factors:
    letters = tuple(range(len(shapes[0])))
    return Factors((letters,), ((*letters, "part"),))


def _parts(number: Array) -> Array:
    return jnp.stack((number.real, number.imag), axis=-1)


def _number(parts: Array) -> Array:
    return lax.complex(parts[..., 0], parts[..., 1])


def _parts_layout(layout: strides.Layout) -> strides.Layout:
    if layout.changed:
        raise DTypeError(
            "view_as_real doesn't work on unresolved conjugated tensors.  To resolve the conjugate tensor so you can "
            "view it as real, use self.resolve_conj(); however, be warned that the resulting tensor will NOT alias the "
            "original."
        )
    return strides.as_parts(layout)


@view_op(
    dims=_real_dims,
    view=View(layout=_parts_layout, write=lambda base, value: _number(value), by_layout=True),
    public=NO_METHOD,
)
def view_as_real(input: Array) -> Array:
    """The real and imaginary parts, along a new last dim of size two."""
    if not jnp.iscomplexobj(input):
        raise DTypeError("view_as_real is only supported for complex tensors")
    return _parts(input)


def _complex_dims(shapes: Sequence[Sizes]) -> Factors:
    letters = tuple(range(len(shapes[0])))
    return Factors((letters,), (letters[:-1],), frozenset(letters[-1:]))


def _numbers_layout(layout: strides.Layout) -> strides.Layout:
    if layout.strides[-1] != 1:
        raise ShapeError("Tensor must have a last dimension with stride 1")
    if any(step % 2 and size != 1 for size, step in zip(layout.sizes[:-1], layout.strides[:-1], strict=True)):
        raise ShapeError("Tensor must have a stride divisible by 2 for all but last dimension")
    if isinstance(layout.offset, int) and layout.offset % 2:
        raise ShapeError("Tensor must have a storage_offset divisible by 2")
    return strides.as_numbers(layout)


@view_op(
    dims=_complex_dims,
    types=Types(autocast=CPU_FLOAT32, arithmetic=Arithmetic.NONE),
    view=View(layout=_numbers_layout, write=lambda base, value: _parts(value), by_layout=True),
    public=NO_METHOD,
)
def view_as_complex(input: Array) -> Array:
    """Complex numbers from the pairs along the last dim, of size two."""
    if input.dtype not in (jnp.float32, jnp.float64):
        raise DTypeError(
            "view_as_complex is only supported for half, float and double tensors, "
            f"but got a tensor of scalar type: {scalar_name(input)}"
        )
    if input.ndim == 0:
        raise ShapeError("Input tensor must have one or more dimensions")
    if input.shape[-1] != 2:
        raise ShapeError("Tensor must have a last dimension of size 2")
    return _number(input)


# --- the same bytes as another type ---


def _words(old: DType, new: DType) -> str:
    return f"to view {scalar_name(old)} as {scalar_name(new)} (different element sizes)"


def _resized(shape: Sizes, old: DType, new: DType) -> Sizes:
    """The shape after a change of type; the last dim changes if the element size does."""
    if old.itemsize == new.itemsize:
        return shape
    if not shape:
        raise ShapeError(f"self.dim() cannot be 0 {_words(old, new)}")
    ratio = new.itemsize // old.itemsize
    if ratio and shape[-1] % ratio:
        raise ShapeError(f"self.size(-1) must be divisible by {ratio} {_words(old, new)}, but got {shape[-1]}")
    return (*shape[:-1], shape[-1] * old.itemsize // new.itemsize)


def _retyped_layout(layout: strides.Layout, dtype: DType) -> strides.Layout:
    old = layout.dtype
    if layout.changed:
        raise DTypeError(
            "torch.Tensor.view is not supported for conjugate view tensors when converting to a different dtype."
        )
    sizes = _resized(layout.sizes, old, dtype)
    if old.itemsize == dtype.itemsize:
        return replace(layout, dtype=dtype)
    down, up = max(old.itemsize // dtype.itemsize, 1), max(dtype.itemsize // old.itemsize, 1)
    if isinstance(layout.offset, int) and layout.offset % up:
        raise ShapeError(
            f"self.storage_offset() must be divisible by {up} {_words(old, dtype)}, but got {layout.offset}"
        )
    if layout.strides[-1] != 1:
        raise ShapeError(f"self.stride(-1) must be 1 {_words(old, dtype)}, but got {layout.strides[-1]}")
    for at, step in enumerate(layout.strides[:-1]):
        if step % up:
            raise ShapeError(f"self.stride({at}) must be divisible by {up} {_words(old, dtype)}, but got {step}")
    steps = (*(step * down // up for step in layout.strides[:-1]), 1)
    return strides.Layout(sizes, steps, layout.offset * down // up, dtype)


def _bytes(input: Array) -> Array:
    """The bytes of each element, along a new last dim."""
    if jnp.iscomplexobj(input):
        halves = _bytes(_parts(input))
        return halves.reshape(*input.shape, input.dtype.itemsize)
    if input.dtype.itemsize == 1:
        plain = input.astype(jnp.uint8) if input.dtype == jnp.bool_ else lax.bitcast_convert_type(input, jnp.uint8)
        return plain[..., None]
    return lax.bitcast_convert_type(input, jnp.uint8)


def _of_bytes(content: Array, dtype: HostDType) -> Array:
    """The elements whose bytes are along the last dim."""
    if jnp.issubdtype(dtype, jnp.complexfloating):
        half = np.dtype(dtype).itemsize // 2
        real = np.real(np.zeros(0, dtype)).dtype
        return _number(_of_bytes(content.reshape(*content.shape[:-1], 2, half), real))
    if np.dtype(dtype).itemsize == 1:
        return content[..., 0] != 0 if dtype == jnp.bool_ else lax.bitcast_convert_type(content[..., 0], dtype)
    return lax.bitcast_convert_type(content, dtype)


def _retyped(input: Array, dtype: HostDType) -> Array:
    sizes = _resized(input.shape, from_numpy(input.dtype), from_numpy(dtype))
    return _of_bytes(_bytes(input).reshape(*sizes, np.dtype(dtype).itemsize), dtype)


def _retyped_dims(shapes: Sequence[Sizes]) -> Factors:
    letters = tuple(range(len(shapes[0])))
    return Factors((letters,), ((*letters[:-1], *map(NameOf, letters[-1:])),), frozenset(letters[-1:]))


@view_op(
    dims=_retyped_dims,
    view=View(layout=_retyped_layout, write=lambda base, value, dtype: _retyped(value, base.dtype), by_layout=True),
    derivative=NO_DERIVATIVE,
    public=INTERNAL,
)
def retyped(input: Array, dtype: DTypeArg) -> Array:
    """The same bytes as elements of another type; the last dim changes if the element size does."""
    return _retyped(input, dtype.numpy)


# --- any strides ---


def _order(size: Shape, stride: Shape) -> tuple[int, ...] | None:
    """The dims from the outermost in memory to the innermost, if the elements are dense; else None."""
    places = strides.Layout(size, stride, 0, from_numpy(np.uint8))
    return places.order if places.is_dense else None


def _places(size: Shape, stride: Shape, offset: Array) -> Array:
    places = jnp.full(size, offset, jnp.int64)
    for dim, step in enumerate(stride):
        places = places + lax.broadcasted_iota(jnp.int64, size, dim) * step
    return places


@isolated
def _strided_write(base: Array, value: Array, size: Shape, stride: Shape, storage_offset: Array) -> Array:
    flat, order = jnp.ravel(base), _order(size, stride)
    if order is None:
        written = flat.at[_places(size, stride, storage_offset)].set(value)
    else:
        written = lax.dynamic_update_slice_in_dim(flat, jnp.ravel(jnp.transpose(value, order)), storage_offset, 0)
    return written.reshape(base.shape)


@view_op(
    dims=lambda shapes, static: fresh(len(static["size"]))(shapes),
    view=View(layout=strides.strided, write=_strided_write, spreads=True),
    derivative=Derivative(name="AsStrided"),
    public=INTERNAL,
)
def strided(input: Array, size: Shape, stride: Shape, storage_offset: Scalar) -> Array:
    """The elements at the given strides and offset in the flat tensor; the caller has checked them."""
    flat, order = jnp.ravel(input), _order(size, stride)
    if order is None:
        return jnp.take(flat, _places(size, stride, storage_offset), mode="clip")
    count = int(np.prod(size))
    part = lax.dynamic_slice_in_dim(flat, storage_offset, count).reshape([size[d] for d in order])
    return jnp.transpose(part, [order.index(d) for d in range(len(size))])
