"""Matrices whose rows or columns are compressed: CSR, CSC and their forms in blocks, BSR and BSC."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from weft._base.dtype import DType, int64
from weft._base.guards import is_list
from weft._base.layout import layout, sparse_bsc, sparse_bsr, sparse_csc, sparse_csr
from weft._base.size import size_of
from weft._base.types import Arg, Kwargs, PyTree
from weft._tensor.codegen import op as rows
from weft._tensor.composed import ENCODINGS, AnyEncoding, composed, encoding_of, rule
from weft._tensor.sparse.coo import Coo, coalesced, coo, counted, masked, on_device, stored
from weft._tensor.sparse.encoding import Sparse, is_sparse
from weft._tensor.tensor import Results, Tensor, wrap
from weft.errors import ShapeError, UnsupportedCallError, UnsupportedShapeError
from weft.ops._dims import wrap_dim
from weft.ops._table import OpDef


@dataclass(eq=False, repr=False)
class Compressed(Sparse):
    """A matrix whose stored elements, or blocks of them, are in order of rows (or columns).

    compressed  (rows + 1): where the elements of each row start
    plain       (stored elements): the column of each
    values      (stored elements), or (stored elements, rows of a block, columns of a block)
    """

    compressed: Tensor
    plain: Tensor

    by_row: ClassVar[bool]
    blocked: ClassVar[bool]
    sparse_dim: ClassVar[int] = 2
    names: ClassVar[tuple[str, str]]  # of the two index tensors

    @property
    def count(self) -> int:
        """The number of stored elements, or of blocks."""
        return self.plain.shape[-1]

    @property
    def block(self) -> tuple[int, int]:
        """The sizes of a block."""
        rows, columns = self.values.shape[1:3] if self.blocked else (1, 1)
        return rows, columns

    def empty(self, size: Sequence[int], like: Tensor) -> Tensor:
        """A matrix that stores nothing."""
        return empty_compressed(self.layout, size, like, self.block)

    def whole_array(self) -> Tensor:
        """All elements, zero where none is stored."""
        return encoding_of(coordinates_of(composed(self))).whole_array()

    def derived(self, op: OpDef, args: Sequence[object], kwargs: Kwargs) -> Results:
        """What the values alone determine; else what the rule for coordinates gives, with the layout of the input."""
        if op.name not in Coo.rules:
            return super().derived(op, args, kwargs)
        by_index = [_in_coordinates(x) for x in args]
        result = Coo.rules[op.name](*by_index, **kwargs)
        if result is NotImplemented:
            return super().derived(op, args, kwargs)
        if isinstance(result, Tensor) and is_sparse(result):
            if result.ndim != 2:
                return result
            if self.blocked:
                raise self.refusal(op.name)
            return compressed_of(result, self.layout)
        return result


def _in_coordinates(x: Arg) -> PyTree:
    if is_list(x):
        return [_in_coordinates(part) for part in x]
    return coordinates_of(x) if isinstance(x, Tensor) and isinstance(encoding_of(x), Compressed) else x


@dataclass(eq=False, repr=False)
class Csr(Compressed):
    """Compressed rows."""

    layout = sparse_csr
    kind = "SparseCsr"
    by_row, blocked, names = True, False, ("crow_indices", "col_indices")


@dataclass(eq=False, repr=False)
class Csc(Compressed):
    """Compressed columns."""

    layout = sparse_csc
    kind = "SparseCsc"
    by_row, blocked, names = False, False, ("ccol_indices", "row_indices")


@dataclass(eq=False, repr=False)
class Bsr(Compressed):
    """Compressed rows of blocks."""

    layout = sparse_bsr
    kind = "SparseBsr"
    by_row, blocked, names = True, True, ("crow_indices", "col_indices")


@dataclass(eq=False, repr=False)
class Bsc(Compressed):
    """Compressed columns of blocks."""

    layout = sparse_bsc
    kind = "SparseBsc"
    by_row, blocked, names = False, True, ("ccol_indices", "row_indices")


COMPRESSED = (Csr, Csc, Bsr, Bsc)
_TRANSPOSED = {Csr: Csc, Csc: Csr, Bsr: Bsc, Bsc: Bsr}


def compressed(layout: layout, size: Sequence[int], compressed: Tensor, plain: Tensor, values: Tensor) -> Tensor:
    """A matrix of this size in a compressed layout."""
    kind: Arg = ENCODINGS[layout]
    return composed(kind(size_of(tuple(size)), values, compressed, plain))


def empty_compressed(layout: layout, size: Sequence[int], like: Tensor, block: tuple[int, int] = (1, 1)) -> Tensor:
    """A matrix in a compressed layout that stores nothing, of the type and on the device of `like`."""
    kind: Arg = ENCODINGS[layout]
    if len(size) != 2:
        raise UnsupportedShapeError(f"{layout!r} is for matrices here, but got size {list(size)}; use torch.sparse_coo")
    count = size[0] // block[0] if kind.by_row else size[1] // block[1]
    starts, plain = (rows.zeros((n,), dtype=int64, device=like.device) for n in (count + 1, 0))
    values = rows.zeros((0, *block) if kind.blocked else (0,), dtype=like.dtype, device=like.device)
    return compressed(layout, size, starts, plain, values)


def _long_index(encoding: AnyEncoding) -> tuple[Tensor, Tensor]:
    """The row and the column of each stored element, or block."""
    starts, plain = encoding.compressed.long(), encoding.plain.long()
    own = rows.searchsorted(starts[1:].contiguous(), counted(encoding.count, plain), right=True)
    return (own, plain) if encoding.by_row else (plain, own)


def coordinates_of(x: Tensor) -> Tensor:
    """A compressed matrix in coordinate format; the elements of blocks are stored one by one."""
    encoding = encoding_of(x)
    row, column = _long_index(encoding)
    if not encoding.blocked:
        return coo(encoding.size, rows.stack([row, column]), encoding.values, coalesced=encoding.by_row)
    height, width = encoding.block
    down, right = np.indices((height, width)).reshape(2, 1, -1)
    row = (row[:, None] * height + on_device(down, row)).reshape(-1)
    column = (column[:, None] * width + on_device(right, column)).reshape(-1)
    return coo(encoding.size, rows.stack([row, column]), encoding.values.reshape(-1))


def compressed_of(x: Tensor, layout: layout) -> Tensor:
    """A matrix in coordinate format in a compressed layout without blocks. Waits for the indices."""
    kind: Arg = ENCODINGS[layout]
    if kind.blocked:
        raise UnsupportedCallError(
            f"a matrix with layout {x.layout!r} cannot get {layout!r}; make blocks of x.to_dense()"
        )
    encoding = encoding_of(coalesced(x if kind.by_row else rows.t(x)))
    if x.ndim != 2 or encoding.sparse_dim != 2:
        raise UnsupportedShapeError(
            f"{layout!r} is for matrices here, but the tensor has {encoding.sparse_dim} sparse and "
            f"{x.ndim - encoding.sparse_dim} dense dims; use to_sparse()"
        )
    return compressed(layout, x.shape, *_starts(encoding, encoding.size[0]), encoding.values)


def _starts(encoding: Coo, count: int) -> tuple[Tensor, Tensor]:
    """Where the elements of each of `count` rows start, and the columns, of indices that are in order."""
    columns = wrap(encoding.indices[1]._read())  # a view would show what is written to the indices
    return rows.searchsorted(encoding.indices[0].contiguous(), counted(count + 1, encoding.indices)), columns


def blocks_of(x: Tensor, layout: layout, block: tuple[int, int]) -> Tensor:
    """A dense matrix in blocks, of which those without a nonzero element are left out. Waits for the elements."""
    kind: Arg = ENCODINGS[layout]
    (height, width), (m, n) = block, x.shape
    if m % height or n % width:
        name = f"dense_to_{repr(layout).removeprefix('torch.')}"
        raise ShapeError(
            f"{name}: tensor sparse size ({m},{n}) must be divisible by given blocksize ({height},{width})"
        )
    order = (0, 2, 1, 3) if kind.by_row else (2, 0, 1, 3)
    encoding = encoding_of(stored(x.reshape((m // height, height, n // width, width)).permute(order), 2))
    return compressed(layout, x.shape, *_starts(encoding, encoding.size[0]), encoding.values)


# --- rules that keep the layout --------------------------------------------------------------------------------


@rule(COMPRESSED, "transpose", "t", "T", "mT", "swapaxes", "swapdims")
def _transpose(input: Tensor, dim0: int = 0, dim1: int = 1) -> Tensor:
    encoding = encoding_of(input)
    if wrap_dim(dim0, 2) == wrap_dim(dim1, 2):
        return input
    values = encoding.values.transpose(1, 2) if encoding.blocked else encoding.values
    size = size_of(tuple(encoding.size)[::-1])
    return composed(_TRANSPOSED[type(encoding)](size, values, encoding.compressed, encoding.plain))


@rule(COMPRESSED, "clone")
def _clone(input: Tensor) -> Tensor:
    return encoding_of(input).each_part(rows.clone)


@rule(COMPRESSED, "alias")
def _alias(input: Tensor) -> Tensor:
    return encoding_of(input).each_part(rows.alias)


@rule(COMPRESSED, "to_dtype")
def _to_dtype(input: Tensor, dtype: DType) -> Tensor:
    encoding = encoding_of(input)
    return composed(replace(encoding, values=rows.to_dtype(encoding.values, dtype)))


@rule(COMPRESSED, "sum")
def _sum(input: Tensor, dim: object = None, keepdim: bool = False, *, dtype: DType | None = None) -> Results:
    if keepdim or dim not in (None, (), (0, 1)):
        return NotImplemented
    return rows.sum(encoding_of(input).values, dtype=dtype)


def masked_by(x: Tensor, mask: Tensor) -> Tensor:
    """The elements of a dense matrix where a compressed one stores some."""
    encoding = encoding_of(mask)
    if encoding.blocked:
        raise encoding.refusal("sparse_mask")
    return encoding.with_values(encoding_of(masked(x, coordinates_of(mask))).values)
