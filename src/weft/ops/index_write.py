"""Operators that write slices along a dim, elements of the flattened tensor, or elements under a mask."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import jax.numpy as jnp

from weft.errors import DomainError, DTypeError, IndexDomainError, IndexRangeError, ShapeError
from weft.ops._autocast import Cast, PerDevice
from weft.ops._dims import Factors, PartOf, Sizes, Static, broadcast_shapes, pointwise, shared_letter
from weft.ops._findings import Misses, namespace
from weft.ops._float8 import converted, through
from weft.ops._index import (
    OUT_OF_BOUNDS,
    OUT_OF_ELEMENTS,
    UNCHECKED,
    Updater,
    added,
    extent,
    flat_write,
    isolated,
    outside_dim,
    outside_elements,
    require_dtype,
    require_elements,
    require_vector,
    rows,
    wrapped,
)
from weft.ops._kinds import Array, Dim, Filling, Scalar
from weft.ops._rows import factor
from weft.ops._table import IN_PLACE, INTERNAL, NO_ARITHMETIC, Arithmetic, Check, Derivative, Public, Types, defop
from weft.ops._type_names import c_name, scalar_name


def _writes_slices(shapes: Sequence[Sizes], static: Static) -> Factors:
    """For writes of slices: the index names slices along `dim`, and the source has a slice for each index."""
    ndim, dim = len(shapes[0]), static["dim"]
    ins = tuple(range(ndim))
    index = ("index",) * len(shapes[1])
    source = tuple("index" if d == dim else d for d in range(len(shapes[2]))) if len(shapes) > 2 else ()
    sources = (source if len(source) == ndim else (),) if len(shapes) > 2 else ()
    return Factors((ins, index, *sources), (ins,), frozenset({dim, "index"}))


def _fills_slices(shapes: Sequence[Sizes], static: Static) -> Factors:
    """For one value written to slices along `dim`."""
    slices = _writes_slices(shapes[:2], static)
    return Factors((*slices.ins, ()), slices.outs, slices.whole)


_OTHERS = ("index", "source")

# One index per slice


def _as_slices(input: Array, dim: int, source: Array) -> Array:
    """The source as slices along `dim`, with zero-dim arrays counted as one element."""
    shape = jnp.atleast_1d(input).shape
    return source.reshape((*shape[:dim], extent(source, dim), *shape[dim + 1 :]))


def _slices(input: Array, dim: int, index: Array) -> Updater:
    """The updater of slices along `dim`."""
    return jnp.atleast_1d(input).at[rows(dim, index.reshape(-1))]


def _require_addable(input: Array, dim: int, index: Array, source: Array) -> None:
    """Check the arguments of `index_add`."""
    require_vector(
        index,
        f"index_add_(): Index is supposed to be a vector, but got dim: {index.ndim} "
        f"with type: {scalar_name(index)} and size: {list(index.shape)}",
    )
    message = f"index_add_(): Expected dtype int32/int64 for index but got: {scalar_name(index)}"
    require_dtype(index, message, "int32", "int64")
    if source.dtype != input.dtype:
        raise DTypeError(
            f"index_add_(): self ({scalar_name(input)}) and source ({scalar_name(source)}) "
            "must have the same scalar type"
        )
    kept, other = ([n for d, n in enumerate(a.shape) if d != dim] for a in (input, source))
    if kept != other or (input.ndim != source.ndim and max(input.ndim, source.ndim) > 1):
        raise ShapeError(
            "source tensor shape must match self tensor shape, excluding the specified dimension. "
            f"Got self.shape = {list(input.shape)} source.shape = {list(source.shape)}"
        )
    if extent(source, dim) != index.size:
        raise ShapeError(
            f"index_add_(): Number of indices ({index.size}) should be equal to source.size(dim): "
            f"({extent(source, dim)}), for dim: {dim}"
        )


def _index_add_check(input: Array, dim: Dim, index: Array) -> Misses:
    return outside_dim(index, input, dim)


@defop(
    dims=_writes_slices,
    check=Check(elements=_index_add_check, text=OUT_OF_BOUNDS, error=IndexDomainError),
    public=Public(inplace=True, separate=_OTHERS),
)
@isolated
def index_add(input: Array, dim: Dim, index: Array, source: Array, *, alpha: Scalar = 1) -> Array:
    """`input` with `alpha` times the slices of `source` added at the places in `index`."""
    _require_addable(input, dim, index, source)
    scaled = _as_slices(input, dim, source) * factor(alpha, input).astype(input.dtype)
    return added(_slices(input, dim, index), scaled).reshape(input.shape)


def _require_copyable(input: Array, dim: int, index: Array, source: Array) -> None:
    """Check the arguments of `index_copy`."""
    require_vector(index, f"index_copy_(): Index should have dimension 1 or 0 (got {index.ndim})")
    message = f"index_copy_(): Expected a long tensor for index, but got {scalar_name(index)}"
    require_dtype(index, message, "int64")
    if source.dtype != input.dtype:
        raise DTypeError(
            "index_copy_(): self and source expected to have the same dtype, "
            f"but got (self) {scalar_name(input)} and (source) {scalar_name(source)}"
        )
    if input.ndim != source.ndim and input.ndim and source.ndim:
        raise IndexRangeError(
            "index_copy_(): When source and destination are not scalars, their dimensionality must match. "
            f"Source dimensionality ({source.ndim}), destination dimensionality ({input.ndim})"
        )
    kept, other = (tuple(n for d, n in enumerate(a.shape) if d != dim) for a in (input, source))
    if kept != other:
        raise ShapeError(
            "index_copy_(): Source/destination tensor must have same slice shapes. Destination slice shape: "
            f"{' '.join(map(str, kept))} at dimension {dim} and source slice shape: "
            f"{' '.join(map(str, other))} at dimension 0."
        )
    if index.size != extent(source, dim):
        raise IndexRangeError(
            f"index_copy_(): Number of indices ({index.size}) should be equal to source.size(dim) "
            f"({extent(source, dim)})"
        )


def _index_copy_check(input: Array, dim: Dim, index: Array) -> Misses:
    return outside_dim(index, input, dim)


def _index_copy_vjp(g: Array, dim: Dim, index: Array, source: Array) -> tuple[Array | None, ...]:
    """The source's gradient is the result's gradient at its places, even where a later slice overwrote it."""
    ref = _slices(g, dim, index)
    d_source = ref.get(**UNCHECKED).reshape(source.shape)
    return ref.set(0, **UNCHECKED).reshape(g.shape), None, d_source


@defop(
    types=Types(autocast=PerDevice(cpu=Cast.PROMOTE), arithmetic=Arithmetic.NONE),
    dims=_writes_slices,
    derivative=Derivative(vjp=_index_copy_vjp),
    check=Check(elements=_index_copy_check, text=OUT_OF_BOUNDS),
    public=Public(inplace=True, separate=_OTHERS),
)
@isolated
def index_copy(input: Array, dim: Dim, index: Array, source: Array) -> Array:
    """`input` with the slices of `source` written at the places in `index`."""
    _require_copyable(input, dim, index, source)
    return _slices(input, dim, index).set(_as_slices(input, dim, source), **UNCHECKED).reshape(input.shape)


def _real_into(input: Array, value: Array, message: str) -> Array:
    """The value in the input's element type; `RuntimeError` where that would drop an imaginary part."""
    if jnp.iscomplexobj(value) and not jnp.iscomplexobj(input):
        raise DTypeError(message)
    return converted(value, input.dtype)


