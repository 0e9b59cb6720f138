"""Operators that join, repeat, reverse or move elements; their results are copies."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from functools import partial

import jax.numpy as jnp
import numpy as np
from jax import lax

from weft.errors import OutOfRangeError, ShapeError, ValueRangeError
from weft.ops._autocast import Cast
from weft.ops._dims import Factors, Rule, Sizes, Static, along, diagonal_length, wrap_dim
from weft.ops._index import part_at
from weft.ops._kinds import Array, Arrays, Dim, DimList, Scalar, Shape, Whole
from weft.ops._memory import require_addressable
from weft.ops._rows import alias
from weft.ops._shape_dims import fresh, once, same, square
from weft.ops._table import (
    IN_PLACE,
    INTERNAL,
    IS_LINEAR,
    NO_ARITHMETIC,
    NO_FUNCTION,
    SAVES,
    Arithmetic,
    Derivative,
    Promote,
    Public,
    Shards,
    Types,
    defop,
)
from weft.ops.slicing import diagonals

joins = partial(
    defop,
    types=Types(promote=Promote.COMMON, autocast=Cast.PROMOTE, arithmetic=Arithmetic.NONE),
    shards=Shards(linear="all"),
)
moves = partial(defop, types=NO_ARITHMETIC, shards=IS_LINEAR)

# --- joining ---


def _is_legacy_empty(shape: Sizes) -> bool:
    """Whether a tensor has shape (0,). Such tensors can be joined with anything, as in PyTorch's first releases."""
    return tuple(shape) == (0,)


def _check_cat(shapes: Sequence[Sizes], dim: int) -> None:
    """Raise `ValueError` for an empty list, and `RuntimeError` for shapes that cannot be joined along `dim`."""
    if not shapes:
        raise ValueRangeError("torch.cat(): expected a non-empty list of Tensors")
    for i, shape in enumerate(shapes):
        if not shape:
            raise ShapeError(f"zero-dimensional tensor (at position {i}) cannot be concatenated")
    first = next((s for s in shapes if not _is_legacy_empty(s)), (0,))
    for i, shape in enumerate(shapes):
        if _is_legacy_empty(shape):
            continue
        if len(shape) != len(first):
            raise ShapeError(f"Tensors must have same number of dimensions: got {len(first)} and {len(shape)}")
        for d, (want, have) in enumerate(zip(first, shape, strict=True)):
            if want != have and d != dim:
                raise ShapeError(
                    f"Sizes of tensors must match except in dimension {dim}. Expected size {want} "
                    f"but got size {have} for tensor number {i} in the list."
                )


def _cat_dims(shapes: Sequence[Sizes], static: Static) -> Factors:
    if not shapes:
        raise ValueRangeError("torch.cat(): expected a non-empty list of Tensors")
    _check_cat(shapes, static["dim"])
    ndim = max(len(s) for s in shapes)
    letters = tuple(range(ndim))
    ins = tuple(letters if len(s) == ndim else ("empty",) for s in shapes)
    return Factors(ins, (letters,), frozenset({static["dim"], "empty"}))


@joins(dims=_cat_dims, public=Public(separate=("tensors",)))
def cat(tensors: Arrays, dim: Dim = 0) -> Array:
    """The tensors one after the other along `dim`, in their common type."""
    kept = [t for t in tensors if not _is_legacy_empty(t.shape)]
    return lax.concatenate(kept, dim) if kept else tensors[0]


alias(cat, "concat", "concatenate")


def _stack_dims(shapes: Sequence[Sizes], static: Static) -> Factors:
    if not shapes:
        raise ShapeError("stack expects a non-empty TensorList")
    for i, shape in enumerate(shapes):
        if shape != shapes[0]:
            raise ShapeError(
                f"stack expects each tensor to be equal size, but got {list(shapes[0])} at entry 0 "
                f"and {list(shape)} at entry {i}"
            )
    letters = tuple(range(len(shapes[0])))
    at = wrap_dim(static["dim"], len(letters) + 1)
    return Factors((letters,) * len(shapes), ((*letters[:at], "new", *letters[at:]),))


