"""Primitives that only move elements: reshapes, slices, concatenation, padding."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from operator import itemgetter, methodcaller
from types import EllipsisType

import numpy as np

from weft._lazy.interpreter.table import Array, Function, Params, Types, Unary, primitive


@primitive("reshape", view=True)
def _reshape(params: Params, ins: Types, outs: Types) -> Unary:
    sizes, order = params["new_sizes"], params["dimensions"]
    if order is not None:
        return lambda x: x.transpose(order).reshape(sizes)
    return methodcaller("reshape", sizes)


@primitive("squeeze", view=True)
def _squeeze(params: Params, ins: Types, outs: Types) -> Function:
    return methodcaller("reshape", outs[0].shape)


@primitive("transpose", view=True)
def _transpose(params: Params, ins: Types, outs: Types) -> Function:
    return methodcaller("transpose", params["permutation"])


@primitive("broadcast_in_dim", view=True)
def _broadcast_in_dim(params: Params, ins: Types, outs: Types) -> Unary:
    """A view with strides of zero, made by `np.ndarray`, since `np.broadcast_to` takes six times as long."""
    shape, dtype = outs[0]
    dims = params["broadcast_dimensions"]
    sizes, strides = [1] * len(shape), [0] * len(shape)
    stride = dtype.itemsize
    for size, dim in zip(reversed(ins[0].shape), reversed(dims), strict=True):
        sizes[dim], strides[dim] = size, stride if size == shape[dim] else 0
        stride *= size
    if tuple(sizes) == shape:
        return methodcaller("reshape", shape)
    if 0 in shape:
        return lambda x: np.empty(shape, dtype)

    def broadcast(x: Array) -> Array:
        return np.ndarray(shape, dtype, x if x.flags.c_contiguous else x.copy(), 0, strides)

    return broadcast


@primitive("rev", view=True)
def _rev(params: Params, ins: Types, outs: Types) -> Function:
    backwards = slice(None, None, -1)
    return itemgetter(
        (*[backwards if d in params["dimensions"] else slice(None) for d in range(len(ins[0].shape))], ...)
    )


@primitive("slice", view=True)
def _slice(params: Params, ins: Types, outs: Types) -> Function:
    starts, limits = params["start_indices"], params["limit_indices"]
    strides = params["strides"] or (1,) * len(starts)
    return itemgetter((*map(slice, starts, limits, strides), ...))


def _each(keys: Sequence[tuple[slice | int | EllipsisType, ...]]) -> Unary:
    """A function that returns the parts of an array at these keys, as a sequence."""
    return itemgetter(*keys) if len(keys) > 1 else lambda x: [x[key] for key in keys]


@primitive("split", view=True)
def _split(params: Params, ins: Types, outs: Types) -> Function:
    ends = np.cumsum(params["sizes"]).tolist()
    before = (slice(None),) * params["axis"]
    return _each([(*before, slice(end - size, end)) for size, end in zip(params["sizes"], ends, strict=True)])


@primitive("unstack", view=True)
def _unstack(params: Params, ins: Types, outs: Types) -> Function:
    before = (slice(None),) * params["axis"]
    return _each([(*before, at, ...) for at in range(len(outs))])


@primitive("concatenate")
def _concatenate(params: Params, ins: Types, outs: Types) -> Function:
    dim = params["dimension"]
    return lambda *xs: np.concatenate(xs, dim)


@primitive("stack")
def _stack(params: Params, ins: Types, outs: Types) -> Function:
    axis = params["axis"]
    expand = methodcaller("reshape", (*outs[0].shape[:axis], 1, *outs[0].shape[axis + 1 :]))
    return lambda *xs: np.concatenate([expand(x) for x in xs], axis)


@primitive("tile")
def _tile(params: Params, ins: Types, outs: Types) -> Function:
    return partial(np.tile, reps=params["reps"])


@primitive("iota", view=True)
def _iota(params: Params, ins: Types, outs: Types) -> Function:
    shape, dtype = outs[0]
    dim: int = params["dimension"]
    counted = np.arange(shape[dim]).astype(dtype)
    return lambda: np.broadcast_to(counted.reshape([-1 if d == dim else 1 for d in range(len(shape))]), shape)


@primitive("empty", "empty2")
def _empty(params: Params, ins: Types, outs: Types) -> Function:
    return partial(np.zeros, *outs[0])


@primitive("pad")
def _pad(params: Params, ins: Types, outs: Types) -> Function:
    """An array of padding, into which the elements that remain are written; negative padding removes some."""
    shape = outs[0].shape
    placed = [
        _placed(size, wanted, low, inside)
        for size, wanted, (low, _, inside) in zip(ins[0].shape, shape, params["padding_config"], strict=True)
    ]
    source, places = tuple(t for t, _ in placed), tuple(p for _, p in placed)

    def pad(x: Array, value: Array) -> Array:
        result = np.full_like(x, value, order="C", shape=shape)
        result[places] = x[source]
        return result

    return pad


def _placed(size: int, wanted: int, low: int, inside: int) -> tuple[slice, slice]:
    """The elements of a dim of `size` that remain when it is padded to `wanted`, and their positions after that."""
    step = inside + 1
    first = max(0, -(low // step)) if low < 0 else 0
    end = min(size, max(first, -((low - wanted) // step)))
    start = low + first * step
    return slice(first, end), slice(start, start + max(0, (end - first - 1) * step + 1) if end > first else start, step)
