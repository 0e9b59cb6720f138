"""Convolutions, and reductions over windows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product
from math import prod
from typing import NamedTuple

import numpy as np
from jax.extend.core import ClosedJaxpr
from numpy.lib.stride_tricks import sliding_window_view

from weft._base.types import Args
from weft._lazy.interpreter.evaluate import interpreted
from weft._lazy.interpreter.flatten import FlatTrace
from weft._lazy.interpreter.products import matmul_of
from weft._lazy.interpreter.reduction import highest, lowest
from weft._lazy.interpreter.table import Array, Function, MissingPrimitive, Params, Types, computed_in, primitive, wide
from weft.ops._kinds import Scalar


class _Grid(NamedTuple):
    """Sliding windows over the last dims of an array, which is spread out and padded first."""

    padding: Sequence[tuple[int, int]]
    spread: Sequence[int]  # the distance between elements of the array; the value of the padding fills the gaps
    sizes: Sequence[int]
    strides: Sequence[int]
    dilation: Sequence[int]

    def padded(self, x: Array, value: object) -> Array:
        """The array with `value` around and between its elements."""
        first = x.ndim - len(self.sizes)
        if all(p == (0, 0) for p in self.padding) and all(step == 1 for step in self.spread):
            return x
        inner = [(n - 1) * step + 1 if n else 0 for n, step in zip(x.shape[first:], self.spread, strict=True)]
        around = [(max(low, 0), max(high, 0)) for low, high in self.padding]
        shape = [low + n + high for n, (low, high) in zip(inner, around, strict=True)]
        result = np.full_like(x, value, order="C", shape=(*x.shape[:first], *shape))
        places = [slice(low, low + n, step) for n, (low, _), step in zip(inner, around, self.spread, strict=True)]
        result[(..., *places)] = x
        cut = [slice(max(-low, 0), n - max(-high, 0)) for n, (low, high) in zip(shape, self.padding, strict=True)]
        return result[(..., *cut)]

    def counts(self, shape: Sequence[int]) -> list[int]:
        """The number of windows in each dim of a padded array of this shape."""
        reach = [(size - 1) * step + 1 for size, step in zip(self.sizes, self.dilation, strict=True)]
        return [
            max(0, (n - r) // stride + 1)
            for n, r, stride in zip(shape[len(shape) - len(reach) :], reach, self.strides, strict=True)
        ]

    def windows(self, x: Array) -> Array:
        """A view of a padded array: (…, windows in each dim, elements of a window in each dim)."""
        first = x.ndim - len(self.sizes)
        counts = self.counts(x.shape)
        if 0 in (*counts, *self.sizes):
            return np.empty((*x.shape[:first], *counts, *self.sizes), x.dtype)
        reach = tuple([(size - 1) * step + 1 for size, step in zip(self.sizes, self.dilation, strict=True)])
        windows = sliding_window_view(x, reach, tuple(range(first, x.ndim)))
        return windows[(..., *[slice(None, None, step) for step in (*self.strides, *self.dilation)])]

    def offsets(self, x: Array) -> Iterator[Args]:
        """For each position in a window, in order, the key of the elements there of all windows of a padded array."""
        counts = self.counts(x.shape)
        for at in product(*map(range, self.sizes)):
            starts = [i * step for i, step in zip(at, self.dilation, strict=True)]
            yield (
                ...,
                *[
                    slice(start, start + max(0, (n - 1) * stride + 1) if n else start, stride)
                    for start, n, stride in zip(starts, counts, self.strides, strict=True)
                ],
            )


# --- convolutions ---------------------------------------------------------------------------------------------


@primitive("conv_general_dilated")
def _conv(params: Params, ins: Types, outs: Types) -> Function:
    """A convolution as a product of matrices for each group: the kernel by the windows of the images as columns."""
    numbers = params["dimension_numbers"]
    dtype = outs[0].dtype
    inner = computed_in(np.result_type(*[computed_in(t.dtype) for t in (*ins, outs[0])]))
    space: Sequence[int] = numbers.rhs_spec[2:]
    sizes = [ins[1].shape[d] for d in space]
    grid = _Grid(params["padding"], params["lhs_dilation"], sizes, params["window_strides"], params["rhs_dilation"])
    features, batches = params["feature_group_count"], params["batch_group_count"]
    order = np.argsort(numbers.out_spec)

    def convolve(images: Array, kernel: Array) -> Array:
        x = grid.padded(images.transpose(numbers.lhs_spec).astype(inner), 0)  # (batch, channel, *space)
        k = kernel.transpose(numbers.rhs_spec).astype(inner)  # (output, channel, *window)
        batch, channels, *space = x.shape
        if batches > 1:  # treated as further groups of channels, of a smaller batch
            x = x.reshape(batches, batch // batches, channels, *space).swapaxes(0, 1)
            batch //= batches
        groups = features * batches
        x = x.reshape(batch, groups, channels // features, *space)
        result = _products(grid, x, k.reshape(groups, k.shape[0] // groups, prod(k.shape[1:])))
        return result.reshape(batch, k.shape[0], *result.shape[3:]).transpose(order).astype(dtype, copy=False)

    return convolve


def _products(grid: _Grid, x: Array, k: Array) -> Array:
    """(batch, group, channel, *space) by (group, output, channel * window): (batch, group, output, *windows)."""
    windows = grid.windows(x)
    ndim = len(grid.sizes)
    counts = windows.shape[3 : 3 + ndim]
    dims = range(windows.ndim)
    order = (*dims[:3], *dims[3 + ndim :], *dims[3 : 3 + ndim])  # (batch, group, channel, *window, *windows)
    columns = windows.transpose(order).reshape(*windows.shape[:2], k.shape[-1], prod(counts))
    return matmul_of(k.dtype)(k, columns).reshape(*windows.shape[:2], k.shape[1], *counts)


# --- reductions -----------------------------------------------------------------------------------------------


def _reduction_grid(params: Params) -> _Grid:
    ones = (1,) * len(params["window_dimensions"])
    return _Grid(
        params["padding"],
        params.get("base_dilation", ones),
        params["window_dimensions"],
        params["window_strides"],
        params.get("window_dilation", ones),
    )


def _start(name: str, dtype: np.dtype) -> Scalar:
    """The neutral element of a reduction, with which windows are padded."""
    return 0 if name == "sum" else {"max": lowest, "min": highest}[name](dtype)


def _enter_window(name: str, combine: np.ufunc) -> None:
    @primitive(f"reduce_window_{name}")
    def bind(params: Params, ins: Types, outs: Types) -> Function:
        grid, (shape, dtype) = _reduction_grid(params), outs[0]
        inner = computed_in(dtype)
        start = _start(name, inner)

        def reduce(x: Array) -> Array:
            padded = grid.padded(x.astype(inner), start)
            result = np.full_like(padded, start, order="C", shape=shape)
            for key in grid.offsets(padded):
                result = combine(result, padded[key], out=result)
            return result.astype(dtype, copy=False)

        return reduce


_enter_window("sum", np.add)
_enter_window("max", np.maximum)
_enter_window("min", np.minimum)


@primitive("reduce_window")
def _reduce_window(params: Params, ins: Types, outs: Types) -> Function:
    """Reduction by any jaxpr, applied to one element of the windows after another."""
    count, grid = len(ins) // 2, _reduction_grid(params)
    body = params["jaxpr"]
    step = interpreted(body if isinstance(body, FlatTrace) else ClosedJaxpr(body, params["consts"])).run

    def reduce(*arrays: Array) -> list[Array]:
        starts = arrays[count:]
        padded = [grid.padded(x, start) for x, start in zip(arrays[:count], starts, strict=True)]
        results = [np.broadcast_to(start, t.shape) for start, t in zip(starts, outs, strict=True)]
        for key in grid.offsets(padded[0]):
            results = step([*results, *[x[key] for x in padded]])
        return [np.array(result) for result in results]

    return reduce


# --- the element that a window chooses ------------------------------------------------------------------------


def _chosen(params: Params, grid: _Grid, x: Array) -> Array:
    """For each window the position of its largest or smallest element, the first of equal ones.

    It is a position in the flattened `x` without padding, or -1 for a window that holds only padding.
    """
    is_max = _is_max(params)
    padded = grid.padded(x, lowest(x.dtype) if is_max else highest(x.dtype))
    places = grid.padded(np.arange(x.size).reshape(x.shape), -1)
    best = at = None
    for key in grid.offsets(padded):
        value, place = padded[key], places[key]
        if best is None or at is None:
            best, at = value, place
            continue
        better = (value > best if is_max else value < best) | ((at < 0) & (place >= 0))
        best, at = np.where(better, value, best), np.where(better, place, at)
    assert at is not None, "windows have elements"
    return at


def _is_max(params: Params) -> bool:
    name = params["select_prim"].name
    if name not in ("ge", "le"):
        raise MissingPrimitive(f"select_and_scatter_add[{name}]")
    return name == "ge"


@primitive("select_and_scatter_add")
def _select_and_scatter_add(params: Params, ins: Types, outs: Types) -> Function:
    _is_max(params)
    grid, (shape, dtype) = _reduction_grid(params), outs[0]
    inner = computed_in(dtype)

    def scatter(source: Array, x: Array) -> Array:
        at = _chosen(params, grid, wide(x))
        result = np.zeros(prod(shape), inner)
        inside = at >= 0
        np.add.at(result, at[inside], wide(source)[inside])
        return result.reshape(shape).astype(dtype, copy=False)

    return scatter


@primitive("select_and_gather_add")
def _select_and_gather_add(params: Params, ins: Types, outs: Types) -> Function:
    _is_max(params)
    grid, dtype = _reduction_grid(params), outs[0].dtype

    def gather(tangents: Array, x: Array) -> Array:
        at = _chosen(params, grid, wide(x))
        return np.where(at >= 0, tangents.reshape(-1).take(at, mode="clip"), np.zeros((), dtype))

    return gather
