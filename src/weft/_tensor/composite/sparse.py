"""Sparse tensors: their construction, conversions, and the functions of `weft.sparse`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from weft._base.dtype import DType
from weft._base.guards import is_list_or_tuple
from weft._base.layout import layout, sparse_bsc, sparse_bsr, sparse_coo, sparse_csc, sparse_csr, strided
from weft._base.state import default_dtype
from weft._base.types import AnyCallable, Arg
from weft._tensor.arguments import Dim, Dims, ints, sizes
from weft._tensor.codegen import op
from weft._tensor.composed import ENCODINGS, encoding_of
from weft._tensor.functions import composite
from weft._tensor.scalar import Number
from weft._tensor.sparse import pointwise as _pointwise
from weft._tensor.sparse import products as _products
from weft._tensor.sparse import structure as _structure
from weft._tensor.sparse.compressed import Csr, blocks_of, compressed_of, coordinates_of
from weft._tensor.sparse.construct import made_of_compressed, made_of_coordinates, require_positive
from weft._tensor.sparse.coo import Coo, coo, elements_at, empty_coo, on_device, stored
from weft._tensor.sparse.encoding import is_sparse
from weft._tensor.sparse.reductions import require_sparse, softmax_of
from weft._tensor.sparse.tensor import masked_to
from weft._tensor.tensor import Results, Tensor
from weft.errors import ArgumentError, LayoutError, ShapeError, UnsupportedCallError, UnsupportedShapeError
from weft.ops._table import NO_FUNCTION, Public

RULES = (_pointwise, _products, _structure)
"""The modules of rules, which are registered by import."""

# --- construction -----------------------------------------------------------------------------------------------


@composite()
def sparse_coo_tensor(
    indices: object = None,
    values: object = None,
    size: object = None,
    *,
    dtype: DType | None = None,
    device: object = None,
    pin_memory: bool = False,
    requires_grad: bool = False,
    check_invariants: bool | None = None,
    is_coalesced: bool | None = None,
) -> Tensor:
    """A tensor in coordinate format: `values[n, ...]` at `indices[:, n]`, equal indices adding up; all else is zero.

    Indices are (sparse dims, stored elements). Without a size, it is the smallest one; `sparse_coo_tensor(size)` stores
    nothing. Values share their memory and their graph, unless `requires_grad` makes a leaf. With `check_invariants`,
    `RuntimeError` for indices outside of the size.
    """
    del pin_memory
    if values is None and (indices is None) is not (size is None):
        whole = sizes(indices if size is None else size, "size", "sparse_coo_tensor")
        require_positive(whole)
        like = op.zeros((0,), dtype=dtype or default_dtype(), device=device)
        result = empty_coo(whole, len(whole), like)
        return result.requires_grad_() if requires_grad else result
    if indices is None or values is None:
        raise ArgumentError("sparse_coo_tensor() takes indices and values, or a size alone")
    return made_of_coordinates(indices, values, size, dtype, device, requires_grad, check_invariants, is_coalesced)


@composite()
def sparse_compressed_tensor(
    compressed_indices: object,
    plain_indices: object,
    values: object,
    size: object = None,
    *,
    dtype: DType | None = None,
    layout: layout | None = None,
    device: object = None,
    pin_memory: bool = False,
    requires_grad: bool = False,
    check_invariants: bool | None = None,
) -> Tensor:
    """A matrix in the compressed format `layout`: see `sparse_csr_tensor`, `sparse_csc_tensor`, `sparse_bsr_tensor`."""
    del pin_memory
    return made_of_compressed(
        "sparse_compressed_tensor",
        layout,
        (compressed_indices, plain_indices),
        values,
        size,
        dtype,
        device,
        requires_grad,
        check_invariants,
    )


def _compressed_factory(target: layout, doc: str) -> None:
    name = f"{repr(target).removeprefix('torch.')}_tensor"

    @composite(name, doc=doc)
    def make(
        compressed_indices: object,
        plain_indices: object,
        values: object,
        size: object = None,
        *,
        dtype: DType | None = None,
        layout: object = None,
        device: object = None,
        pin_memory: bool = False,
        requires_grad: bool = False,
        check_invariants: bool | None = None,
    ) -> Tensor:
        del pin_memory
        if layout not in (None, target):
            raise LayoutError(f"{name}: expected layout {target!r}, but got {layout!r}")
        indices = (compressed_indices, plain_indices)
        return made_of_compressed(name, target, indices, values, size, dtype, device, requires_grad, check_invariants)


_PLACES = "`{0}` (size {1}s + 1) says where each {1}'s {2} start in `{3}` and `values`, which has the {4} of each."
for _layout, _lead, _line, _other, _across in (
    (sparse_csr, "crow_indices", "row", "col_indices", "column"),
    (sparse_csc, "ccol_indices", "column", "row_indices", "row"),
):
    _compressed_factory(
        _layout, f"A matrix with compressed {_line}s. " + _PLACES.format(_lead, _line, "elements", _other, _across)
    )
    _blocks = sparse_bsr if _layout is sparse_csr else sparse_bsc
    _compressed_factory(
        _blocks,
        f"A matrix of dense blocks, with compressed {_line}s of blocks: as for `sparse_{repr(_layout)[-3:]}_tensor`, "
        "with values of size (blocks, height, width).",
    )


# --- conversions ------------------------------------------------------------------------------------------------


@composite(public=NO_FUNCTION)
def to_sparse(
    input: Tensor,
    sparse_dim: int | None = None,
    *,
    layout: layout | None = None,
    blocksize: object = None,
    dense_dim: int | None = None,
) -> Tensor:
    """The elements that are not zero, in coordinate format or in another layout. Waits for them.

    With `sparse_dim`, only so many first dims have indices, and what is stored are the slices that are not zero.
    """
    count = input.ndim if sparse_dim is None else sparse_dim
    if not 0 <= count <= input.ndim or (input.ndim and not count):
        raise LayoutError(
            f"dense_to_sparse: sparse_dim argument must be in [0,{input.ndim}] range, but {count} is given"
        )
    if layout in (None, sparse_coo):
        if blocksize is not None:
            raise LayoutError("dense_to_sparse: blocksize argument is for block layouts, not for torch.sparse_coo")
        return stored(input, count - (dense_dim or 0))
    if layout is strided:
        return input
    if dense_dim:
        raise UnsupportedCallError(
            f"dense_to_sparse: {layout!r} with dense dims is not supported; use torch.sparse_coo"
        )
    blocks = layout in (sparse_bsr, sparse_bsc)
    if blocks is (blocksize is None):
        kind = ENCODINGS[layout].kind
        option = "without blocksize argument given" if blocks else "with blocksize argument given"
        raise LayoutError(f"dense_to_sparse: conversion from Strided to {kind} {option} is not supported")
    if input.ndim != 2:
        raise UnsupportedShapeError(
            f"dense_to_sparse: {layout!r} is for matrices here, but the tensor has {input.ndim} dims; use to_sparse()"
        )
    if blocks:
        height, width = sizes(blocksize, "blocksize", "to_sparse")
        return blocks_of(input, layout, (height, width))
    return compressed_of(stored(input, 2), layout)


@composite(public=NO_FUNCTION)
def to_sparse_coo(input: Tensor) -> Tensor:
    """The elements that are not zero, in coordinate format."""
    return input.to_sparse()


def _to(target: layout) -> None:
    name = f"to_{repr(target).removeprefix('torch.')}"

    @composite(name, doc=f"The elements that are not zero, with layout `{target!r}`.", public=NO_FUNCTION)
    def convert(input: Tensor, dense_dim: int | None = None) -> Tensor:
        return input.to_sparse(layout=target, dense_dim=dense_dim)


def _to_blocks(target: layout) -> None:
    name = f"to_{repr(target).removeprefix('torch.')}"

    @composite(name, doc=f"The blocks that are not zero, with layout `{target!r}`.", public=NO_FUNCTION)
    def convert(input: Tensor, blocksize: object, dense_dim: int | None = None) -> Tensor:
        return input.to_sparse(layout=target, blocksize=blocksize, dense_dim=dense_dim)


for _layout in (sparse_csr, sparse_csc):
    _to(_layout)
for _layout in (sparse_bsr, sparse_bsc):
    _to_blocks(_layout)


@composite(public=NO_FUNCTION)
def sparse_mask(input: Tensor, mask: Tensor) -> Tensor:
    """The elements where the sparse tensor `mask` stores some, in its layout."""
    return masked_to(input, mask)


# --- what dense tensors lack ------------------------------------------------------------------------------------


def _own_method(input: Tensor, name: str) -> Callable[[Tensor], Any] | None:
    """What the class of a tensor has in place of a method of `Tensor`, which was called as `Tensor.<name>(input)`."""
    own = getattr(type(input), name)
    return None if own is getattr(Tensor, name) else own


def _for_sparse(name: str, what: str) -> None:
    @composite(name, doc="Of a sparse tensor only: see `weft.sparse`. `RuntimeError` for others.", public=NO_FUNCTION)
    def refuse(input: Tensor) -> Any:
        own = _own_method(input, name)
        if own is not None:
            return own(input)
        raise LayoutError(f"{name} expected sparse {what}tensor layout but got Strided; use to_sparse() first")


for _name in ("coalesce", "is_coalesced", "indices", "_indices"):
    _for_sparse(_name, "coordinate ")
for _name in ("crow_indices", "col_indices"):
    _for_sparse(_name, "row compressed ")
for _name in ("ccol_indices", "row_indices"):
    _for_sparse(_name, "column compressed ")
for _name in ("values", "_values", "_nnz"):
    _for_sparse(_name, "")


@composite(public=NO_FUNCTION)
def sparse_dim(input: Tensor) -> int:
    """The number of dims with indices: 0."""
    own = _own_method(input, "sparse_dim")
    return 0 if own is None else own(input)


@composite(public=NO_FUNCTION)
def dense_dim(input: Tensor) -> int:
    """The number of dims that are stored whole: all."""
    own = _own_method(input, "dense_dim")
    return input.ndim if own is None else own(input)


# --- weft.sparse ------------------------------------------------------------------------------------------------


@composite(public=Public(module="sparse", also=("spmm", "dsmm")))
def mm(input: Tensor, mat2: Tensor) -> Tensor:
    """The product of matrices of which one or both are sparse: sparse if both are."""
    return op.mm(input, mat2)


@composite(public=Public(module="sparse", also=("saddmm",)))
def addmm(input: Tensor, mat1: Tensor, mat2: Tensor, *, beta: Number = 1, alpha: Number = 1) -> Tensor:
    """`beta * input + alpha * (mat1 @ mat2)`, with a sparse `mat1`."""
    return op.addmm(input, mat1, mat2, beta=beta, alpha=alpha)


@composite("sum", public=Public(module="sparse"))
def sum_(input: Tensor, dim: Dims | None = None, dtype: DType | None = None) -> Tensor:
    """Sums over dims: dense if all sparse dims are among them, else sparse."""
    require_sparse(input, "sum")
    return op.sum(input, dim, dtype=dtype)


def _softmax(name: str, what: str) -> None:
    @composite(
        name,
        doc=f"{what} along `dim` over the stored elements; what is not stored is ignored.",
        public=Public(module="sparse"),
    )
    def function(input: Tensor, dim: Dim, *, dtype: DType | None = None) -> Tensor:
        require_sparse(input, name)
        x = input if dtype is None else input.to(dtype)
        encoding = encoding_of(x)
        if not isinstance(encoding, Coo):
            raise encoding.refusal(f"sparse.{name}")
        return softmax_of(x, dim, log=name == "log_softmax")


_softmax("softmax", "Softmax")
_softmax("log_softmax", "The logarithm of softmax")


@composite(public=Public(module="sparse"))
def sampled_addmm(input: Tensor, mat1: Tensor, mat2: Tensor, *, beta: Number = 1, alpha: Number = 1) -> Tensor:
    """`beta * input + alpha * (mat1 @ mat2)` where the CSR matrix `input` stores elements; no other is computed."""
    encoding = encoding_of(input)
    if not isinstance(encoding, Csr):
        raise LayoutError(f"sampled_addmm: Expected self to have sparse csr layout, but got {input.layout!r}")
    if mat1.ndim != 2 or mat2.ndim != 2 or mat1.shape[1] != mat2.shape[0]:
        sizes = f"{list(mat1.shape)} and {list(mat2.shape)}"
        raise ShapeError(f"sampled_addmm: mat1 and mat2 shapes cannot be multiplied ({sizes})")
    if (mat1.shape[0], mat2.shape[1]) != tuple(input.shape):
        raise ShapeError(
            f"sampled_addmm: the product has size {[mat1.shape[0], mat2.shape[1]]}, but input has {list(input.shape)}"
        )
    row, column = encoding_of(coordinates_of(input)).indices
    products = mat1.index_select(0, row) * mat2.t().index_select(0, column)
    return encoding.with_values(op.add(op.mul(encoding.values, beta), op.mul(products.sum(1), alpha)))


@composite(public=Public(module="sparse"))
def spdiags(diagonals: Tensor, offsets: Tensor, shape: Arg, layout: layout | None = None) -> Tensor:
    """A sparse matrix with rows of `diagonals` on the diagonals `offsets`; column `j` of a row is in column `j`."""
    size = ints(tuple(shape), "shape", "spdiags")
    rows = diagonals[None] if diagonals.ndim == 1 else diagonals
    places = offsets.detach()._host().reshape(-1)
    if rows.ndim != 2 or len(size) != 2:
        raise ShapeError("Diagonals must be vector or matrix, and the output shape must be of 2 sizes")
    if rows.shape[0] != len(places):
        raise ShapeError(f"Number of diagonals ({rows.shape[0]}) does not match the number of offsets ({len(places)})")
    if len(set(places.tolist())) != len(places):
        raise LayoutError("Offset tensor contains duplicate values")
    if layout not in (None, sparse_coo, sparse_csr, sparse_csc):
        raise LayoutError("Only output layouts (Sparse, SparseCsc, SparseCsr) are supported, got " + repr(layout))
    which, column = np.indices((len(places), min(size[1], rows.shape[1]))).reshape(2, -1)
    row = column - places[which]
    inside = np.nonzero((row >= 0) & (row < size[0]))[0]
    indices = on_device(np.stack([row[inside], column[inside]]), rows)
    values = elements_at(rows, on_device(np.stack([which[inside], column[inside]]), rows), 2)
    result = coo(size, indices, values)
    return result if layout in (None, sparse_coo) else compressed_of(result, layout)


@composite(public=Public(module="sparse"))
def as_sparse_gradcheck(gradcheck: Arg) -> AnyCallable:
    """A `gradcheck` that takes sparse inputs and outputs: the elements that are stored are varied."""

    def checked(func: Arg, inputs: Arg, **options: Arg) -> bool:
        options.pop("masked", None)
        originals = list(inputs) if is_list_or_tuple(inputs) else [inputs]

        def on_values(*values: Tensor) -> Results:
            several = zip(originals, values, strict=True)
            arguments = [encoding_of(x).with_values(v) if is_sparse(x) else v for x, v in several]
            results = func(*arguments)
            outputs = results if is_list_or_tuple(results) else (results,)
            dense = tuple([x.to_dense() if isinstance(x, Tensor) and is_sparse(x) else x for x in outputs])
            return dense if is_list_or_tuple(results) else dense[0]

        parts = [encoding_of(x).values if isinstance(x, Tensor) and is_sparse(x) else x for x in originals]
        return gradcheck(on_values, parts, **options)

    return checked
