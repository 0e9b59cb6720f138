"""Histograms, differences along a grid, and positions from flat indices."""

from __future__ import annotations

import builtins
import warnings
from collections.abc import Sequence
from math import floor, isfinite

from weft._base.guards import SEQUENCE, is_list_or_tuple
from weft._base.numpy_guards import INTEGERS
from weft._base.state import default_dtype
from weft._base.types import Arg
from weft._tensor.arguments import AnyDims, combination
from weft._tensor.codegen import op
from weft._tensor.composite.create import number_of, refuse_bool
from weft._tensor.composite.shape import select
from weft._tensor.functions import composite
from weft._tensor.named_results import named_result
from weft._tensor.tensor import Results, Tensor
from weft.errors import ArgumentError, DTypeError, OutOfRangeError, ShapeError, ValueRangeError
from weft.ops._dims import wrap_dim
from weft.ops._kinds import Scalar
from weft.ops._table import NO_METHOD, Public
from weft.ops._type_names import c_name

_Histogram = named_result("histogram", ("hist", "bin_edges"))


def _edges(input: Tensor, bins: int, range: Arg, dim: int = 0) -> Tensor:
    """The edges of equal bins over a range, by default that of the elements, which it waits for."""
    if bins <= 0:
        raise OutOfRangeError(f"torch.histogram(): bins must be > 0, but got {bins} for dimension {dim}")
    if range is None and not input.numel():
        low, high = 0.0, 1.0
    elif range is None:
        low, high = op.amin(input).item(), op.amax(input).item()
    else:
        low, high = range
    if not (isfinite(low) and isfinite(high)):
        raise OutOfRangeError(f"torch.histogramdd: dimension {dim}'s range [{low:g}, {high:g}] is not finite")
    if low > high:
        raise OutOfRangeError(
            f"torch.histogramdd: min should not exceed max, but got min {low:g} max {high:g} for dimension {dim}"
        )
    if low == high:
        low, high = low - 0.5, high + 0.5
    return op.linspace((bins + 1,), low, high, dtype=input.dtype).to(input.device)


def _given_edges(input: Tensor, bins: Tensor, range: object, dim: int = 0) -> Tensor:
    """The user's edges; there must be no range then."""
    if range is not None:
        raise combination("histogramdd" if dim else "histogram", input, bins, range)
    if bins.ndim > 1:
        raise ShapeError(
            f"torch.histogramdd: bins tensor should have one dimension, but got {bins.ndim} dimensions in the bins "
            f"tensor for dimension {dim}"
        )
    if not bins.numel():
        raise ShapeError(
            "torch.histogramdd: bins tensor should have at least 1 element, but got 0 elements in the bins tensor for "
            f"dimension {dim}"
        )
    if bins.dtype is not input.dtype:
        raise DTypeError(
            "torch.histogramdd: input tensor and bins tensors should have the same dtype, but got input with dtype "
            f"{c_name(input.dtype)} and bins for dimension {dim} with dtype {c_name(bins.dtype)}"
        )
    return op.reshape(bins, (-1,))


@composite(
    public=Public(
        out="torch.histogram: input tensor and hist tensor should have the same dtype, but got input {2} and hist {3}"
    )
)
def histogram(
    input: Tensor, bins: Arg = 100, *, range: Arg = None, weight: Tensor | None = None, density: bool = False
) -> Results:
    """The number of elements in each bin, or the sum of their weights, and the edges of the bins.

    `bins` is the number of equal bins over `range` (by default from the smallest element to the largest), or their
    edges.
    """
    _check_weight(input, weight, input.shape, [input.numel(), 1])
    edges = _given_edges(input, bins, range) if isinstance(bins, Tensor) else _edges(input, bins, range)
    return _Histogram(op.histogram_counts(input, edges, weight, density=density), edges)


