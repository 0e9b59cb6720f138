"""Functions that index by tensors, with arguments that do not fit a single row."""

from __future__ import annotations

from collections.abc import Sequence

from weft._base.determinism import refuse_undetermined
from weft._base.dtype import bool_, uint8
from weft._tensor.arguments import AnyDims
from weft._tensor.codegen import op
from weft._tensor.functions import composite
from weft._tensor.subscript import as_filling, nonzero_dims, placed_index, require_mask_names
from weft._tensor.tensor import Tensor
from weft.errors import ArgumentError, IndexRangeError
from weft.ops._table import OTHER_OUT, Public


@composite(public=Public(inplace=True, out=OTHER_OUT, separate=("index", "src")))
def scatter(
    input: Tensor, dim: AnyDims, index: Tensor, src: object = None, value: object = None, *, reduce: str | None = None
) -> Tensor:
    """`input` with elements of the tensor `src`, or a number, written at the places of `index` along `dim`.

    With `reduce` "add" or "multiply", they are combined instead.
    """
    if (src is None) == (value is None):
        raise ArgumentError("scatter() takes a tensor src or a number value, one of them")
    return op.scatter_src(input, dim, index, value if src is None else src, reduce=reduce)


@composite(public=Public(inplace=True, separate=("index", "source")))
def put(input: Tensor, index: Tensor, source: Tensor, accumulate: bool = False) -> Tensor:
    """`input` with elements of `source` written, or added, at places of the flattened `input`."""
    if not accumulate:
        refuse_undetermined("put_")
    return op.put(input, index, source, accumulate)


@composite(public=Public(inplace=True, separate=("indices", "values")))
def index_put(input: Tensor, indices: Sequence[Tensor], values: Tensor, accumulate: bool = False) -> Tensor:
    """`input` with `values` written, or added, at the places given by one integer tensor or mask for each dim.

    Indices, and a single value, may be on the CPU.
    """
    places: list[Tensor] = []
    masks: list[Tensor] = []
    starts: list[int] = []
    for index in indices:
        if index.dtype in (bool_, uint8):
            masks.append(index)
            starts.append(len(places))
            places.extend(nonzero_dims(index))
        else:
            places.append(index)
    if not accumulate:
        values = as_filling(input, masks, len(places), values)
    if len(places) > input.ndim:
        raise IndexRangeError(f"too many indices for tensor of dimension {input.ndim} (got {len(places)})")
    require_mask_names(input, masks, starts)
    placed = tuple(placed_index(input, index) for index in places)
    values = values if values.ndim else placed_index(input, values)
    return op.index_put(input, placed, values, tuple(range(len(places))), accumulate)