@joins(dims=_stack_dims, public=Public(separate=("tensors",)))
def stack(tensors: Arrays, dim: int = 0) -> Array:
    """Tensors of one shape side by side along a new dim."""
    return jnp.stack(tensors, wrap_dim(dim, tensors[0].ndim + 1))


def _block(tensor: Array, position: int) -> Array:
    if tensor.ndim > 2:
        raise ShapeError(
            "torch.block_diag: Input tensors must have 2 or fewer dimensions. "
            f"Input {position} has {tensor.ndim} dimensions"
        )
    return jnp.atleast_2d(tensor)


@joins(dims=fresh(2), public=NO_FUNCTION)
def block_diag(tensors: Arrays) -> Array:
    """Matrices along the diagonal of a larger one, zeros elsewhere; a tensor of fewer dims is one row."""
    blocks = [_block(t, i) for i, t in enumerate(tensors)]
    ends = np.cumsum([b.shape[1] for b in blocks])
    rows = [jnp.pad(b, ((0, 0), (end - b.shape[1], ends[-1] - end))) for b, end in zip(blocks, ends, strict=True)]
    return jnp.concatenate(rows)


# --- repeating ---


def _repeat_dims(name: str) -> Rule:
    """Input dims become the last output dims; repeated ones must be whole."""

    def rule(shapes: Sequence[Sizes], static: Static) -> Factors:
        ndim, counts = len(shapes[0]), static[name]
        new = max(0, len(counts) - ndim)
        out = (*(f"new:{i}" for i in range(new)), *range(ndim))
        whole = (letter for letter, n in zip(out[::-1], counts[::-1], strict=False) if n != 1)
        return Factors((tuple(range(ndim)),), (out,), frozenset(whole))

    return rule


def _tiled(input: Array, counts: Shape) -> Array:
    padded = (1,) * (input.ndim - len(counts)) + tuple(counts)
    shape = (1,) * (len(padded) - input.ndim) + input.shape
    sizes = [n * count for n, count in zip(shape, padded, strict=True)]
    for size, count in zip(sizes, padded, strict=True):
        if count < 0:
            raise ShapeError(f"Trying to create tensor with negative dimension {size}: {sizes}")
    require_addressable(sizes, input.dtype.itemsize)
    return jnp.tile(input, padded)


@moves(derivative=Derivative(name="Repeat"), dims=_repeat_dims("dims"))
def tile(input: Array, dims: Shape) -> Array:
    """Whole copies side by side, `dims[i]` of them along dim `i`, counted from the last."""
    return _tiled(input, dims)


@moves(dims=_repeat_dims("repeats"), public=INTERNAL)
def repeat(input: Array, repeats: Shape) -> Array:
    """Whole copies side by side. `repeats` has at least as many entries as the input has dims."""
    if len(repeats) < input.ndim:
        raise ShapeError("Number of dimensions of repeat dims can not be smaller than number of dimensions of tensor")
    return _tiled(input, repeats)


def _interleave_dims(shapes: Sequence[Sizes], static: Static) -> Factors:
    return fresh(1)(shapes) if static.get("dim") is None else along(shapes, static)


@moves(dims=_interleave_dims, public=INTERNAL)
def repeat_interleave(input: Array, repeats: int | tuple[int, ...], dim: Dim = None) -> Array:
    """Each slice along `dim` repeated in place; without `dim`, each element of the flat tensor."""
    counts = np.atleast_1d(repeats)
    if (counts < 0).any():
        raise ShapeError("Repeats must be non-negative")
    flat = jnp.ravel(input) if dim is None else jnp.atleast_1d(input)
    size = flat.shape[dim or 0]
    if len(counts) not in (1, size):
        raise ShapeError(
            "repeats must have the same size as input along dim, but got "
            f"repeats.size(0) = {len(counts)} and input.size({dim or 0}) = {size}"
        )
    total = int(counts[0]) * size if len(counts) == 1 else int(counts.sum())
    require_addressable((total,), input.dtype.itemsize)
    return jnp.repeat(flat, counts, axis=dim or 0, total_repeat_length=total)