def _check_weight(input: Tensor, weight: Tensor | None, shape: Sequence[int], sizes: Sequence[int]) -> None:
    if weight is not None and weight.shape != shape:
        raise ShapeError(
            "torch.histogramdd: if weight tensor is provided it should have the same shape as the input tensor "
            f"excluding its innermost dimension, but got input with shape {list(sizes)} and weight with shape "
            f"{list(weight.shape)}"
        )
    if weight is not None and weight.dtype is not input.dtype:
        raise DTypeError(
            "torch.histogramdd: if weight tensor is provided, input tensor and weight tensor should have the same "
            f"dtype, but got input({c_name(input.dtype)}), and weight({c_name(weight.dtype)})"
        )


_Histograms = named_result("histogramdd", ("hist", "bin_edges"))


@composite()
def histogramdd(
    input: Tensor,
    bins: Arg,
    *,
    range: Sequence[float] | None = None,
    weight: Tensor | None = None,
    density: bool = False,
) -> Results:
    """The number of points in each cell of a grid, or the sum of their weights, and for each dim the edges of its bins.

    The points are the vectors in the innermost dim. `bins` is one number for all dims, a number for each, or the edges
    for each; `range` has the lowest and the highest edge of each dim.
    """
    if input.ndim < 2:
        raise ShapeError("torch.histogramdd: input tensor should have at least 2 dimensions")
    count = input.shape[-1]
    each = [bins] * count if isinstance(bins, INTEGERS) else list(bins)
    if len(each) != count:
        raise ShapeError("histogramdd: The size of bins must be equal to the innermost dimension of the input.")
    if range is not None and len(range) != 2 * count:
        raise ShapeError(
            f"torch.histogramdd: for a {count}-dimensional histogram range should have {2 * count} elements, but got "
            f"{len(range)}"
        )
    _check_weight(input, weight, input.shape[:-1], input.shape)
    columns = [select(input, -1, at) for at in builtins.range(count)]
    bounds = [None if range is None else range[2 * at : 2 * at + 2] for at in builtins.range(count)]
    edges = tuple(
        _given_edges(column, part, range, dim) if isinstance(part, Tensor) else _edges(column, part, bound, dim)
        for dim, (column, part, bound) in enumerate(zip(columns, each, bounds, strict=True))
    )
    return _Histograms(op.histogramdd_counts(input, list(edges), weight, density=density), edges)


# ---- differences


def _part(x: Tensor, dim: int, start: int, stop: int | None = None) -> Tensor:
    return x[(slice(None),) * dim + (slice(start, stop),)]


def _ends(input: Tensor, dim: int, steps: Tensor, edge_order: int) -> tuple[Tensor, Tensor]:
    """The slopes at both ends, from the two or three outermost elements."""
    ends: list[Tensor] = []
    for near, next_, third, first, second in ((0, 1, 2, 0, 1), (-1, -2, -3, -1, -2)):
        a, b = (select(input, dim, at) for at in (near, next_))
        h = select(steps, 0, first)
        slope = (b - a) / h if near == 0 else (a - b) / h
        if edge_order == 2:
            k = select(steps, 0, second)
            c = select(input, dim, third)
            further = (c - b) / k if near == 0 else (b - c) / k
            slope = slope + (slope - further) * h / (h + k)
        ends.append(op.unsqueeze(slope, dim))
    return ends[0], ends[1]


def _slope(input: Tensor, dim: int, steps: Tensor, edge_order: int) -> Tensor:
    """Second-order differences along `dim`, with one-sided differences at the ends; steps may have any length."""
    rises = op.diff(input, dim=dim)
    shaped = op.reshape(steps, [-1 if d == dim else 1 for d in range(input.ndim)])
    slopes = rises / shaped
    before, after = _part(shaped, dim, 0, -1), _part(shaped, dim, 1)
    inside = (after * _part(slopes, dim, 0, -1) + before * _part(slopes, dim, 1)) / (before + after)
    first, last = _ends(input, dim, steps, edge_order)
    return op.cat([first, inside, last], dim)


