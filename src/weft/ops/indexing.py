"""Operators that read at places given by index tensors, and the write behind `x[index] = v`.

Bodies trust their indices; a row's `check` flags those out of range.
"""

from __future__ import annotations

from collections.abc import Sequence

import jax
import jax.numpy as jnp

from weft.errors import DTypeError, IndexDomainError, IndexRangeError, ShapeError
from weft.ops._autocast import ACCELERATOR_PROMOTE
from weft.ops._dims import Else, Factors, Letter, NameOf, PartOf, Sizes, Static, broadcast_shapes, shared_letter
from weft.ops._findings import Misses, namespace
from weft.ops._index import (
    OUT_OF_BOUNDS,
    OUT_OF_ELEMENTS,
    OUT_OF_SELF,
    UNCHECKED,
    added,
    cells,
    isolated,
    outside,
    outside_dim,
    outside_elements,
    require_dtype,
    require_elements,
    require_extent,
    require_vector,
    rows,
    wrapped,
)
from weft.ops._kinds import Array, Arrays, Dim
from weft.ops._table import INTERNAL, IS_LINEAR, NO_ARITHMETIC, Arithmetic, Check, Derivative, Public, Types, defop
from weft.ops._type_names import scalar_name

# Dimension rules


def _selects(shapes: Sequence[Sizes], static: Static) -> Factors:
    """`dim` keeps its name, and is split with the index."""
    ndim, dim = len(shapes[0]), static["dim"]
    ins = tuple(NameOf("index") if d == dim else d for d in range(ndim))
    out = tuple("index" if d == dim else d for d in range(ndim))
    return Factors((ins, (PartOf("index"),) * len(shapes[1])), (out,))


def _flat_read(shapes: Sequence[Sizes]) -> Factors:
    """Any element may be read, so the input is whole; output dims are those of the index."""
    ins = tuple(f"in:{d}" for d in range(len(shapes[0])))
    index = tuple(range(len(shapes[1])))
    return Factors((ins, index), (index,), frozenset(ins))


def _gathers(shapes: Sequence[Sizes], static: Static) -> Factors:
    """The index's dims stay, with the names of both; all but `dim` are split with the input's of equal size."""
    if static["dim"] is None or len(shapes[0]) != len(shapes[1]):
        return _flat_read(shapes)
    pairs = list(zip(*shapes, strict=True))
    shared = [d != static["dim"] and a == b for d, (a, b) in enumerate(pairs)]
    ins = tuple(d if same else NameOf(d) for d, same in enumerate(shared))
    index = tuple(range(len(shared)))
    odd = {d for d, same in enumerate(shared) if not same and d != static["dim"]}
    return Factors((ins, index), (index,), frozenset(odd))


def _takes_along(shapes: Sequence[Sizes], static: Static) -> Factors:
    """As `_gathers`; if `dim` is None, inputs and result are flat."""
    if static["dim"] is not None:
        return _gathers(shapes, static)
    flat = _flat_read(shapes)
    return Factors(flat.ins, (("flat",),), frozenset(letter for dims in flat.ins for letter in dims))


def _index_shape(shapes: Sequence[Sizes]) -> Sizes:
    """The shape that all index tensors broadcast to; `IndexError` in PyTorch's words if there is none."""
    try:
        return broadcast_shapes(*shapes)
    except ShapeError:
        text = ", ".join(str(list(s)) for s in shapes)
        raise IndexRangeError(
            f"shape mismatch: indexing tensors could not be broadcast together with shapes {text}"
        ) from None


def _advanced_read(shapes: Sequence[Sizes], static: Static) -> Factors:
    """Indexed dims are whole; the dims of the broadcast indices are placed as in NumPy.

    An index of one dim, alone, chooses places along the indexed dim, whose name stays unless the index has one.
    """
    dims = static["spec"]
    ins = tuple(range(len(shapes[0])))
    ndim = len(_index_shape(shapes[1:]))
    indices = tuple(tuple(f"index:{d}" for d in range(ndim - len(s), ndim)) for s in shapes[1:])
    kept = [d for d in ins if d not in dims]
    adjacent = dims[-1] - dims[0] + 1 == len(dims)
    at = dims[0] if adjacent else 0
    chosen: list[Letter] = [f"index:{d}" for d in range(ndim)]
    if ndim == len(dims) == 1:
        chosen = [Else(chosen[0], dims[0])]
    return Factors((ins, *indices), ((*kept[:at], *chosen, *kept[at:]),), frozenset(dims))


