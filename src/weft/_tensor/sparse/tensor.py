"""The class of sparse tensors, with the methods that dense tensors do not have."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NoReturn

from weft._base.dtype import DType
from weft._base.layout import layout, sparse_coo, sparse_csr
from weft._base.types import Arg
from weft._tensor.codegen import op
from weft._tensor.composed import AnyEncoding, ComposedTensor, encoding_of
from weft._tensor.sparse.compressed import Compressed, compressed_of, coordinates_of, masked_by
from weft._tensor.sparse.coo import Coo, coalesced, coo, empty_coo, masked
from weft._tensor.sparse.encoding import Sparse, is_sparse
from weft._tensor.sparse.show import show
from weft._tensor.tensor import Tensor
from weft._tensor.view import set_value
from weft.errors import LayoutError, ShapeError, UnsupportedCallError


class SparseTensor(ComposedTensor):
    """A tensor of which only some elements are stored; all others are zero."""

    @property
    def is_sparse(self) -> bool:
        """Whether elements are stored by coordinates."""
        return self.layout is sparse_coo

    @property
    def is_sparse_csr(self) -> bool:
        """Whether elements are stored in compressed rows."""
        return self.layout is sparse_csr

    def _of(self, kind: type[Arg], name: str, what: str) -> AnyEncoding:
        encoding = self._encoding
        if not isinstance(encoding, kind):
            raise LayoutError(f"{name} expected sparse {what} tensor layout but got {encoding.kind}")
        return encoding

    # --- what is stored -----------------------------------------------------------------------------------------

    def _nnz(self) -> int:
        """The number of elements that are stored."""
        encoding: AnyEncoding = self._encoding
        return encoding.count

    def sparse_dim(self) -> int:
        """The number of dims with indices."""
        encoding: AnyEncoding = self._encoding
        return encoding.sparse_dim

    def dense_dim(self) -> int:
        """The number of dims that are stored whole."""
        return self.ndim - self.sparse_dim()

    def is_coalesced(self) -> bool:
        """Whether each index occurs once, in order."""
        return self._of(Coo, "is_coalesced", "coordinate").is_coalesced

    def coalesce(self) -> Tensor:
        """The same tensor with indices in order, and what has the same index added up. Waits for the indices."""
        self._of(Coo, "coalesce", "coordinate")
        return coalesced(self)

    def _indices(self) -> Tensor:
        """The indices, (sparse dims, stored elements), also if they are not in order."""
        return self._of(Coo, "_indices", "coordinate").indices.detach()

    def indices(self) -> Tensor:
        """The indices, (sparse dims, stored elements); `RuntimeError` unless coalesced."""
        encoding = self._of(Coo, "indices", "coordinate")
        if not encoding.is_coalesced:
            raise LayoutError("Cannot get indices on an uncoalesced tensor, please call .coalesce() first")
        return op.alias(encoding.indices)

    def _values(self) -> Tensor:
        """The stored elements, which share memory with the tensor, outside of the graph."""
        return self._encoding.values.detach()

    def values(self) -> Tensor:
        """The stored elements, with gradients; `RuntimeError` for coordinates that are not coalesced."""
        encoding = self._encoding
        if isinstance(encoding, Coo) and not encoding.is_coalesced:
            raise LayoutError("Cannot get values on an uncoalesced tensor, please call .coalesce() first")
        return op.alias(encoding.values)

    def _index_of(self, name: str, by_row: bool, at: int) -> Tensor:
        encoding = self._encoding
        if not isinstance(encoding, Compressed) or encoding.by_row is not by_row:
            what = "row" if by_row else "column"
            raise LayoutError(f"{name} expected sparse {what} compressed tensor layout but got {encoding.kind}")
        return op.alias((encoding.compressed, encoding.plain)[at])

    def crow_indices(self) -> Tensor:
        """Where the elements of each row start: (rows + 1)."""
        return self._index_of("crow_indices", True, 0)

    def col_indices(self) -> Tensor:
        """The column of each stored element."""
        return self._index_of("col_indices", True, 1)

    def ccol_indices(self) -> Tensor:
        """Where the elements of each column start: (columns + 1)."""
        return self._index_of("ccol_indices", False, 0)

    def row_indices(self) -> Tensor:
        """The row of each stored element."""
        return self._index_of("row_indices", False, 1)

    # --- other layouts ------------------------------------------------------------------------------------------

    def to_dense(self, dtype: DType | None = None, *, masked_grad: bool | None = None) -> Tensor:
        """All elements as a dense tensor, zero where none is stored. Gradients go to what is stored."""
        if dtype is not None:
            raise LayoutError("dtype argument is not supported by sparse_to_dense")
        return super().to_dense(masked_grad=masked_grad)

    def to_sparse(
        self,
        sparse_dim: int | None = None,
        *,
        layout: layout | None = None,
        blocksize: object = None,
        dense_dim: int | None = None,
    ) -> Tensor:
        """The same elements in coordinate format, or in another layout."""
        target = sparse_coo if layout is None else layout
        own: AnyEncoding = self._encoding
        if sparse_dim not in (None, own.sparse_dim):
            raise UnsupportedCallError(
                f"to_sparse: the number of sparse dims stays {own.sparse_dim}, but got sparse_dim={sparse_dim}; use "
                "x.to_dense().to_sparse(sparse_dim)"
            )
        if target is own.layout:
            return self
        if blocksize is not None or dense_dim:
            raise UnsupportedCallError(
                f"to_sparse: a tensor with layout {own.layout!r} cannot get blocks or dense dims; use "
                "x.to_dense().to_sparse(...)"
            )
        coordinates = coordinates_of(self) if isinstance(own, Compressed) else self
        return coalesced(coordinates) if target is sparse_coo else compressed_of(coordinates, target)

    def to_sparse_coo(self) -> Tensor:
        """The same elements in coordinate format."""
        return self.to_sparse()

    def sparse_mask(self, mask: Tensor) -> Tensor:
        """The elements where `mask` stores some; zeros where only `mask` does."""
        return masked_to(self.to_dense(), mask)

    def sparse_resize_(self, size: Sequence[int], sparse_dim: int, dense_dim: int) -> Tensor:
        """Set the sizes in place. Without removing elements, only more room is possible."""
        encoding = self._of(Coo, "sparse_resize_", "coordinate")
        require_dims("sparse_resize_", size, sparse_dim, dense_dim)
        if encoding.count and (sparse_dim, dense_dim) != (encoding.sparse_dim, self.ndim - encoding.sparse_dim):
            raise LayoutError(
                f"changing the number of dimensions (from {encoding.sparse_dim} sparse and "
                f"{self.ndim - encoding.sparse_dim} dense to {sparse_dim} and {dense_dim}) on a non-empty sparse "
                "tensor is not supported."
            )
        old, new = list(encoding.sizes), list(size[:sparse_dim])
        if encoding.count and any(a > b for a, b in zip(old, new, strict=True)):
            raise LayoutError(_SHRINKS.format("sparse", old, new))
        inner, wanted = list(self.shape[sparse_dim:]), list(size[sparse_dim:])
        if encoding.count and any(a > b for a, b in zip(inner, wanted, strict=True)):
            raise LayoutError(_SHRINKS.format("dense", inner, wanted))
        if not encoding.count:
            return self.sparse_resize_and_clear_(size, sparse_dim, dense_dim)
        values = encoding.values
        if inner != wanted:
            grown = op.zeros((encoding.count, *wanted), dtype=self.dtype, device=self.device)
            grown[(slice(None), *map(slice, inner))] = values
            values = grown
        set_value(self, coo(size, encoding.indices, values, coalesced=encoding.is_coalesced)._read())
        return self

    def sparse_resize_and_clear_(self, size: Sequence[int], sparse_dim: int, dense_dim: int) -> Tensor:
        """Set the sizes in place, and remove all elements."""
        self._of(Coo, "sparse_resize_and_clear_", "coordinate")
        require_dims("sparse_resize_and_clear_", size, sparse_dim, dense_dim)
        set_value(self, empty_coo(tuple(size), sparse_dim, self)._read())
        return self

    # --- what has another meaning than for arrays -----------------------------------------------------------------

    def __repr__(self) -> str:
        return show(self)

    @property
    def nbytes(self) -> int:
        """Raises: add up the bytes of indices and values."""
        raise LayoutError(
            "nbytes is not defined for sparse tensors.  If you want the size of the constituent tensors, add the "
            "nbytes of the indices and values.  If you want the size of the  equivalent dense tensor, multiply numel() "
            "by element_size()"
        )

    def is_contiguous(self, memory_format: object = None) -> bool:
        """False: elements have no order in memory."""
        del memory_format
        return False

    def stride(self, dim: int | None = None) -> Arg:
        """Zeros: elements have no order in memory."""
        return (0,) * self.ndim if dim is None else 0

    def contiguous(self, memory_format: object = None) -> Tensor:
        """Raises: elements have no order in memory."""
        raise self._encoding.refusal("contiguous")

    def data_ptr(self) -> NoReturn:
        """Raises: ask the indices and values."""
        raise LayoutError("Cannot access data pointer of Tensor that doesn't have storage")

    def untyped_storage(self) -> NoReturn:
        """Raises: ask the indices and values."""
        raise UnsupportedCallError("Cannot access storage of SparseTensorImpl; use x.values().untyped_storage()")


Sparse.tensor_type = SparseTensor

_SHRINKS = (
    "shrinking the size of {0} dimensions (from {1} to {2}) on a non-empty sparse tensor is not supported.\n"
    "You could try the following options:\n"
    "1. If you need an empty sparse tensor of this size, call `x = torch.sparse_coo_tensor(size)`.\n"
    "2. If you need to resize this tensor, keep the number of dims and the sizes of {0} dims at least as large."
)


def require_dims(name: str, size: Sequence[int], sparse_dim: int, dense_dim: int) -> None:
    """Raise `RuntimeError` unless so many dims are those of the size."""
    if sparse_dim + dense_dim != len(size):
        raise ShapeError(
            f"{name}: number of dimensions must be sparse_dim ({sparse_dim}) + dense_dim ({dense_dim}), but got "
            f"{len(size)}"
        )


def masked_to(x: Tensor, mask: Tensor) -> Tensor:
    """The elements of a dense tensor where `mask` stores some."""
    if not is_sparse(mask):
        raise LayoutError(
            f"sparse_mask(): the mask must be sparse, but has layout {mask.layout!r}; use mask.to_sparse()"
        )
    return masked_by(x, mask) if isinstance(encoding_of(mask), Compressed) else masked(x, mask)
