"""Parts and rearrangements of sparse tensors, and several put together."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from weft._base.dtype import int64
from weft._base.types import Arg
from weft._tensor.codegen import op
from weft._tensor.composed import encoding_of, rule
from weft._tensor.sparse.coo import Coo, coalesced, coo, matches, on_device
from weft._tensor.sparse.encoding import is_sparse, number_of
from weft._tensor.tensor import Tensor
from weft.errors import ShapeError, UnsupportedShapeError
from weft.ops._dims import wrap_dim

# --- the order of dims ------------------------------------------------------------------------------------------


def permuted(x: Tensor, dims: Sequence[int]) -> Tensor:
    """`x` with its dims in another order, in which sparse dims come first."""
    encoding = encoding_of(x)
    sparse, dense = dims[: encoding.sparse_dim], dims[encoding.sparse_dim :]
    if any(d >= encoding.sparse_dim for d in sparse):
        raise UnsupportedShapeError("transpose: transposed dims must be either both sparse or both dense dimensions.")
    indices = encoding.indices
    if sparse:
        indices = indices.index_select(0, on_device(np.array(sparse, np.int64), indices))
    values = encoding.values
    if tuple(dense) != tuple(range(encoding.sparse_dim, x.ndim)):
        values = values.permute(0, *(d - encoding.sparse_dim + 1 for d in dense))
    in_order = encoding.is_coalesced and tuple(sparse) == tuple(range(encoding.sparse_dim))
    return coo([x.shape[d] for d in dims], indices, values, coalesced=in_order)


@rule(Coo, "transpose", "swapaxes", "swapdims")
def _transpose(input: Tensor, dim0: int, dim1: int) -> Tensor:
    dims = list(range(input.ndim))
    a, b = wrap_dim(dim0, input.ndim), wrap_dim(dim1, input.ndim)
    dims[a], dims[b] = dims[b], dims[a]
    return permuted(input, dims)


@rule(Coo, "t", "T", "mT")
def _t(input: Tensor) -> Tensor:
    encoding = encoding_of(input)
    if encoding.sparse_dim > 2 or input.ndim > 2:
        raise ShapeError(
            "t() expects a tensor with <= 2 sparse and 0 dense dimensions, but got "
            f"{encoding.sparse_dim} sparse and {input.ndim - encoding.sparse_dim} dense dimensions"
        )
    return permuted(input, tuple(range(input.ndim))[::-1])


@rule(Coo, "permute")
def _permute(input: Tensor, dims: Sequence[int]) -> Tensor:
    if len(dims) != input.ndim:
        raise ShapeError(
            "permute(sparse_coo): number of dimensions in the tensor input does not match the length of the desired "
            f"ordering of dimensions i.e. input.dim() = {input.ndim} is not equal to len(dims) = {len(dims)}"
        )
    return permuted(input, [wrap_dim(d, input.ndim) for d in dims])


@rule(Coo, "unsqueeze")
def _unsqueeze(input: Tensor, dim: int) -> Tensor:
    encoding = encoding_of(input)
    at = wrap_dim(dim, input.ndim + 1)
    size = [*input.shape[:at], 1, *input.shape[at:]]
    if at > encoding.sparse_dim:
        values = encoding.values.unsqueeze(at - encoding.sparse_dim + 1)
        return coo(size, encoding.indices, values, coalesced=encoding.is_coalesced)
    row = op.zeros((1, encoding.count), dtype=int64, device=encoding.indices.device)
    indices = op.cat([encoding.indices[:at], row, encoding.indices[at:]])
    return coo(size, indices, encoding.values, coalesced=encoding.is_coalesced)


@rule(Coo, "squeeze")
def _squeeze(input: Tensor, dim: Arg = None) -> Tensor:
    dims = range(input.ndim) if dim is None else (dim,) if isinstance(dim, int) else dim
    gone = {wrap_dim(d, input.ndim) for d in dims}
    gone = {d for d in gone if input.shape[d] == 1}
    for at in sorted(gone, reverse=True):
        input = _selected(input, at, 0)
    return input


# --- parts ------------------------------------------------------------------------------------------------------


def _chosen(x: Tensor, places: np.ndarray, dim: int, new: np.ndarray, size: int) -> Tensor:
    """The stored elements at these places, with other indices along a sparse dim, which gets another size."""
    encoding = encoding_of(x)
    at = on_device(places, encoding.indices)
    rows = [encoding.indices[d].index_select(0, at) for d in range(encoding.sparse_dim)]
    rows[dim] = on_device(new, encoding.indices)
    sizes = [*x.shape[:dim], size, *x.shape[dim + 1 :]]
    return coo(sizes, op.stack(rows), encoding.values.index_select(0, at))


def _rows(x: Tensor, dim: int) -> np.ndarray:
    """The indices along a sparse dim. Waits for them."""
    return encoding_of(x).indices.detach()._host()[dim]


def _on_values(x: Tensor, dim: int, function: Callable[[Tensor, int], Tensor]) -> Tensor | None:
    """The result of a function (values, dim) for a dense dim, with the sizes that follow; None for a sparse dim."""
    encoding = encoding_of(x)
    if dim < encoding.sparse_dim:
        return None
    values = function(encoding.values, dim - encoding.sparse_dim + 1)
    return coo([*encoding.sizes, *values.shape[1:]], encoding.indices, values, coalesced=encoding.is_coalesced)


@rule(Coo, "index_select")
def _index_select(input: Tensor, dim: int, index: Tensor) -> Tensor:
    at = wrap_dim(dim, input.ndim)
    dense = _on_values(input, at, lambda values, d: op.index_select(values, d, index))
    if dense is not None:
        return dense
    wanted = index.detach()._host().reshape(-1) % max(input.shape[at], 1)
    own = _rows(input, at)
    by_index = np.argsort(own, kind="stable")
    new, places = matches(wanted, own[by_index])
    places = by_index[places]
    if at:  # only along the first dim do elements come in the order of what was asked for
        order = np.lexsort((new, places))
        new, places = new[order], places[order]
    return _chosen(input, places, at, new, len(wanted))


def _sliced(x: Tensor, dim: int, start: Arg, length: int, step: int = 1) -> Tensor:
    first = number_of(start)
    first = int(first.item() if isinstance(first, Tensor) else first)
    dense = _on_values(x, dim, lambda values, d: op.slice_dim(values, d, first, length, step))
    if dense is not None:
        return dense
    own = _rows(x, dim)
    places = np.nonzero((own >= first) & (own < first + length * step) & ((own - first) % step == 0))[0]
    return _chosen(x, places, dim, (own[places] - first) // step, length)


@rule(Coo, "slice_dim")
def _slice_dim(input: Tensor, dim: int, start: object, length: int, step: int = 1) -> Tensor:
    return _sliced(input, wrap_dim(dim, input.ndim), start, length, step)


def _selected(x: Tensor, dim: int, index: object) -> Tensor:
    """The slice at an index, without that dim; dense if there is no other sparse dim."""
    piece = coalesced(_sliced(x, dim, index, 1))
    encoding = encoding_of(piece)
    if dim >= encoding.sparse_dim:
        values = encoding.values.squeeze(dim - encoding.sparse_dim + 1)
        return coo([*piece.shape[:dim], *piece.shape[dim + 1 :]], encoding.indices, values, coalesced=True)
    if encoding.sparse_dim == 1:
        return encoding.values.sum(0)
    rest = [encoding.indices[d] for d in range(encoding.sparse_dim) if d != dim]
    return coo([*piece.shape[:dim], *piece.shape[dim + 1 :]], op.stack(rest), encoding.values, coalesced=True)


@rule(Coo, "select")
def _select(input: Tensor, dim: int, index: object) -> Tensor:
    return _selected(input, wrap_dim(dim, input.ndim), index)


# --- several ----------------------------------------------------------------------------------------------------


@rule(Coo, "cat")
def _cat(tensors: Sequence[Tensor], dim: int = 0) -> Tensor:
    for at, x in enumerate(tensors):
        if not is_sparse(x):
            raise ShapeError(f"Concatenating sparse tensors, but a dense tensor was found at position {at}.")
    encodings = [encoding_of(x) for x in tensors]
    first, ndim = encodings[0], tensors[0].ndim
    at = wrap_dim(dim, ndim)
    for place, (x, encoding) in enumerate(zip(tensors, encodings, strict=True)):
        others = [(a, b) for d, (a, b) in enumerate(zip(x.shape, tensors[0].shape, strict=False)) if d != at]
        if x.ndim != ndim or encoding.sparse_dim != first.sparse_dim or any(a != b for a, b in others):
            raise ShapeError(
                "All tensors must have the same shape: "
                f"{list(tensors[0].shape)} (except in the concatenating dimension), but found shape: {list(x.shape)} "
                f"at position {place}"
            )
    size = [*tensors[0].shape[:at], sum(x.shape[at] for x in tensors), *tensors[0].shape[at + 1 :]]
    if at >= first.sparse_dim:
        return _cat_dense(tensors, at, size)
    shifted: list[Tensor] = []
    start = 0
    for x, encoding in zip(tensors, encodings, strict=True):
        rows = [encoding.indices[d] + (start if d == at else 0) for d in range(encoding.sparse_dim)]
        shifted.append(op.stack(rows))
        start += x.shape[at]
    result = coo(size, op.cat(shifted, 1), op.cat([encoding.values for encoding in encodings]))
    return coalesced(result) if all(encoding.is_coalesced for encoding in encodings) else result


def _cat_dense(tensors: Sequence[Tensor], dim: int, size: Sequence[int]) -> Tensor:
    """Joined along a dense dim: the values of each tensor have zeros beside them."""
    pieces: list[tuple[Tensor, Tensor]] = []
    start = 0
    for x in tensors:
        encoding = encoding_of(x)
        shape = list(encoding.values.shape)
        own = dim - encoding.sparse_dim + 1
        before, after = ([*shape[:own], n, *shape[own + 1 :]] for n in (start, size[dim] - start - x.shape[dim]))
        values = encoding.values
        zeros = [op.zeros(tuple(s), dtype=values.dtype, device=values.device) for s in (before, after)]
        pieces.append((encoding.indices, op.cat([zeros[0], values, zeros[1]], own)))
        start += x.shape[dim]
    return coo(size, op.cat([i for i, _ in pieces], 1), op.cat([v for _, v in pieces]))


@rule(Coo, "stack")
def _stack(tensors: Sequence[Tensor], dim: int = 0) -> Tensor:
    return op.cat([op.unsqueeze(x, dim) for x in tensors], wrap_dim(dim, tensors[0].ndim + 1))
