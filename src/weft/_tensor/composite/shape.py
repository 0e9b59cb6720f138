"""Functions over views: splitting, common shapes, and joins of tensors with few dims."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import accumulate

from weft._base.dtype import INTEGER, DType, int32, int64
from weft._base.guards import is_list_or_tuple
from weft._base.numpy_guards import NUMPY_NUMBER
from weft._base.site import warn_user
from weft._base.state import default_dtype
from weft._base.types import Arg
from weft._lazy.native import native
from weft._tensor.arguments import Dim, Dims, all_tensors, combination, integer, one_or_more_ints
from weft._tensor.codegen import op
from weft._tensor.dim_names import names_of, unnamed, with_names
from weft._tensor.fast_path import known_views
from weft._tensor.functions import composite
from weft._tensor.pieces import slices
from weft._tensor.tensor import Results, Tensor
from weft.errors import (
    ArgumentError,
    DimError,
    DTypeError,
    IndexRangeError,
    OutOfRangeError,
    ShapeError,
    UnsupportedDTypeError,
)
from weft.ops._dims import broadcast_shapes, wrap_dim
from weft.ops._table import NO_FUNCTION, OTHER_OUT, TABLE, Public
from weft.ops._type_names import scalar_name

Tensors = tuple[Tensor, ...]


def _unpacked(tensors: Sequence[object]) -> Sequence[Tensor]:
    """Tensors given as separate arguments or as one sequence."""
    return all_tensors(tensors[0] if len(tensors) == 1 and is_list_or_tuple(tensors[0]) else tensors)


# --- the order of elements ---


@composite(public=Public(out=OTHER_OUT))
def roll(input: Tensor, shifts: int | Sequence[int], dims: Dims | None = None) -> Tensor:
    """Elements shifted along `dims`, wrapping around at the ends; without dims, as if the tensor were flat."""
    by = (shifts,) if isinstance(shifts, int) else tuple(shifts)
    along = () if dims is None else (dims,) if isinstance(dims, int) else tuple(dims)
    if not by:
        raise ShapeError("`shifts` required")
    if not along and len(by) == 1:
        return op.reshape(op.roll(op.reshape(input, (-1,)), by[0], 0), tuple(input.shape))
    if along and not input.ndim:
        raise DimError(f"Dimension specified as {along[0]} but tensor has no dimensions")
    if len(by) != len(along):
        raise ShapeError(f"shifts and dimensions must align. shifts: {len(by)}, dims:{len(along)}")
    for shift, dim in zip(by, along, strict=True):
        input = op.roll(input, shift, dim)
    return input


@composite(public=Public(out=OTHER_OUT))
def rot90(input: Tensor, k: int = 1, dims: Dims = (0, 1)) -> Tensor:
    """Rotated `k` times by 90 degrees in the plane of two dims, from the first towards the second."""
    return op.rot90(input, k % 4, dims)


@composite(public=Public(out=OTHER_OUT))
def kthvalue(input: Tensor, k: int, dim: Dim = -1, keepdim: bool = False) -> Results:
    """The `k`-th smallest element along `dim`, counted from one, and its index."""
    at = wrap_dim(dim, input.ndim)
    if not 1 <= k <= (input.shape[at] if input.ndim else 1):
        raise ShapeError(f"kthvalue(): selected number k out of range for dimension {at}")
    return op.kthvalue(input, k, at, keepdim)


# --- parts of one tensor ---


@composite(twin=native and native.select)
def select(input: Tensor, dim: Dim, index: int) -> Tensor:
    """The slice at `index` along `dim`, without that dim."""
    if input.ndim == 0:
        raise DimError("select() cannot be applied to a 0-dim tensor.")
    at = wrap_dim(dim, input.ndim)
    size = input.shape[at]
    if not -size <= index < size:
        raise IndexRangeError(
            f"select(): index {index} out of range for tensor of size {list(input.shape)} at dimension {at}"
        )
    return op.select(input, at, index + size * (index < 0))


@composite(twin=native and native.narrow)
def narrow(input: Tensor, dim: int, start: int | Tensor, length: int) -> Tensor:
    """`length` slices along `dim` from `start` on, which may be a tensor of one integer."""
    if input.ndim == 0:
        raise ShapeError("narrow() cannot be applied to a 0-dim tensor.")
    if length < 0:
        raise OutOfRangeError("narrow(): length must be non-negative.")
    if isinstance(start, Tensor) and (start.ndim or start.dtype.category != INTEGER):
        raise ShapeError("start must be an 0-dim integral Tensor.")
    at, first = wrap_dim(dim, input.ndim), integer(start, "start", "narrow")
    size = input.shape[at]
    if not -size <= first <= size:
        raise IndexRangeError(f"start out of range (expected to be in range of [{-size}, {size}], but got {first})")
    first += size * (first < 0)
    if first + length > size:
        raise ShapeError(f"start ({first}) + length ({length}) exceeds dimension size ({size}).")
    return op.slice_dim(input, at, first, length)


@composite(twin=native and native.unbind)
def unbind(input: Tensor, dim: Dim = 0) -> Tensors:
    """All slices along `dim`, without that dim."""
    if input.ndim == 0:
        raise DimError("Dimension specified as 0 but tensor has no dimensions")
    at = wrap_dim(dim, input.ndim)
    return tuple(slices(input, at, input.shape[at]))


def _pieces(input: Tensor, dim: int, sizes: Sequence[int]) -> Tensors:
    starts = accumulate(sizes, initial=0)
    return tuple([op.slice_dim(input, dim, start, size) for start, size in zip(starts, sizes, strict=False)])


def _even_sizes(size: int, step: int) -> list[int]:
    """Pieces of `step`, the last one smaller; at least one piece."""
    return [min(step, size - i) for i in range(0, size, step)] if size else [0]


@composite(twin=native and native.split)
def split(
    input: Tensor,
    split_size_or_sections: int | Sequence[int] | None = None,
    dim: int = 0,
    *,
    split_size: int | Sequence[int] | None = None,
) -> Tensors:
    """Pieces along `dim`, of one size except for the last, or of the given sizes.

    `split_size` is the name of `split_size_or_sections` in the method.
    """
    division = split_size_or_sections if split_size is None else split_size
    if division is None or (split_size is not None and split_size_or_sections is not None):
        raise ArgumentError(f"split() takes one size or list of sizes, got {'none' if division is None else 'two'}")
    if input.ndim == 0:
        raise ShapeError("split expects at least a 1-dimensional tensor")
    at = wrap_dim(dim, input.ndim)
    size = input.shape[at]
    if not isinstance(division, int):
        return split_with_sizes(input, division, at)
    step = division
    if step < 0:
        raise OutOfRangeError(f"split expects split_size be non-negative, but got split_size={step}")
    if step == 0 and size:
        raise ShapeError(f"split_size can only be 0 if dimension size is 0, but got dimension size of {size}")
    return _pieces(input, at, _even_sizes(size, step))


@composite()
def split_with_sizes(input: Tensor, split_sizes: Sequence[int], dim: Dim = 0) -> Tensors:
    """Pieces along `dim` of the given sizes, which must sum to the whole."""
    at, sizes = wrap_dim(dim, input.ndim), [int(n) for n in split_sizes]
    if any(n < 0 for n in sizes):
        raise ShapeError(
            f"split_with_sizes expects split_sizes have only non-negative entries, but got split_sizes={sizes}"
        )
    if sum(sizes) != input.shape[at]:
        raise ShapeError(
            f"split_with_sizes expects split_sizes to sum exactly to {input.shape[at]} (input tensor's size "
            f"at dimension {at}), but got split_sizes={sizes}"
        )
    return _pieces(input, at, sizes)


@composite(twin=native and native.chunk)
def chunk(input: Tensor, chunks: int, dim: int = 0) -> Tensors:
    """At most `chunks` pieces along `dim`, of one size except for the last."""
    if input.ndim == 0:
        raise ShapeError("chunk expects at least a 1-dimensional tensor")
    if chunks <= 0:
        raise OutOfRangeError(f"chunk expects `chunks` to be greater than 0, got: {chunks}")
    at = wrap_dim(dim, input.ndim)
    size = input.shape[at]
    return _pieces(input, at, _even_sizes(size, -(-size // chunks)) if size else [0] * chunks)


@composite()
def tensor_split(
    input: Tensor,
    indices_or_sections: int | Sequence[int] | Tensor | None = None,
    dim: Dim = 0,
    *,
    indices: Sequence[int] | None = None,
    sections: int | None = None,
    tensor_indices_or_sections: Tensor | None = None,
) -> Tensors:
    """Pieces along `dim`: a number of nearly equal ones, or split before the given positions.

    `indices`, `sections` and `tensor_indices_or_sections` are PyTorch's other names of `indices_or_sections`.
    """
    ways = [x for x in (indices_or_sections, indices, sections, tensor_indices_or_sections) if x is not None]
    if len(ways) != 1:
        raise ArgumentError(f"tensor_split() takes one of indices and sections, but got {len(ways)}")
    (indices_or_sections,) = ways
    if input.ndim == 0:
        raise ShapeError("tensor_split expected at least a 1-dimensional tensor, but got a tensor with 0 dims")
    at = wrap_dim(dim, input.ndim)
    size = input.shape[at]
    division: Arg = indices_or_sections
    if isinstance(division, Tensor):  # of positions, or of one number of sections
        if division.ndim > 1:
            raise ShapeError(
                "tensor_split expected tensor_indices_or_sections to be a zero-dimensional or one-dimensional tensor, "
                f"but got a tensor with {division.ndim} dims"
            )
        if division.dtype is not int64:
            raise DTypeError(
                "tensor_split expected tensor_indices_or_sections to have dtype of long, "
                f"but got {scalar_name(division.dtype)}"
            )
        division = division.tolist()
    division = one_or_more_ints(division, "indices_or_sections", "tensor_split")
    if isinstance(division, int):
        if division <= 0:
            raise OutOfRangeError(f"number of sections must be larger than 0, got {division}")
        return _pieces(input, at, [size // division + (i < size % division) for i in range(division)])
    cuts = [range(size)[slice(cut)].stop for cut in division]
    return tuple(
        op.slice_dim(input, at, start, max(0, stop - start))
        for start, stop in zip([0, *cuts], [*cuts, size], strict=True)
    )


def _named_split(name: str, least: int, dim_of: Callable[[int], int]) -> None:
    """Define `hsplit` and similar functions: a tensor of at least `least` dims, split along the dim `dim_of(ndim)`."""

    @composite(name, doc="Pieces of one size along a fixed dim, or cut before the positions given.")
    def body(input: Tensor, indices_or_sections: object) -> Tensors:
        if input.ndim < least:
            raise ShapeError(
                f"torch.{name} requires a tensor with at least {least} dimension, "
                f"but got a tensor with {input.ndim} dimensions!"
            )
        dim = dim_of(input.ndim)
        count, size = indices_or_sections, input.shape[dim]
        if isinstance(count, (Tensor, NUMPY_NUMBER)):
            count = integer(count, "sections", name)
        if not isinstance(count, int | list | tuple):
            raise combination(name, input, count)
        if isinstance(count, int) and (count == 0 or size % count):
            raise ShapeError(
                f"torch.{name} attempted to split along dimension {dim}, but the size of the dimension "
                f"{size} is not divisible by the split_size {count}!"
            )
        return tensor_split(input, count, dim)


_named_split("hsplit", 1, lambda ndim: min(1, ndim - 1))
_named_split("vsplit", 2, lambda ndim: 0)
_named_split("dsplit", 3, lambda ndim: 2)


# --- other shapes ---


@composite(public=NO_FUNCTION, twin=native and known_views(TABLE["view"]))
def view(input: Tensor, *shape: object, size: object = None, dtype: object = None) -> Tensor:
    """The elements in the same order in another shape, in which one size may be -1; or the bytes as another type.

    `RuntimeError` if that needs a copy.
    """
    if size is not None:
        shape = (size,)
    if dtype is None and shape and isinstance(shape[0], _TYPES):
        dtype = shape[0]
    return op.view(input, *shape) if dtype is None else op.retyped(input, dtype)


_TYPES = (DType, type)


@composite(public=NO_FUNCTION)
def view_as(input: Tensor, other: Tensor) -> Tensor:
    """The elements in the shape of another tensor."""
    return op.view(input, other.shape)


@composite(public=NO_FUNCTION)
def reshape_as(input: Tensor, other: Tensor) -> Tensor:
    """The elements in the shape of another tensor."""
    return op.reshape(input, other.shape)


@composite(public=NO_FUNCTION)
def expand_as(input: Tensor, other: Tensor) -> Tensor:
    """Dims of size one repeated, to the shape of another tensor."""
    return op.expand(input, other.shape)


def _to_1d(x: Tensor) -> Tensor:
    return x if x.ndim else op.reshape(x, (1,))


def _to_2d(x: Tensor) -> Tensor:
    return x if x.ndim >= 2 else op.unsqueeze(_to_1d(x), 0)


def _to_3d(x: Tensor) -> Tensor:
    return x if x.ndim >= 3 else op.unsqueeze(_to_2d(x), -1)


def _to_columns(x: Tensor) -> Tensor:
    return x if x.ndim >= 2 else op.reshape(x, (-1, 1))


def _at_least(name: str, lift: Callable[[Tensor], Tensor]) -> None:
    @composite(name, doc="Each tensor with dims of size one added until it has enough; one tensor gives one back.")
    def body(*tensors: object) -> Results:
        lifted = tuple(lift(x) for x in _unpacked(tensors))
        return lifted[0] if len(tensors) == 1 and not isinstance(tensors[0], list | tuple) else lifted


for _name, _lift in (("atleast_1d", _to_1d), ("atleast_2d", _to_2d), ("atleast_3d", _to_3d)):
    _at_least(_name, _lift)


# --- several tensors ---


def _stacked(name: str, lift: Callable[[Tensor], Tensor], dim_of: Callable[[int], int], doc: str) -> None:
    @composite(name, doc=doc)
    def body(tensors: Sequence[Tensor]) -> Tensor:
        if not len(tensors):
            raise ShapeError(f"{name} expects a non-empty TensorList")
        lifted = [lift(x) for x in all_tensors(tensors)]
        return op.cat(lifted, dim_of(lifted[0].ndim))


_stacked("hstack", _to_1d, lambda ndim: min(1, ndim - 1), "Tensors side by side along the second dim.")
_stacked("vstack", _to_2d, lambda ndim: 0, "Tensors one below the other; vectors count as rows.")
_stacked("row_stack", _to_2d, lambda ndim: 0, "Tensors one below the other; vectors count as rows.")
_stacked("dstack", _to_3d, lambda ndim: 2, "Tensors one behind the other along the third dim.")
_stacked("column_stack", _to_columns, lambda ndim: 1, "Tensors side by side; vectors count as columns.")


@composite()
def block_diag(*tensors: object) -> Tensor:
    """Matrices along the diagonal of a larger one, zeros elsewhere; without any, a row of no elements."""
    if not tensors:
        return op.zeros((1, 0), dtype=default_dtype())
    return op.block_diag(_unpacked(tensors))


@composite()
def broadcast_tensors(*tensors: object) -> Tensors:
    """Every tensor expanded to their common shape."""
    inputs = _unpacked(tensors)
    shape = broadcast_shapes(*(tuple(x.shape) for x in inputs))
    return tuple(x if x.shape == shape else op.expand(x, shape) for x in inputs)


@composite()
def meshgrid(*tensors: object, indexing: str | None = None) -> Tensors:
    """Coordinates of the grid of some vectors. `"xy"` swaps the first two dims of the results; `"ij"` does not."""
    if indexing is None:
        warn_user("torch.meshgrid: in an upcoming release, it will be required to pass the indexing argument.")
        indexing = "ij"
    vectors = list(_unpacked(tensors))
    if not vectors:
        raise ShapeError("meshgrid expects a non-empty TensorList")
    for x in vectors:
        if x.ndim > 1:
            raise ShapeError(f"torch.meshgrid: Expected 0D or 1D tensor in the tensor list but got: {x.ndim}D")
        if x.dtype != vectors[0].dtype:
            raise DTypeError("meshgrid expects all tensors to have the same dtype")
    if indexing not in ("ij", "xy"):
        raise OutOfRangeError(f'torch.meshgrid: indexing must be one of "xy" or "ij", but received: {indexing}')
    places = list(range(len(vectors)))
    if indexing == "xy":
        places[:2] = places[1::-1]
    sizes = [_to_1d(x).shape[0] for x in vectors]
    shape = [sizes[i] for i in places]
    grid = tuple((*names_of(vectors[i]), None)[0] for i in places)
    return tuple(
        with_names(op.expand(op.view(unnamed(x), [-1 if i == own else 1 for i in places]), shape), grid)
        for own, x in enumerate(vectors)
    )


@composite()
def cartesian_prod(*tensors: object) -> Tensor:
    """All combinations of one element from each vector, as rows; a single vector is returned unchanged."""
    vectors = _unpacked(tensors)
    for x in vectors:
        if x.ndim != 1:
            raise ShapeError(f"Expect a 1D vector, but got shape {list(x.shape)}")
    if len(vectors) == 1:
        return vectors[0]
    return op.stack([op.reshape(x, (-1,)) for x in meshgrid(*vectors, indexing="ij")], 1)


@composite()
def repeat_interleave(
    input: Tensor, repeats: object = None, dim: Dim | None = None, *, output_size: int | None = None
) -> Tensor:
    """Each slice along `dim` repeated; `repeats` is a number or a tensor with a count for each slice.

    A tensor of counts alone gives the indices instead. Counts determine the result's shape, so they are read.
    """
    if repeats is None:
        if input.ndim != 1:
            raise ShapeError("repeat_interleave only accept 1D vector as repeat")
        counts = _counts(input)
        input = op.arange(input.shape, 0, 1, dtype=int64)
    else:
        counts = _counts(repeats) if isinstance(repeats, Tensor) else integer(repeats, "repeats", "repeat_interleave")
    out = op.repeat_interleave(input, counts, dim)
    if output_size is not None and output_size != out.shape[dim or 0]:
        raise ShapeError("allocated size does not match required size: that is the sum of the repeats")
    return out


def _counts(repeats: Tensor) -> tuple[int, ...]:
    """The number of repetitions of each slice."""
    if repeats.ndim > 1:
        raise ShapeError("repeats must be 0-dim or 1-dim tensor")
    if repeats.dtype not in (int64, int32):
        raise UnsupportedDTypeError(f"\"repeat_interleave_cpu\" not implemented for '{scalar_name(repeats.dtype)}'")
    counts = tuple(repeats.reshape(-1).tolist())
    if min(counts, default=0) < 0:
        raise OutOfRangeError("repeats can not be negative")
    return counts
