"""Tensors in coordinate format: an index for each element that is stored."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import prod

import numpy as np

from weft._base.dtype import bool_, int64, uint8
from weft._base.layout import sparse_coo
from weft._base.size import size_of
from weft._tensor.codegen import op
from weft._tensor.composed import composed, encoding_of
from weft._tensor.convert import from_host
from weft._tensor.sparse.encoding import Sparse, own_indices
from weft._tensor.tensor import Tensor
from weft.errors import ShapeError
from weft.ops._strides import row_major


@dataclass(eq=False, repr=False)
class Coo(Sparse):
    """The sizes of its dims are those of sparse dims, then those of dense dims.

    indices       (sparse dims, stored elements), of int64
    values        (stored elements, *sizes of dense dims); those with equal indices are added up
    is_coalesced  whether no index occurs twice, and indices are in order
    """

    layout = sparse_coo
    kind = "Sparse"

    indices: Tensor
    is_coalesced: bool = False

    @property
    def sparse_dim(self) -> int:
        """The number of sparse dims."""
        return self.indices.shape[0]

    @property
    def count(self) -> int:
        """The number of stored elements."""
        return self.indices.shape[1]

    @property
    def sizes(self) -> tuple[int, ...]:
        """The sizes of the sparse dims."""
        return tuple(self.size[: self.sparse_dim])

    def empty(self, size: Sequence[int], like: Tensor) -> Tensor:
        """A tensor that stores nothing, with as many dense dims."""
        return empty_coo(tuple(size), max(len(size) - (len(self.size) - self.sparse_dim), 0), like)

    def whole_array(self) -> Tensor:
        """All elements, zero where none is stored."""
        whole = summed_at(self.values, flat_index(self.indices, self.sizes), prod(self.sizes))
        return whole.reshape(tuple(self.size))

    def gradient(self, values: Tensor) -> Tensor:
        """The gradient: what is stored several times has one, which is that of each time."""
        if self.is_coalesced:
            return self.with_values(values)
        unique, first = np.unique(host_index(self.indices, self.sizes), return_index=True)
        if len(unique) == self.count:
            return self.with_values(values)
        indices = unflat(unique, self.sizes, self.indices)
        return coo(self.size, indices, values.index_select(0, on_device(first, values)), coalesced=True)

    def unique(self, x: Tensor) -> Tensor:
        """`x` with each index once."""
        return coalesced(x)


def matches(wanted: np.ndarray, keys: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The positions of all pairs of equal numbers: in `wanted`, in order, and in `keys`, which are sorted."""
    first = np.searchsorted(keys, wanted)
    counts = np.searchsorted(keys, wanted, side="right") - first
    left = np.repeat(np.arange(len(wanted)), counts)
    return left, np.arange(len(left)) - np.repeat(np.cumsum(counts) - counts, counts) + first[left]


def coo(size: Sequence[int], indices: Tensor, values: Tensor, *, coalesced: bool = False) -> Tensor:
    """A tensor of this size in coordinate format."""
    return composed(Coo(size_of(tuple(size)), values, indices, coalesced))


def empty_coo(size: Sequence[int], sparse_dim: int, like: Tensor) -> Tensor:
    """A tensor without stored elements, of the type and on the device of `like`."""
    options = {"device": like.device}
    indices = op.zeros((sparse_dim, 0), dtype=int64, **options)
    return coo(size, indices, op.zeros((0, *size[sparse_dim:]), dtype=like.dtype, **options), coalesced=True)


def flat_index(indices: Tensor, sizes: Sequence[int]) -> Tensor:
    """The number of each index in row-major order."""
    if len(sizes) == 1:
        return indices[0]
    if not sizes:
        return op.zeros((indices.shape[1],), dtype=int64, device=indices.device)
    steps = from_host(np.array(row_major(tuple(sizes)), np.int64), indices.device)
    return (indices * steps[:, None]).sum(0)


def host_index(indices: Tensor, sizes: Sequence[int]) -> np.ndarray:
    """The number of each index in row-major order, as an array: it waits for the indices."""
    return np.array(row_major(tuple(sizes)), np.int64) @ indices.detach()._host()


def unflat(places: np.ndarray, sizes: Sequence[int], like: Tensor) -> Tensor:
    """The indices with these numbers, on the device of `like`."""
    index: Sequence[np.ndarray] = np.unravel_index(places, tuple(sizes)) if sizes else []
    return from_host(np.array(index, np.int64).reshape(len(sizes), len(places)), like.device)


def on_device(array: np.ndarray, like: Tensor) -> Tensor:
    """A tensor of an array's integers, on the device of `like`."""
    return from_host(np.asarray(array, np.int64), like.device)


def counted(count: int, like: Tensor) -> Tensor:
    """The numbers 0, 1, … on the device of `like`."""
    return op.arange((count,), 0, 1, dtype=int64, device=like.device)


def summed_at(values: Tensor, places: Tensor, count: int) -> Tensor:
    """Zeros of size (count, ...), with each of the values added at its place."""
    if values.dtype is bool_:
        return summed_at(values.to(uint8), places, count) != 0
    zeros = op.zeros((count, *values.shape[1:]), dtype=values.dtype, device=values.device)
    return zeros.index_add(0, places, values)


def coalesced(x: Tensor) -> Tensor:
    """`x` with indices in order, each of which occurs once; itself if they are."""
    encoding = encoding_of(x)
    if encoding.is_coalesced:
        return x
    sizes = encoding.sizes
    places = host_index(encoding.indices, sizes)
    unique, inverse = np.unique(places, return_inverse=True)
    if len(unique) == len(places):
        if np.array_equal(unique, places):
            return own_indices(replace(encoding, values=op.clone(encoding.values), is_coalesced=True))
        values = encoding.values.index_select(0, on_device(np.argsort(places, kind="stable"), encoding.indices))
    else:
        values = summed_at(encoding.values, on_device(inverse, encoding.indices), len(unique))
    return coo(encoding.size, unflat(unique, sizes, encoding.indices), values, coalesced=True)


def elements_at(x: Tensor, indices: Tensor, sparse_dim: int) -> Tensor:
    """The elements of a dense tensor at indices of its first dims: (indices, *sizes of the other dims)."""
    sizes = x.shape[:sparse_dim]
    return x.reshape((prod(sizes), *x.shape[sparse_dim:])).index_select(0, flat_index(indices, sizes))


def masked(x: Tensor, mask: Tensor) -> Tensor:
    """The elements of a dense tensor where `mask` stores some."""
    encoding = encoding_of(mask)
    if x.shape != mask.shape:
        raise ShapeError(
            "sparse_mask(): operands have incompatible sizes; self has size "
            f"{list(x.shape)} but mask has size {list(mask.shape)}"
        )
    return encoding.with_values(elements_at(x, encoding.indices, encoding.sparse_dim))


def stored(x: Tensor, sparse_dim: int) -> Tensor:
    """The elements of a dense tensor that are not zero, by the index of its first dims. Waits for the elements."""
    nonzero = x.detach()._host() != 0
    nonzero = nonzero.reshape((*x.shape[:sparse_dim], -1)).any(-1)
    indices = on_device(np.stack(np.nonzero(nonzero)) if sparse_dim else np.zeros((0, 1)), x)
    return coo(x.shape, indices, elements_at(x, indices, sparse_dim), coalesced=True)