def _advanced_write(shapes: Sequence[Sizes], static: Static) -> Factors:
    """All dims are whole; those of the values, counted from the back, are compared with those of what is read there."""
    count = len(static["spec"])
    read = _advanced_read(shapes[: count + 1], static)
    values, target = shapes[count + 1], read.outs[0]
    spare = max(len(values) - len(target), 0)
    letters = (*[f"value:{d}" for d in range(spare)], *target[max(len(target) - len(values), 0) :])
    whole = frozenset(letter for dims in (*read.ins, letters) for letter in map(shared_letter, dims))
    return Factors((*read.ins, letters), read.ins[:1], whole)


# Advanced indexing


def _advanced(indices: Arrays, spec: tuple[int, ...], shape: Sizes) -> tuple[slice | Array, ...]:
    """The NumPy index that has `indices` at the dims in `spec`; negative indices count from the end."""
    at = dict(zip(spec, indices, strict=True))
    return tuple(wrapped(at[d], n) if d in at else slice(None) for d, n in enumerate(shape))


def _any_outside(input: Array, indices: Arrays, spec: tuple[int, ...]) -> Misses:
    findings = [outside_dim(i, input, d, negative=True) for d, i in zip(spec, indices, strict=True)]
    join = namespace(findings[0].marks).concatenate
    return Misses(join([m.marks.reshape(-1) for m in findings]), " or ".join([m.location for m in findings]))


def _index_tensors_check(input: Array, indices: Arrays, spec: tuple[int, ...]) -> Misses:
    return _any_outside(input, indices, spec)


@defop(
    types=NO_ARITHMETIC,
    derivative=Derivative(name="Index"),
    dims=_advanced_read,
    shards=IS_LINEAR,
    check=Check(elements=_index_tensors_check, text=OUT_OF_BOUNDS),
    public=INTERNAL,
)
def index(input: Array, indices: Arrays, spec: tuple[int, ...]) -> Array:
    """The elements at integer tensors that broadcast together, one tensor for each dim in `spec` (ascending).

    Their dims replace the indexed ones if these are adjacent, else they come first.
    """
    for dim, at in zip(spec, indices, strict=True):
        require_extent(at, input.shape[dim])
    return input.at[_advanced(indices, spec, input.shape)].get(**UNCHECKED)


def _index_put_check(input: Array, indices: Arrays, spec: tuple[int, ...]) -> Misses:
    return _any_outside(input, indices, spec)


def _index_put_vjp(
    g: Array, input: Array, indices: Arrays, values: Array, spec: tuple[int, ...], accumulate: bool
) -> tuple[Array | tuple[None, ...], ...]:
    """The gradient of `values` is the result's gradient at their places, even where a later one overwrote them."""
    ref = g.at[_advanced(indices, spec, input.shape)]
    read = ref.get(**UNCHECKED)
    lead = read.ndim - values.ndim
    stretched = tuple(d for d in range(read.ndim) if d < lead or values.shape[d - lead] != read.shape[d])
    d_values = jnp.sum(read, stretched, keepdims=True).reshape(values.shape)
    return (g if accumulate else ref.set(0, **UNCHECKED)), (None,) * len(indices), d_values


@defop(
    types=Types(autocast=ACCELERATOR_PROMOTE, arithmetic=Arithmetic.NONE),
    dims=_advanced_write,
    derivative=Derivative(vjp=_index_put_vjp),
    check=Check(elements=_index_put_check, text=OUT_OF_BOUNDS),
    public=INTERNAL,
)
@isolated
def index_put(input: Array, indices: Arrays, values: Array, spec: tuple[int, ...], accumulate: bool = False) -> Array:
    """`input` with `values` written, or added, at the places that `index` reads with the same indices.

    If places repeat, `accumulate` adds every value; otherwise one value remains, on the CPU the last.
    """
    if values.dtype != input.dtype:
        raise DTypeError(
            "Index put requires the source and destination dtypes match, "
            f"got {scalar_name(input)} for the destination and {scalar_name(values)} for the source."
        )
    _index_shape([i.shape for i in indices])
    index = _advanced(indices, spec, input.shape)
    shape = jax.eval_shape(lambda x: x[index], input).shape
    try:
        values = jnp.broadcast_to(values, shape)
    except ValueError:
        raise ShapeError(
            f"shape mismatch: value tensor of shape {list(values.shape)} cannot be broadcast "
            f"to indexing result of shape {list(shape)}"
        ) from None
    ref = input.at[index]
    return added(ref, values) if accumulate else ref.set(values, **UNCHECKED)


# One index per cell


def _gather_check(input: Array, dim: Dim, index: Array) -> Misses:
    return outside_dim(index, input, dim)


