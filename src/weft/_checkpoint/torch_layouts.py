"""Sparse, nested and quantized tensors as PyTorch's pickles describe them: tensors, and sizes."""

from __future__ import annotations

from math import prod

from weft._base.layout import SCHEMES, NamedConstant, layout, named, per_tensor_affine, sparse_coo
from weft._checkpoint.keys import Unpickled
from weft._checkpoint.pickled import short_repr
from weft._checkpoint.storages import is_shape
from weft._tensor.composite.quantized import per_channel_from, per_tensor_from
from weft._tensor.nested.strided import strided_of
from weft._tensor.sparse.compressed import COMPRESSED
from weft._tensor.sparse.construct import made_of_compressed, made_of_coordinates
from weft._tensor.tensor import Tensor
from weft.errors import PickleError
from weft.ops._strides import row_major

_COMPRESSED = {encoding.layout for encoding in COMPRESSED}


def layout_named(name: Unpickled) -> NamedConstant:
    """The layout that a pickle names."""
    try:
        return named(name.removeprefix("torch."))
    except (KeyError, AttributeError):
        raise PickleError(f"it names a layout that there is not: {short_repr(name)}") from None


def rebuilt_sparse(target: Unpickled, data: Unpickled) -> Tensor:
    """A sparse tensor; indices outside of the size are refused."""
    if not isinstance(target, layout) or type(data) is not tuple or not 3 <= len(data) <= 4:
        raise PickleError("its pickle makes a sparse tensor of something else than a layout and parts")
    count = 2 if target is sparse_coo else 3
    parts, size = data[:count], data[count] if len(data) > count else None
    if not all(isinstance(x, Tensor) for x in parts) or not is_shape(tuple(size or ())):
        raise PickleError("its pickle makes a sparse tensor of something else than indices, values and a size")
    if target is sparse_coo:
        coalesced = data[3] if len(data) == 4 else None
        return made_of_coordinates(parts[0], parts[1], size, None, None, False, True, coalesced is True)
    if target not in _COMPRESSED:
        raise PickleError(f"its pickle makes a sparse tensor of the layout {target!r}")
    name = f"{repr(target).removeprefix('torch.')}_tensor"
    return made_of_compressed(name, target, (parts[0], parts[1]), parts[2], size, None, None, False, True)


def rebuilt_nested(buffer: Unpickled, sizes: Unpickled, strides: Unpickled, offsets: Unpickled) -> Tensor:
    """A nested tensor of the strided layout, whose components lie one after another."""
    parts = (buffer, sizes, strides, offsets)
    if not all(isinstance(x, Tensor) for x in parts) or buffer.ndim != 1 or sizes.ndim != 2:
        raise PickleError("its pickle makes a nested tensor of something else than elements and sizes")
    shapes = [tuple(row) for row in sizes.tolist()]
    counts = [prod(shape) for shape in shapes]
    starts = [sum(counts[:at]) for at in range(len(counts))]
    dense = [tuple(row) for row in strides.tolist()] == [row_major(shape) for shape in shapes]
    if not (all(map(is_shape, shapes)) and dense and offsets.tolist() == starts and sum(counts) == buffer.numel()):
        raise PickleError("it holds a nested tensor whose components do not lie one after another; save x.contiguous()")
    return strided_of(buffer, shapes)


def rebuilt_quantized(integers: Tensor, grid: Unpickled) -> Tensor:
    """A quantized tensor from its integers."""
    if type(grid) is not tuple or not grid or grid[0] not in SCHEMES:
        raise PickleError("its pickle makes a quantized tensor of something else than integers and a scheme")
    try:
        if grid[0] is per_tensor_affine:
            _, scale, zero_point = grid
            return per_tensor_from(integers, float(scale), int(zero_point))
        _, scales, zero_points, axis = grid
        return per_channel_from(integers, scales, zero_points, axis)
    except (ValueError, TypeError, RuntimeError, AttributeError, IndexError) as error:
        raise PickleError(f"its pickle makes a quantized tensor of what does not fit together: {error}") from error
