"""Sparse tensors from indices and values, and the checks of these."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ContextDecorator

import numpy as np

from weft._base.cell import Cell
from weft._base.dtype import DType, as_dtype, int32, int64
from weft._base.layout import layout, sparse_bsc, sparse_bsr, sparse_coo, sparse_csc, sparse_csr
from weft._base.state import default_dtype
from weft._base.types import Arg, Kwargs
from weft._tensor.arguments import sizes
from weft._tensor.codegen import op
from weft._tensor.composed import ENCODINGS, encoding_of
from weft._tensor.convert import tensor
from weft._tensor.sparse.compressed import compressed, empty_compressed
from weft._tensor.sparse.coo import coo, empty_coo
from weft._tensor.sparse.encoding import Sparse
from weft._tensor.tensor import Tensor
from weft.errors import ArgumentError, LayoutError, ShapeError

_INVARIANTS = Cell("whether indices of sparse tensors are checked", False)


class check_sparse_tensor_invariants(ContextDecorator):
    """Whether indices of new sparse tensors are checked: in a block, in a function, or by `enable` and `disable`.

    Checks wait for the indices. Without them, wrong indices raise only where they are used.
    """

    @staticmethod
    def is_enabled() -> bool:
        """Whether indices are checked."""
        return _INVARIANTS.get()

    @staticmethod
    def enable() -> None:
        """Check indices from now on."""
        _INVARIANTS.set(True)

    @staticmethod
    def disable() -> None:
        """Do not check indices from now on."""
        _INVARIANTS.set(False)

    def __init__(self, enable: bool = True) -> None:
        self._wanted = enable
        self._before: list[bool] = []

    def __enter__(self) -> None:
        self._before.append(self.is_enabled())
        _INVARIANTS.set(self._wanted)

    def __exit__(self, *_: object) -> None:
        _INVARIANTS.set(self._before.pop())


def _elements(values: Arg, dtype: DType | None, device: Arg) -> Tensor:
    """The values as a tensor that shares memory and graph with what is given."""
    if isinstance(values, Tensor):
        if encoding_of(values) is not None:
            raise ArgumentError("values of a sparse tensor must be a dense tensor")
        result = op.alias(values) if dtype in (None, values.dtype) else values.to(as_dtype(dtype, default_dtype()))
        return result if device is None else result.to(device)
    return tensor(values, dtype=dtype, device=device)


def _index(indices: object, like: Tensor, *, narrow: bool = False) -> Tensor:
    """Indices as a tensor of integers on the device of the values."""
    if not isinstance(indices, Tensor):
        indices = tensor(indices, device=like.device)
    kept = (int64, int32) if narrow else (int64,)
    result = indices.detach() if indices.dtype in kept else indices.detach().to(int64)
    return result.to(like.device)


def _as_leaf(x: Tensor, requires_grad: bool) -> Tensor:
    """A new tensor, which with `requires_grad` is a leaf."""
    if not requires_grad:
        return x
    return x.detach().requires_grad_()


def _checks(check_invariants: bool | None) -> bool:
    return check_sparse_tensor_invariants.is_enabled() if check_invariants is None else check_invariants


def made_of_coordinates(
    indices: object,
    values: object,
    size: Arg,
    dtype: DType | None,
    device: object,
    requires_grad: bool,
    check_invariants: bool | None,
    is_coalesced: bool | None,
) -> Tensor:
    """A tensor in coordinate format, as the function `sparse_coo_tensor` makes it."""
    elements = _elements(values, dtype, device)
    index = _index(indices, elements)
    if index.ndim == 1 and index.shape[0] == 0:
        index = index.reshape((0, 0) if size is None else (len(size), 0))
    if index.ndim == 1:
        index = index.reshape((index.shape[0], 1))  # of one element
    if index.ndim != 2:
        raise LayoutError(f"indices must be sparse_dim x nnz, but got: {list(index.shape)}")
    if not elements.ndim:
        elements = elements.reshape((1,))
    if index.shape[1] != elements.shape[0]:
        raise LayoutError(
            f"indices and values must have same nnz, but got nnz from indices: {index.shape[1]}, nnz from values: "
            f"{elements.shape[0]}"
        )
    sparse_dim, dense_dim = index.shape[0], elements.ndim - 1
    least = (*_least_sizes(index), *elements.shape[1:]) if size is None else size
    whole = sizes(least, "size", "sparse_coo_tensor")
    if len(whole) != sparse_dim + dense_dim:
        raise LayoutError(
            f"'len(size) == sparse_dim + dense_dim' is not satisfied: len(size) = {len(whole)}, sparse_dim = "
            f"{sparse_dim}, dense_dim = {dense_dim}"
        )
    if tuple(whole[sparse_dim:]) != tuple(elements.shape[1:]):
        raise LayoutError(
            f"values has incorrect size, expected {[index.shape[1], *whole[sparse_dim:]]}, got {list(elements.shape)}"
        )
    require_positive(whole)
    if _checks(check_invariants):
        _require_inside(index, whole, is_coalesced)
    return _as_leaf(coo(whole, index, elements, coalesced=bool(is_coalesced)), requires_grad)


def require_positive(size: Sequence[int]) -> None:
    """Raise `RuntimeError` for a negative size."""
    if any(n < 0 for n in size):
        raise ShapeError(f"Trying to create tensor with negative dimension {min(size)}: {list(size)}")


def _least_sizes(indices: Tensor) -> list[int]:
    """The sizes of dims that have room for all indices."""
    index = indices._host()
    if index.size and index.min() < 0:
        dim, _ = np.argwhere(index < 0)[0]
        raise LayoutError(f"found negative index {index.min()} for dim {dim}")
    return [int(row.max(initial=-1)) + 1 for row in index]


def _require_inside(indices: Tensor, size: Sequence[int], is_coalesced: bool | None) -> None:
    index = indices._host()
    for dim, row in enumerate(index):
        if row.size and row.min() < 0:
            raise LayoutError(f"found negative index {row.min()} for dim {dim}")
        if row.size and row.max() >= size[dim]:
            raise LayoutError(
                f"size is inconsistent with indices: for dim {dim}, size is {size[dim]} but found index {row.max()}"
            )
    if is_coalesced and index.shape[1] > 1:
        flat = np.ravel_multi_index(tuple(index), tuple(size[: index.shape[0]]))
        if (np.diff(flat) <= 0).any():
            raise LayoutError("cannot set is_coalesced to true if indices correspond to uncoalesced COO tensor")


def new_in_layout(layout: layout, row: str, size: Sequence[int], dtype: DType, options: Kwargs) -> Tensor:
    """The result of a factory row in a sparse layout: only of `zeros`, since all that is not stored is zero."""
    if row != "zeros" or layout not in ENCODINGS or not issubclass(ENCODINGS[layout], Sparse):
        raise LayoutError(
            f"{row}(...) is not implemented for sparse layout {layout!r}; make a dense tensor and use to_sparse()"
        )
    require_positive(size)
    like = op.zeros((0,), dtype=dtype, device=options.get("device"))
    result = empty_coo(size, len(size), like) if layout is sparse_coo else empty_compressed(layout, size, like)
    return _as_leaf(result, bool(options.get("requires_grad")))


def made_of_compressed(
    name: str,
    target: layout | None,
    indices: tuple[object, object],
    values: object,
    size: object,
    dtype: DType | None,
    device: object,
    requires_grad: bool,
    check_invariants: bool | None,
) -> Tensor:
    """A matrix in a compressed layout, as the function `name` makes it."""
    if target not in (sparse_csr, sparse_csc, sparse_bsr, sparse_bsc):
        layout_name = "none" if target is None else repr(target)
        raise LayoutError(f"{name} expected sparse compressed tensor layout but got {layout_name}")
    elements = _elements(values, dtype, device)
    first, second = (_index(x, elements, narrow=True) for x in indices)
    kind: Arg = ENCODINGS[target]
    lead, other = kind.names
    if first.ndim != 1 or second.ndim != 1:
        raise LayoutError(
            f"{name}: batches are not supported, but {lead} has {first.ndim} and {other} {second.ndim} dims; use "
            "sparse_coo_tensor"
        )
    if elements.ndim != 1 + 2 * kind.blocked:
        raise LayoutError(
            f"{name}: values must have {1 + 2 * kind.blocked} dims, without dense dims, but have {elements.ndim}"
        )
    height, width = elements.shape[1:] if kind.blocked else (1, 1)
    if size is None:
        inner = int(second._host().max(initial=-1)) + 1
        counts = (first.shape[0] - 1, inner) if kind.by_row else (inner, first.shape[0] - 1)
        whole = (counts[0] * height, counts[1] * width)
    else:
        whole = sizes(size, "size", name)
    if len(whole) != 2:
        raise LayoutError(f"{name}: a size has 2 dims here, but got {list(whole)}; batches are not supported")
    require_positive(whole)
    if _checks(check_invariants):
        _require_compressed(kind, first, second, elements, whole, (height, width))
    return _as_leaf(compressed(target, whole, first, second, elements), requires_grad)


def _require_compressed(
    kind: Arg, starts: Tensor, plain: Tensor, values: Tensor, size: Sequence[int], block: tuple[int, int]
) -> None:
    lead, other = kind.names
    lines, across = ("row", "column") if kind.by_row else ("column", "row")
    if size[0] % block[0] or size[1] % block[1]:
        raise LayoutError(f"tensor sparse size {tuple(size)} must be divisible by blocksize {tuple(block)}")
    rows, columns = size[0] // block[0], size[1] // block[1]
    count, width = (rows, columns) if kind.by_row else (columns, rows)
    if starts.shape[0] != count + 1:
        raise LayoutError(
            f"{lead}.shape[-1] must be equal to the number of {lines}s + 1 (={count + 1}), but got {starts.shape[0]}"
        )
    if plain.shape[0] != values.shape[0]:
        raise LayoutError(
            f"number of {other} ({plain.shape[0]}) must be equal to the number of values ({values.shape[0]})"
        )
    first, second = starts._host(), plain._host()
    steps = np.diff(first)
    short = {"row": "row", "column": "col"}[across]
    conditions = (
        (first[0] == 0, f"`{lead}[..., 0] == 0`"),
        (first[-1] == len(second), f"`{lead}[..., -1] == nnz`"),
        (
            ((steps >= 0) & (steps <= width)).all(),
            f"`0 <= {lead}[..., 1:] - {lead}[..., :-1] <= n{short}s`",
        ),
        (((second >= 0) & (second < width)).all(), f"`0 <= {other} < n{short}s`"),
    )
    for holds, text in conditions:
        if not holds:
            raise LayoutError(f"{text} is not satisfied.")
    starting = np.zeros(len(second), bool)
    starting[first[:-1][first[:-1] < len(second)]] = True
    if (np.diff(second)[~starting[1:]] <= 0).any():
        raise LayoutError(
            f"`{other}[..., {lead}[..., i - 1]:{lead}[..., i]] for all i = 1, ..., n{lines[:3]}s are sorted and "
            "distinct along the last dimension values` is not satisfied."
        )
