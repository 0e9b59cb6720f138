"""Sparse, nested and quantized tensors as PyTorch's pickles describe them: by tensors, and sizes."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from itertools import accumulate
from math import prod
from types import NoneType
from typing import Any

from weft._base.guards import is_plain_dict, is_plain_tuple
from weft._base.layout import (
    SCHEMES,
    NamedConstant,
    jagged,
    layout,
    named,
    per_tensor_affine,
    sparse_bsr,
    sparse_coo,
    sparse_csr,
)
from weft._checkpoint.keys import Unpickled
from weft._checkpoint.pickled import short_repr
from weft._checkpoint.storages import is_shape
from weft._checkpoint.torch_names import (
    JAGGED_TENSOR,
    NESTED_TENSOR,
    QUANTIZED_TENSOR,
    SPARSE_TENSOR,
    STORAGES,
    TorchGlobal,
)
from weft._lazy.aval import AnyOwner
from weft._tensor.codegen import op as rows
from weft._tensor.composed import encoding_of
from weft._tensor.composite.quantized import per_channel_from, per_tensor_from
from weft._tensor.convert import tensor
from weft._tensor.nested.encoding import Nested
from weft._tensor.nested.jagged import jagged_of
from weft._tensor.nested.strided import strided_of
from weft._tensor.quantized.encoding import Quantized
from weft._tensor.sparse.compressed import COMPRESSED
from weft._tensor.sparse.construct import made_of_compressed, made_of_coordinates
from weft._tensor.sparse.encoding import Sparse
from weft._tensor.tensor import Tensor
from weft.errors import PickleError
from weft.ops._strides import Layout, row_major

_COMPRESSED = {encoding.layout for encoding in COMPRESSED}


def layout_named(name: Unpickled) -> NamedConstant:
    """The layout that a pickle names."""
    try:
        return named(name.removeprefix("torch."))
    except (KeyError, AttributeError):
        raise PickleError(f"it names a layout that there is not: {short_repr(name)}") from None


def rebuilt_sparse(target: Unpickled, data: Unpickled, check: bool | None = True) -> Tensor:
    """A sparse tensor. Indices outside of the size are refused, or, without `check`, as `check_invariants` says."""
    if not isinstance(target, layout) or not is_plain_tuple(data) or not 3 <= len(data) <= 4:
        raise PickleError("its pickle makes a sparse tensor of something else than a layout and parts")
    count = 2 if target is sparse_coo else 3
    parts, size = data[:count], data[count] if len(data) > count else None
    if not all(isinstance(x, Tensor) for x in parts) or not is_shape(tuple(size or ())):
        raise PickleError("its pickle makes a sparse tensor of something else than indices, values and a size")
    *indices, values = parts
    requires_grad = values.requires_grad  # by which files say it of the whole, which is a leaf
    values = values.detach()
    if target is sparse_coo:
        coalesced = data[3] if len(data) == 4 else None
        return made_of_coordinates(indices[0], values, size, None, None, requires_grad, check, coalesced is True)
    if target not in _COMPRESSED:
        raise PickleError(f"its pickle makes a sparse tensor of the layout {target!r}")
    name = f"{repr(target).removeprefix('torch.')}_tensor"
    return made_of_compressed(name, target, (indices[0], indices[1]), values, size, None, None, requires_grad, check)


def by_coordinates(indices: Unpickled, values: Unpickled, size: Unpickled = None) -> Tensor:
    """A sparse tensor, as PyTorch's older classes make it."""
    return rebuilt_sparse(sparse_coo, (indices, values, size))


def rebuilt_nested(buffer: Unpickled, sizes: Unpickled, strides: Unpickled, offsets: Unpickled) -> Tensor:
    """A nested tensor of the strided layout, whose components lie one after another."""
    parts = (buffer, sizes, strides, offsets)
    if not all(isinstance(x, Tensor) for x in parts) or buffer.ndim != 1 or sizes.ndim != 2:
        raise PickleError("its pickle makes a nested tensor of something else than elements and sizes")
    shapes = [tuple(row) for row in sizes.tolist()]
    counts = [prod(shape) for shape in shapes]
    starts = _starts(counts)
    dense = [tuple(row) for row in strides.tolist()] == [row_major(shape) for shape in shapes]
    if not (all(map(is_shape, shapes)) and dense and offsets.tolist() == starts and sum(counts) == buffer.numel()):
        raise PickleError("it holds a nested tensor whose components do not lie one after another; save x.contiguous()")
    return strided_of(buffer, shapes)