def _index_fill_check(input: Array, dim: Dim, index: Array) -> Misses:
    return outside_dim(index, input, dim, negative=True)


def _index_fill_vjp(g: Array, input: Array, dim: Dim, index: Array) -> tuple[Array | None, ...]:
    """The value's gradient counts each place once, even if the index repeats it."""
    ref = _slices(jnp.zeros_like(g), dim, wrapped(index, extent(input, dim)))
    filled = ref.set(1, **UNCHECKED).reshape(g.shape)
    return g * (1 - filled), None, jnp.sum(g * filled)


@defop(
    types=NO_ARITHMETIC,
    dims=_fills_slices,
    derivative=Derivative(vjp=_index_fill_vjp),
    check=Check(elements=_index_fill_check, text=OUT_OF_BOUNDS),
    public=Public(inplace=True, separate=_OTHERS[:1]),
)
@isolated
def index_fill(input: Array, dim: Dim, index: Array, value: Filling) -> Array:
    """`input` with one value in the slices along `dim` at the places in `index`."""
    require_vector(index, "Index has to be a vector/scalar", ShapeError)
    require_dtype(index, "index_fill_(): Expected dtype int64 for index.", "int64", error=IndexRangeError)
    if value.ndim:
        raise ShapeError(
            f"index_fill_ only supports a 0-dimensional value tensor, but got tensor with {value.ndim} dimension(s)."
        )
    message = "index_fill_(): Converting complex Scalar to non-complex type is not supported"
    filling = _real_into(input, value, message)
    ref = _slices(input, dim, wrapped(index, extent(input, dim)))
    return ref.set(filling, **UNCHECKED).reshape(input.shape)


# Elements of the flattened tensor


def _put_check(input: Array, index: Array) -> Misses:
    return outside_elements(index, input)