# --- reversing and rotating ---


def _listed_dims(shapes: Sequence[Sizes], static: Static) -> Factors:
    return along(shapes, {"dim": static.get("dims")})


@moves(dims=_listed_dims)
def flip(input: Array, dims: DimList) -> Array:
    """The elements in reverse order along each of `dims`."""
    at = [wrap_dim(d, input.ndim) for d in dims]
    once(at)
    return jnp.flip(input, at) if input.ndim else input


def _flip_row(name: str, dim: int) -> None:
    def body(input: Array) -> Array:
        if input.ndim <= dim:
            raise ShapeError(f"Input must be >= {dim + 1}-d.")
        return jnp.flip(input, dim)

    body.__doc__ = f"In reverse order along dim {dim}."
    moves(name, dims=same)(body)


_flip_row("flipud", 0)
_flip_row("fliplr", 1)


@moves(dims=along, public=INTERNAL)
def roll(input: Array, shift: Whole, dim: Dim) -> Array:
    """Elements shifted along a dim, wrapping around at its end."""
    size = input.shape[dim]
    if not size:
        return input
    twice = jnp.concatenate([input, input], dim)  # of which the shifted elements are one slice, wherever that begins
    return part_at(twice, -jnp.asarray(shift) % size, size, dim)


def _plane(ndim: int, dims: Sequence[int]) -> tuple[int, int]:
    """The two dims of a rotation, checked with PyTorch's own texts; therefore the parameter is not a `Dims`."""
    if len(dims) != 2:
        raise ShapeError(f"expected total rotation dims == 2, but got dims = {len(dims)}")
    if ndim < 2:
        raise ShapeError(f"expected total dims >= 2, but got total dims = {ndim}")
    first, second = (wrap_dim(d, ndim) for d in dims)
    if first == second:
        raise ShapeError(f"expected rotation dims to be different, but got dim0 = {dims[0]} and dim1 = {dims[1]}")
    return first, second


def _turn_dims(shapes: Sequence[Sizes], static: Static) -> Factors:
    letters = tuple(range(len(shapes[0])))
    a, b = _plane(len(letters), static["dims"])
    out = list(letters)
    if static["k"] % 2:
        out[a], out[b] = out[b], out[a]
    return Factors((letters,), (tuple(out),), frozenset({a, b}))


@moves(dims=_turn_dims, public=INTERNAL)
def rot90(input: Array, k: int = 1, dims: DimList = (0, 1)) -> Array:
    """Rotated `k` times by 90 degrees in the plane of two dims, from the first towards the second."""
    return jnp.rot90(input, k, _plane(input.ndim, dims))


# --- triangles and diagonals ---


def _triangle_row(name: str, keeps: Callable[..., Array], doc: str) -> None:
    def body(input: Array, diagonal: Whole = 0) -> Array:
        if input.ndim < 2:
            raise ShapeError(f"{name}: input tensor must have at least 2 dimensions")
        rows, columns = (jnp.arange(size) for size in input.shape[-2:])
        return jnp.where(keeps(columns - rows[:, None], diagonal), input, jnp.zeros_like(input))

    body.__doc__ = doc
    moves(name, dims=square, public=IN_PLACE)(body)


_triangle_row("tril", jnp.less_equal, "The matrices on and below a diagonal, zeros elsewhere.")
_triangle_row("triu", jnp.greater_equal, "The matrices on and above a diagonal, zeros elsewhere.")


def _diagonal_matrix(values: Array, offset: int) -> Array:
    """Square matrices with the elements of the last dim on a diagonal."""
    size = values.shape[-1] + abs(offset)
    rows = np.arange(values.shape[-1]) + max(0, -offset)
    matrix = jnp.zeros((*values.shape[:-1], size, size), values.dtype)
    return matrix.at[..., rows, rows + offset].set(values)