def _spacings(input: Tensor, spacing: object, dims: Sequence[int], is_explicit: bool) -> list[Tensor | Scalar]:
    """One spacing for each dim: a number, or a tensor of coordinates."""
    if not is_list_or_tuple(spacing):
        return [1 if spacing is None else spacing] * len(dims)
    if len(spacing) != len(dims):
        if is_explicit:
            wanted = f"it's spacing and dim arguments to have the same length, here {len(dims)}"
        else:
            wanted = f"a list of length equal to 'self.dim() = {input.ndim}', since dim argument was not given"
        raise ShapeError(
            f"torch.gradient expected spacing to be unspecified, a scalar or {wanted}, "
            f"but got a spacing argument of length {len(spacing)}"
        )
    return list(spacing)


@composite(public=NO_METHOD)
def gradient(input: Tensor, *, spacing: object = None, dim: AnyDims = None, edge_order: int = 1) -> tuple[Tensor, ...]:
    """Derivatives along each of `dim` (by default all), from a function's values on a grid.

    `spacing` is the distance of neighbours (by default 1) or the coordinates along a dim; for several dims, one for
    each. Differences are central inside, and one-sided of order `edge_order` at the ends.
    """
    if edge_order not in (1, 2):
        raise OutOfRangeError("torch.gradient only supports edge_order=1 and edge_order=2.")
    dims = range(input.ndim) if dim is None else [dim] if isinstance(dim, INTEGERS) else dim
    over = [wrap_dim(d, input.ndim) for d in dims]
    for d in over:
        if over.count(d) > 1:
            raise ShapeError(f"dim {d} appears multiple times in the list of dims")
        if input.shape[d] < edge_order + 1:
            raise ShapeError("torch.gradient expected each dimension size to be at least edge_order+1")
    slopes: list[Tensor] = []
    for d, space in zip(over, _spacings(input, spacing, over, dim is not None), strict=True):
        count = input.shape[d] - 1
        real = input.dtype.to_real() if input.dtype.is_differentiable else default_dtype()
        if isinstance(space, Tensor) and space.ndim:
            steps = op.diff(space)
        else:
            steps = op.full((count,), number_of(space), dtype=real, device=input.device)
        slopes.append(_slope(input, d, steps, edge_order))
    return tuple(slopes)


# ---- integers


@composite(public=NO_METHOD)
def unravel_index(indices: Tensor, shape: Arg) -> tuple[Tensor, ...]:
    """The indices along each dim of a tensor of this shape, from indices into the flat tensor."""
    if indices.is_floating_point() or indices.is_complex() or indices.dtype.name == "bool":
        raise ArgumentError(f"expected 'indices' to be integer dtype, but got {indices.dtype}")
    if not isinstance(shape, (int, SEQUENCE)):
        raise ArgumentError(f"expected 'shape' to be int or sequence of ints, but got {type(shape)}")
    sizes: tuple[Arg, ...] = (shape,) if isinstance(shape, int) else tuple(shape)
    for n in sizes:
        if not isinstance(n, int):
            raise ArgumentError(f"expected 'shape' sequence to only contain ints, but got {type(n)}")
    if any(n < 0 for n in sizes):
        raise ValueRangeError(f"'shape' cannot have negative values, but got {sizes}")
    coordinates: list[Tensor] = []
    step = 1
    for size in reversed(sizes):
        coordinates.insert(0, indices // step % size)
        step *= size
    return tuple(coordinates)


@composite("range")
def range_(
    start: Arg = 0,
    end: Arg = None,
    step: Arg = 1,
    *,
    dtype: Arg = None,
    device: Arg = None,
    requires_grad: bool = False,
) -> Tensor:
    """Numbers from `start` to `end`, which is included if a step ends there. Deprecated: use `arange`."""
    warnings.warn(
        "torch.range is deprecated and will be removed in a future release because its behavior is inconsistent with "
        "Python's range builtin. Instead, use torch.arange, which produces values in [start, end).",
        stacklevel=2,
    )
    if end is None:
        start, end = 0, start
    if step == 0:
        raise OutOfRangeError("step must be nonzero")
    if (end - start) * step < 0:
        raise OutOfRangeError("upper bound and lower bound inconsistent with step sign")
    count = floor((end - start) / step) + 1
    result = op.arange((count,), start, step, dtype=refuse_bool("range", dtype or default_dtype()), device=device)
    return result.requires_grad_() if requires_grad else result