def _put_vjp(g: Array, input: Array, index: Array, source: Array, accumulate: bool) -> tuple[Array | None, ...]:
    """The source's gradient is the result's gradient at its places, as for `index_put`."""
    ref = g.reshape(-1).at[wrapped(index.reshape(-1), input.size)]
    d_input = g if accumulate else ref.set(0, **UNCHECKED).reshape(g.shape)
    return d_input, None, ref.get(**UNCHECKED).reshape(source.shape)


@defop(
    types=NO_ARITHMETIC,
    dims=flat_write,
    derivative=Derivative(vjp=_put_vjp),
    check=Check(elements=_put_check, text=OUT_OF_ELEMENTS),
    public=INTERNAL,
)
@isolated
def put(input: Array, index: Array, source: Array, accumulate: bool = False) -> Array:
    """`input` with elements of `source` written, or added, at places of the flattened `input`."""
    require_elements("put_", index)
    if source.dtype != input.dtype:
        raise DTypeError(
            "put_(): self and source expected to have the same dtype, "
            f"but got self.dtype = {scalar_name(input)} and source.dtype = {scalar_name(source)}"
        )
    if source.size != index.size:
        raise IndexRangeError(
            "put_(): Expected source and index to have the same number of elements, "
            f"but got source.numel() = {source.size}, index.numel() = {index.size}"
        )
    ref = input.reshape(-1).at[wrapped(index.reshape(-1), input.size)]
    flat = source.reshape(-1)
    return (added(ref, flat) if accumulate else ref.set(flat, **UNCHECKED)).reshape(input.shape)


# All elements, or those under a mask


def _overflow(input: Array) -> str:
    return f"value cannot be converted to type {c_name(input)} without overflow"


def _require_mask(op: str, mask: Array, word: Callable[[Array], str] = c_name) -> None:
    if mask.dtype != jnp.bool_:
        raise DTypeError(f"{op}_ only supports boolean masks, but got mask with dtype {word(mask)}")


@defop(types=NO_ARITHMETIC, dims=pointwise, public=Public(inplace=True, uniform=True))
def fill(input: Array, value: Filling) -> Array:
    """One value in every element, in the element type of `input`."""
    if value.ndim:
        raise ShapeError(f"fill_ only supports 0-dimension value tensor but got tensor with {value.ndim} dimensions.")
    return jnp.broadcast_to(_real_into(input, value, _overflow(input)), input.shape)


@defop(types=NO_ARITHMETIC, dims=pointwise, public=Public(function=False, method="", inplace=True, uniform=True))
def zero(input: Array) -> Array:
    """Zero in every element."""
    return converted(jnp.zeros(input.shape, through(input.dtype)), input.dtype)


@defop(types=NO_ARITHMETIC, dims=pointwise, public=IN_PLACE)
def masked_fill(input: Array, mask: Array, value: Filling) -> Array:
    """`input` with one value where the mask, which broadcasts, is true."""
    _require_mask("masked_fill", mask)
    broadcast_shapes(input.shape, mask.shape)
    if value.ndim:
        raise ShapeError(
            f"masked_fill_ only supports a 0-dimensional value tensor, but got tensor with {value.ndim} dimension(s)."
        )
    return jnp.where(mask, _real_into(input, value, _overflow(input)), input)


def _masked_write(shapes: Sequence[Sizes], static: Static) -> Factors:
    """The mask broadcasts with the input; elements of the source have no place of their own. All dims are whole."""
    both = pointwise(shapes[:2], static)
    source = tuple(PartOf(f"source:{d}") for d in range(len(shapes[2])))
    whole = frozenset({*both.outs[0], *map(shared_letter, source)})
    return Factors((*both.ins, source), both.outs, whole)


def _masked_scatter_check(input: Array, mask: Array, source: Array) -> Array:
    return namespace(mask).broadcast_to(mask, broadcast_shapes(input.shape, mask.shape)).sum() > source.size


@defop(
    types=NO_ARITHMETIC,
    dims=_masked_write,
    check=Check(
        elements=_masked_scatter_check, text="Number of elements of source < number of ones in mask", error=DomainError
    ),
    public=IN_PLACE,
)
def masked_scatter(input: Array, mask: Array, source: Array) -> Array:
    """`input` with successive elements of `source` where the mask, which broadcasts, is true."""
    _require_mask("masked_scatter", mask, scalar_name)
    if source.dtype != input.dtype:
        raise DTypeError(
            "masked_scatter: expected self and source to have same dtypes but got"
            f"{scalar_name(input)} and {scalar_name(source)}"
        )
    shape = broadcast_shapes(input.shape, mask.shape)
    if not source.size:
        return jnp.broadcast_to(input, shape)
    mask = jnp.broadcast_to(mask, shape)
    nth = (jnp.cumsum(mask.reshape(-1)) - 1).clip(0).reshape(shape)
    return jnp.where(mask, source.reshape(-1).at[nth].get(**UNCHECKED), input)