@defop(
    types=NO_ARITHMETIC,
    dims=_gathers,
    shards=IS_LINEAR,
    check=Check(elements=_gather_check, text=OUT_OF_BOUNDS, error=IndexDomainError),
    public=Public(separate=("input",)),
)
def gather(input: Array, dim: Dim, index: Array, *, sparse_grad: bool = False) -> Array:
    """Each cell of `index` replaced by the element of `input` there, with the cell's value as coordinate along `dim`.

    The result has the shape of `index`, which may be smaller than `input` in the other dims.
    """
    del sparse_grad
    if not index.size:
        return jnp.zeros(index.shape, input.dtype)
    require_dtype(index, "gather(): Expected dtype int32/int64 for index", "int32", "int64")
    source, at = jnp.atleast_1d(input), jnp.atleast_1d(index)
    if source.ndim != at.ndim:
        raise ShapeError("Index tensor must have the same number of dimensions as input tensor")
    for d, (n, size) in enumerate(zip(at.shape, source.shape, strict=True)):
        if d != dim and n > size:
            raise ShapeError(
                f"Size does not match at dimension {d} expected index {list(index.shape)} "
                f"to be no larger than self {list(input.shape)} apart from dimension {dim}"
            )
    return source.at[cells(at, dim)].get(**UNCHECKED).reshape(index.shape)


def _take_along_dim_check(input: Array, indices: Array, dim: Dim = None) -> Misses:
    if dim is None:
        return outside(indices, input.size, f"dimension 0 with size {input.size}", negative=True)
    return outside_dim(indices, input, dim, negative=True)


@defop(
    derivative=Derivative(name="Gather"),
    types=NO_ARITHMETIC,
    dims=_takes_along,
    shards=IS_LINEAR,
    check=Check(elements=_take_along_dim_check, text=OUT_OF_BOUNDS, error=IndexDomainError),
)
def take_along_dim(input: Array, indices: Array, dim: Dim = None) -> Array:
    """Elements along `dim` at `indices`, which broadcast in other dims; both are flat when `dim` is None."""
    if indices.dtype != jnp.int64:
        raise DTypeError(f"torch.take_along_dim(): dtype of indices should be Long but got {scalar_name(indices)}")
    if dim is None:
        return input.reshape(-1)[wrapped(indices.reshape(-1), input.size)]
    if input.ndim != indices.ndim:
        raise ShapeError(
            "torch.take_along_dim(): input and indices should have the same number of dimensions, "
            f"but got {input.ndim} dimensions for input, and {indices.ndim} dimensions for indices"
        )
    if not input.ndim:
        return input
    both = (input, wrapped(indices, input.shape[dim]))
    others = broadcast_shapes(*((*a.shape[:dim], 1, *a.shape[dim + 1 :]) for a in both))
    source, at = (jnp.broadcast_to(a, (*others[:dim], a.shape[dim], *others[dim + 1 :])) for a in both)
    return source.at[cells(at, dim)].get(**UNCHECKED)


def _take_check(input: Array, index: Array) -> Misses:
    return outside_elements(index, input)


@defop(
    types=NO_ARITHMETIC,
    dims=_flat_read,
    shards=IS_LINEAR,
    check=Check(elements=_take_check, text=OUT_OF_ELEMENTS),
    public=Public(
        out="take(): self and out expected to have the same dtype, but got self.dtype = {0} and out.dtype = {1}",
        separate=("input", "index"),
    ),
)
def take(input: Array, index: Array) -> Array:
    """Elements of the flattened `input`; the result has the shape of `index`."""
    require_elements("take", index)
    if not input.size:
        if index.size:
            raise IndexRangeError("take(): tried to take from an empty tensor")
        return jnp.zeros(index.shape, input.dtype)
    return input.reshape(-1).at[wrapped(index, input.size)].get(**UNCHECKED)


# One index per slice


def _index_select_check(input: Array, dim: Dim, index: Array) -> Misses:
    return outside_dim(index, input, dim)


@defop(
    types=NO_ARITHMETIC,
    dims=_selects,
    shards=IS_LINEAR,
    check=Check(elements=_index_select_check, text=OUT_OF_SELF),
    public=Public(out="index_select(): self and result must have the same scalar type", separate=("input", "index")),
)
def index_select(input: Array, dim: Dim, index: Array) -> Array:
    """Slices along `dim` at the places in the vector `index`."""
    require_vector(index, "index_select(): Index is supposed to be a vector")
    require_dtype(index, "index_select(): Expected dtype int32 or int64 for index", "int32", "int64")
    if not input.ndim:
        if index.size != 1:
            raise ShapeError(f"index_select(): Index to scalar can have only 1 value, got {index.size} value(s)")
        return input
    if index.size and not input.shape[dim]:
        raise ShapeError("index_select(): self indexing axis dim should be positive")
    return input.at[rows(dim, index.reshape(-1))].get(**UNCHECKED)
