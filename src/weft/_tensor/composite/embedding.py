"""Bags of embeddings."""

from __future__ import annotations

import warnings

from weft._base.state import using
from weft._tensor.codegen import op
from weft._tensor.functions import composite
from weft._tensor.sparse.coo import counted
from weft._tensor.sparse.gradients import embedded, has_sparse_gradient
from weft._tensor.tensor import Tensor
from weft._tensor.view import write
from weft.errors import ShapeError, UnsupportedDTypeError, ValueRangeError
from weft.ops._table import IN_FUNCTIONAL

_MODES = ("sum", "mean", "max")


def _check(input: Tensor, weight: Tensor, offsets: Tensor | None, each: Tensor | None, mode: str) -> None:
    if each is not None and input.shape != each.shape:
        raise ValueRangeError(
            f"embedding_bag: If per_sample_weights ({each.shape}) is not None, then it must have the same shape as "
            f"the input ({input.shape})"
        )
    if weight.ndim != 2:
        raise ValueRangeError(f"weight has to be a 2D Tensor, but got Tensor of dimension {weight.ndim}")
    if input.ndim not in (1, 2):
        raise ValueRangeError(f"input has to be 1D or 2D Tensor, but got Tensor of dimension {input.ndim}")
    if input.ndim == 2 and offsets is not None:
        raise ValueRangeError(
            "if input is 2D, then offsets has to be None, as input is treated is a mini-batch of fixed length "
            f"sequences. However, found offsets of type {type(offsets)}"
        )
    if input.ndim == 1 and offsets is None:
        raise ValueRangeError("offsets has to be a 1D Tensor but got None")
    if offsets is not None and offsets.ndim != 1:
        raise ValueRangeError("offsets has to be a 1D Tensor")
    if mode not in _MODES:
        raise ValueRangeError("mode has to be one of sum, mean or max")


@composite(public=IN_FUNCTIONAL)
def embedding_bag(
    input: Tensor,
    weight: Tensor,
    offsets: Tensor | None = None,
    max_norm: float | None = None,
    norm_type: float = 2,
    scale_grad_by_freq: bool = False,
    mode: str = "mean",
    sparse: bool = False,
    per_sample_weights: Tensor | None = None,
    include_last_offset: bool = False,
    padding_idx: int | None = None,
) -> Tensor:
    """Sums, means or maxima of rows of `weight` over bags of indices; `max_norm` first limits the rows in place.

    A bag is a row of `input`; for a vector, it is the range between two `offsets`. With `sparse`, the gradient of a
    weight that is a leaf is sparse: it stores a row for each index.
    """
    if not weight.is_floating_point() and input.is_floating_point():
        warnings.warn(
            "Argument order of nn.functional.embedding_bag was changed. Usage `embedding_bag(weight, input, ...)` is "
            "deprecated, and should now be `embedding_bag(input, weight, ...)`.",
            stacklevel=2,
        )
        weight, input = input, weight
    _check(input, weight, offsets, per_sample_weights, mode)
    if mode == "max" and scale_grad_by_freq:
        raise ValueRangeError("max mode does not support scaling the gradient by the frequency")
    if mode == "max" and sparse:
        raise ValueRangeError("max mode does not support sparse weights")
    if max_norm is not None:
        with using(grad=False):
            write(weight, op.limit_rows(weight, input, max_norm, norm_type)._read())
    if per_sample_weights is not None and mode != "sum":
        raise UnsupportedDTypeError(
            "embedding_bag: per_sample_weights was not None. per_sample_weights is only supported for mode='sum' "
            f"(got mode='{mode}'). Please open a feature request on GitHub."
        )
    if padding_idx is not None and not -weight.shape[0] <= padding_idx < weight.shape[0]:
        raise ShapeError(
            f"padding_idx must be within the number of embeddings, {-weight.shape[0]} through {weight.shape[0] - 1}, "
            f"but got {padding_idx}"
        )
    last = include_last_offset and offsets is not None
    if sparse and has_sparse_gradient(weight):
        padding = None if padding_idx is None else padding_idx % weight.shape[0]
        rows = embedded(input.reshape((-1,)), weight, padding, scale_grad_by_freq, sparse)
        return _bags_of(rows, input, offsets, per_sample_weights, mode, last, padding)
    return op.embedding_bag(input, weight, offsets, per_sample_weights, mode, last, padding_idx, scale_grad_by_freq)


def _bags_of(
    rows: Tensor,
    input: Tensor,
    offsets: Tensor | None,
    per_sample_weights: Tensor | None,
    mode: str,
    last: bool,
    padding: int | None,
) -> Tensor:
    """The bags of a table's rows that were read, one for each index; those of the padding are left out."""
    places = counted(input.numel(), input).reshape(tuple(input.shape))
    if padding is not None:
        rows = op.cat([rows, op.zeros((1, rows.shape[1]), dtype=rows.dtype, device=rows.device)])
        padding, places = input.numel(), op.where(op.eq(input, padding), input.numel(), places)
    return op.embedding_bag(places, rows, offsets, per_sample_weights, mode, last, padding, False)
