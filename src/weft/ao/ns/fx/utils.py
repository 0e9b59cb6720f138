"""Measures of how far two tensors depart."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps

from weft._base.guards import is_list_or_tuple
from weft._base.types import AnyCallable, PyTree
from weft._tensor.codegen import op
from weft._tensor.tensor import Tensor
from weft.nn import functional as F

Measure = Callable[[Tensor, Tensor], Tensor]


def _of_numbers(measure: Measure) -> AnyCallable:
    """The measure of quantized tensors by their numbers, and of each pair of two tuples."""

    @wraps(measure)
    def measured(x: PyTree, y: PyTree) -> PyTree:
        if is_list_or_tuple(x):
            return tuple([measured(a, b) for a, b in zip(x, y, strict=True)])
        return measure(*(t.dequantize() if t.is_quantized else t for t in (x, y)))

    return measured


@_of_numbers
def compute_sqnr(x: Tensor, y: Tensor) -> Tensor:
    """The ratio of `x` to its difference from `y`, in decibels."""
    return 20 * op.log10(x.norm() / (x - y).norm())


@_of_numbers
def compute_normalized_l2_error(x: Tensor, y: Tensor) -> Tensor:
    """The norm of the difference, relative to that of `x`."""
    return op.sqrt(((x - y) ** 2).sum() / (x**2).sum())


@_of_numbers
def compute_cosine_similarity(x: Tensor, y: Tensor) -> Tensor:
    """The cosine of the angle between two tensors, as vectors of all elements: (1,)."""
    return F.cosine_similarity(x.reshape(1, -1), y.reshape(1, -1))
