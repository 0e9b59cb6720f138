"""Functions whose result's size depends on the elements. They wait for the elements and compute on the host."""

from __future__ import annotations

from math import prod

import numpy as np

from weft._base.dtype import bool_, float32
from weft._base.types import Arg
from weft._lazy.precision import is_half
from weft._tensor.arguments import AnyDims
from weft._tensor.codegen import op
from weft._tensor.convert import from_host
from weft._tensor.dim_names import names_of, with_names
from weft._tensor.functions import composite
from weft._tensor.subscript import getitem, nonzero_dims
from weft._tensor.tensor import Results, Tensor, placed_with
from weft.errors import DimError, DTypeError, ShapeError, UnsupportedDTypeError
from weft.ops._dims import broadcast_shapes, wrap_dim
from weft.ops._table import Public
from weft.ops._type_names import scalar_name

HostArray = np.ndarray


def _host(input: Tensor) -> HostArray:
    return input.detach()._host()


def _result(input: Tensor, array: HostArray) -> Tensor:
    """A tensor of what the host has computed; distributed, and whole on each process, if the input is distributed."""
    return placed_with(input, from_host(array, input.device))


# ---- nonzero elements


@composite(public=Public(out="nonzero: Expected out tensor to have scalar type {0} but got scalar type{1}"))
def nonzero(input: Tensor, *, as_tuple: bool = False) -> Results:
    """Coordinates of the nonzero elements: as rows of one tensor, or as one tensor for each dim (`as_tuple`)."""
    if as_tuple:
        return nonzero_dims(input if input.ndim else op.reshape(input, (1,)))
    return _result(input, np.argwhere(_host(input)).astype(np.int64))


@composite()
def argwhere(input: Tensor) -> Tensor:
    """Coordinates of the nonzero elements, in rows."""
    return nonzero(input)


@composite(
    public=Public(out="masked_select(): self and result must have the same scalar type", separate=("input", "mask"))
)
def masked_select(input: Tensor, mask: Tensor) -> Tensor:
    """A vector of the elements where `mask`, which broadcasts against `input`, is true."""
    if mask.dtype is not bool_:
        raise DTypeError("masked_select: expected BoolTensor for mask")
    shape = broadcast_shapes(input.shape, mask.shape)
    return getitem(op.expand(input, shape), op.expand(mask, shape))


# ---- groups of equal elements


def _groups(
    input: Tensor, axis: int | None, members: HostArray, inverse: Arg, counts: Arg, wanted: tuple[bool, bool]
) -> Results:
    """The result of `unique` and `unique_consecutive`: the members, and inverse and counts as far as `wanted`."""
    names = names_of(input)
    names_of_inverse = names if axis is None else names[axis : axis + 1]
    tensors = [with_names(_result(input, members), (None,) if axis is None else names)]
    for array, its_names, want in zip((inverse, counts), (names_of_inverse, (None,)), wanted, strict=True):
        if want:
            tensors.append(with_names(_result(input, array.astype(np.int64)), its_names))
    return tensors[0] if len(tensors) == 1 else tuple(tensors)


def _axis(input: Tensor, dim: Arg) -> int | None:
    """The dim whose slices are compared; raises if the slices are empty, unless there are no slices."""
    if input.dtype.is_complex:
        raise UnsupportedDTypeError(f"\"unique\" not implemented for '{scalar_name(input.dtype)}'")
    if dim is None:
        return None
    if not input.ndim:
        raise DimError(f"Dimension specified as {dim} but tensor has no dimensions")
    axis = wrap_dim(dim, input.ndim)
    empty = [d for d, size in enumerate(input.shape) if size == 0]
    if axis in empty and len(empty) > 1:
        raise ShapeError("Number of zero sized dimensions is more than one, so unique cannot be applied ")
    if empty and axis not in empty:
        raise ShapeError("There are 0 sized dimensions, and they aren't selected, so unique cannot be applied")
    return axis


@composite()
def unique(
    input: Tensor, sorted: bool = True, return_inverse: bool = False, return_counts: bool = False, dim: AnyDims = None
) -> Results:
    """The distinct elements, or distinct slices along `dim`, in ascending order.

    On request also the index among them for every element or slice, and how often each of them occurs.
    """
    del sorted  # PyTorch always sorts, too
    axis = _axis(input, dim)
    host = _host(input)
    ordered = host.astype(np.float32) if is_half(host.dtype) else host  # NumPy orders NaN only in its own types
    members, inverse, counts = np.unique(ordered, return_inverse=True, return_counts=True, axis=axis, equal_nan=False)
    members = members.astype(host.dtype)
    inverse = inverse.reshape(input.shape if dim is None else -1)
    return _groups(input, axis, members, inverse, counts, (return_inverse, return_counts))


@composite()
def unique_consecutive(
    input: Tensor, return_inverse: bool = False, return_counts: bool = False, dim: AnyDims = None
) -> Results:
    """The elements, or slices along `dim`, without those that are equal to the one before.

    On request also the index among them for every element or slice, and the length of each run.
    """
    host = _host(input).reshape(-1) if dim is None else _host(input)
    axis = _axis(input, dim) or 0
    moved = np.moveaxis(host, axis, 0)
    rows = moved.reshape(len(moved), prod(moved.shape[1:]))
    starts = np.ones(len(rows), bool)
    starts[1:] = (rows[1:] != rows[:-1]).any(axis=1)
    inverse = np.cumsum(starts) - 1
    counts = np.diff(np.flatnonzero(starts), append=len(rows))
    members = np.compress(starts, host, axis)
    inverse = inverse.reshape(input.shape) if dim is None else inverse
    return _groups(input, None if dim is None else axis, members, inverse, counts, (return_inverse, return_counts))


@composite()
def bincount(input: Tensor, weights: Tensor | None = None, minlength: int = 0) -> Tensor:
    """How often each of 0, 1, … occurs, or the sum of its `weights`; the result has at least `minlength` entries."""
    if input.dtype.is_differentiable or input.dtype is bool_:
        raise UnsupportedDTypeError(f"\"bincount_cpu\" not implemented for '{scalar_name(input.dtype)}'")
    if minlength < 0:
        raise ShapeError("minlength should be >= 0")
    host = _host(input)
    if input.ndim != 1 or (host < 0).any():
        raise ShapeError("bincount only supports 1-d non-negative integral inputs.")
    if weights is None:
        return _result(input, np.bincount(host.astype(np.int64), minlength=minlength))
    if weights.shape != input.shape:
        raise ShapeError("weights should be 1-d and have the same length as input")
    sums = np.bincount(host.astype(np.int64), _host(weights), minlength)
    return _result(input, sums.astype(np.float32) if weights.dtype is float32 else sums)