def rebuilt_jagged(parts: Unpickled) -> Tensor:
    """A nested tensor of the jagged layout: rows of values, and where each component starts."""
    values, offsets = (parts.get(name) if is_plain_dict(parts) else None for name in ("values", "offsets"))
    lengths = parts.get("lengths") if is_plain_dict(parts) else None
    ragged = parts.get("_ragged_idx", 1) if is_plain_dict(parts) else None
    if not isinstance(values, Tensor) or not isinstance(offsets, Tensor) or not isinstance(lengths, (Tensor, NoneType)):
        raise PickleError("its pickle makes a nested tensor of something else than values and offsets")
    if type(ragged) is not int or not 1 <= ragged <= values.ndim:
        raise PickleError("its pickle makes a nested tensor whose components differ in no dim")
    return jagged_of(values, offsets, ragged, lengths).requires_grad_(parts.get("requires_grad") is True)


def rebuilt_quantized(integers: Tensor, grid: Unpickled) -> Tensor:
    """A quantized tensor from its integers."""
    if not is_plain_tuple(grid) or not grid or grid[0] not in SCHEMES:
        raise PickleError("its pickle makes a quantized tensor of something else than integers and a scheme")
    try:
        if grid[0] is per_tensor_affine:
            _, scale, zero_point = grid
            return per_tensor_from(integers, float(scale), int(zero_point))
        _, scales, zero_points, axis = grid
        return per_channel_from(integers, scales, zero_points, axis)
    except (ValueError, TypeError, RuntimeError, AttributeError, IndexError) as error:
        raise PickleError(f"its pickle makes a quantized tensor of what does not fit together: {error}") from error


# --- taking them apart ------------------------------------------------------------------------------------------


def has_layout_of_torch(owner: AnyOwner) -> bool:
    """Whether PyTorch has such tensors: sparse, nested and quantized ones."""
    return isinstance(owner, (Sparse, Nested, Quantized))


def parts_of(x: Any, placed: Callable[[Tensor, TorchGlobal], tuple[Any, Layout]]) -> tuple[TorchGlobal, Any]:
    """The function and the arguments by which pickles make such a tensor again.

    `placed` gives the storage of integers, by its class, and their place in it.
    """
    if x.is_quantized:
        record, places = placed(x.int_repr(), STORAGES[x.dtype])
        return QUANTIZED_TENSOR, (
            record,
            places.offset,
            (*places.sizes,),
            (*places.strides,),
            _grid_of(x),
            False,  # PyTorch's integers require no gradient
            OrderedDict(),
        )
    if x.layout is jagged:
        jag = encoding_of(x)
        parts = {"values": jag.values, "offsets": jag.offsets, "lengths": jag.lengths, "_ragged_idx": jag.ragged}
        return JAGGED_TENSOR, ({**parts, "requires_grad": x.requires_grad},)
    if x.is_nested:
        # PyTorch's keeps where each component lies, since its own may be transposed; here they lie one after another.
        components = x.detach().unbind()
        sizes = tensor([list(part.shape) for part in components])
        strides = tensor([list(row_major(tuple(part.shape))) for part in components])
        counts = [part.numel() for part in components]
        starts = tensor(_starts(counts))
        return NESTED_TENSOR, (
            _values_of(x, rows.cat([part.reshape(-1) for part in components])),
            sizes,
            strides,
            starts,
        )
    if x.layout is sparse_coo:
        return SPARSE_TENSOR, (x.layout, (x._indices(), _values_of(x, x._values()), x.shape, x.is_coalesced()))
    by_row = x.layout in (sparse_csr, sparse_bsr)
    indices = (x.crow_indices(), x.col_indices()) if by_row else (x.ccol_indices(), x.row_indices())
    return SPARSE_TENSOR, (x.layout, (*indices, _values_of(x, x.values()), x.shape))


def _starts(counts: list[int]) -> list[int]:
    """Where each of some stretches begins that lie one after another."""
    return [0, *accumulate(counts)][: len(counts)]


def _values_of(x: Tensor, values: Tensor) -> Tensor:
    # Files say of the values that the whole requires a gradient: PyTorch's pickles have no other place for it.
    return values.detach().requires_grad_(x.requires_grad)


def _grid_of(x: Any) -> tuple[Any, ...]:
    """The scheme of a quantized tensor, and its numbers."""
    if x.qscheme() is per_tensor_affine:
        return x.qscheme(), x.q_scale(), x.q_zero_point()
    return x.qscheme(), x.q_per_channel_scales(), x.q_per_channel_zero_points(), x.q_per_channel_axis()