@moves(dims=lambda shapes, static: fresh(3 - len(shapes[0]))(shapes))
def diag(input: Array, diagonal: int = 0) -> Array:
    """The diagonal of a matrix, or the matrix with this diagonal."""
    if input.ndim not in (1, 2):
        raise ShapeError(f"diag(): Supports 1D or 2D tensors. Got {input.ndim}D")
    if input.ndim == 1:
        return _diagonal_matrix(input, diagonal)
    rows, columns = input.shape
    return diagonals(input, diagonal, diagonal_length(rows, columns, diagonal))


def _matrix_dims(ndim: int, dim1: int, dim2: int) -> tuple[int, int]:
    first, second = wrap_dim(dim1, ndim), wrap_dim(dim2, ndim)
    if first == second:
        raise ShapeError(f"diagonal dimensions cannot be identical {dim1}, {dim2}")
    return first, second


def _embed_dims(shapes: Sequence[Sizes], static: Static) -> Factors:
    letters = tuple(range(len(shapes[0])))
    first, second = _matrix_dims(len(letters) + 1, static["dim1"], static["dim2"])
    goes = {first: "row", second: "column"}
    rest = iter(letters[:-1])
    out = tuple(goes[d] if d in goes else next(rest) for d in range(len(letters) + 1))
    return Factors((letters,), (out,), frozenset(letters[-1:]))


@moves(dims=_embed_dims)
def diag_embed(input: Array, offset: int = 0, dim1: int = -2, dim2: int = -1) -> Array:
    """Matrices, over `dim1` and `dim2` of the result, that have the elements of the last dim on a diagonal."""
    goes = _matrix_dims(input.ndim + 1, dim1, dim2)
    return jnp.moveaxis(_diagonal_matrix(input, offset), (-2, -1), goes)


@moves(derivative=Derivative(name="DiagEmbed"), dims=fresh(2))
def diagflat(input: Array, offset: int = 0) -> Array:
    """The matrix with all elements on a diagonal."""
    return _diagonal_matrix(jnp.ravel(input), offset)


# --- the rest ---


@moves(dims=fresh(2), derivative=SAVES)
def combinations(input: Array, r: int = 2, with_replacement: bool = False) -> Array:
    """All choices of `r` elements of a vector, one a row."""
    if input.ndim != 1:
        raise ShapeError(f"Expect a 1D vector, but got shape {list(input.shape)}")
    if r < 0:
        raise ShapeError(f"Expect a non-negative number, but got {r}")
    choose = itertools.combinations_with_replacement if with_replacement else itertools.combinations
    rows = np.array(list(choose(range(input.size), r)), int).reshape(-1, r) if r else np.zeros((0,), int)
    return jnp.take(input, rows, mode="clip") if rows.size else jnp.zeros(rows.shape, input.dtype)


def _pad_dims(shapes: Sequence[Sizes], static: Static) -> Factors:
    letters = tuple(range(len(shapes[0])))
    pad = static["pad"]
    whole = (letters[-1 - i // 2] for i, n in enumerate(pad) if n)
    return Factors((letters,), (letters,), frozenset(whole))


@defop(derivative=Derivative(name="ConstantPadNd"), types=NO_ARITHMETIC, dims=_pad_dims, public=INTERNAL)
def constant_pad(input: Array, pad: Shape, value: Scalar = 0) -> Array:
    """The tensor padded with `value`. `pad` has pairs (before, after), last dim first; negative amounts cut off."""
    if len(pad) % 2:
        raise ShapeError("Padding length must be divisible by 2")
    if len(pad) > 2 * input.ndim:
        raise ShapeError(
            "Padding length should be less than or equal to two times the input dimension but got "
            f"padding length {len(pad)} and input of dimension {input.ndim}"
        )
    pairs = [(pad[i], pad[i + 1], 0) for i in range(0, len(pad), 2)][::-1]
    config = [(0, 0, 0)] * (input.ndim - len(pairs)) + pairs
    if any(size + low + high < 0 for size, (low, high, _) in zip(input.shape, config, strict=True)):
        raise OutOfRangeError("narrow(): length must be non-negative.")
    return lax.pad(input, jnp.asarray(value, input.dtype), config)
