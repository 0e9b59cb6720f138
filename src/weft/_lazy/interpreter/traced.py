"""What NumPy's functions do to probes: each as steps of the machine that compute the same to the last bit."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from weft._base.types import Arg
from weft._lazy.interpreter.layout import Shape
from weft._lazy.interpreter.probe import FUNCTIONS, Probe, Tracing
from weft._lazy.interpreter.table import Opaque


def _traces(function: Arg) -> Callable[[Callable[..., Arg]], Callable[..., Arg]]:
    """Enter the decorated function, which is given the tracing first, for a function of NumPy's."""

    def enter(trace: Callable[..., Arg]) -> Callable[..., Arg]:
        FUNCTIONS[function] = trace
        return trace

    return enter


FUNCTIONS[np.where] = Tracing.select


# --- new arrays -----------------------------------------------------------------------------------------------


@_traces(np.concatenate)
def _concatenate(tracing: Tracing, arrays: Sequence[Arg], axis: int = 0) -> Probe:
    """Copies into the parts of a new array."""
    first = arrays[0]
    if not all(isinstance(x, Probe) and x.dtype == first.dtype for x in arrays):
        raise Opaque("concatenate")
    total = sum([x.shape[axis] for x in arrays])
    result = tracing.new((*first.shape[:axis], total, *first.shape[axis + 1 :]), first.dtype)
    start = 0
    for x in arrays:
        end = start + x.shape[axis]
        if end > start:
            tracing.copy(x, result[(*[slice(None)] * axis, slice(start, end))])
        start = end
    return result


@_traces(np.tile)
def _tile(tracing: Tracing, x: Probe, reps: Shape) -> Probe:
    """A copy into a new array whose dims are split: (times, size, times, size, …)."""
    if len(reps) != x.ndim:
        raise Opaque("tile")
    result = tracing.new(tuple([times * size for times, size in zip(reps, x.shape, strict=True)]), x.dtype)
    if result.size:
        split = result.reshape([n for times, size in zip(reps, x.shape, strict=True) for n in (times, size)])
        tracing.copy(x.reshape([n for size in x.shape for n in (1, size)]), split)
    return result


@_traces(np.empty_like)
def _empty_like(
    tracing: Tracing, like: Probe, dtype: Arg = None, order: str = "K", shape: Shape | None = None
) -> Probe:
    return tracing.new(like.shape if shape is None else shape, like.dtype if dtype is None else np.dtype(dtype))


@_traces(np.full_like)
def _full_like(tracing: Tracing, like: Probe, value: Arg, order: str = "K", shape: Shape | None = None) -> Probe:
    result = _empty_like(tracing, like, None, order, shape)
    result[...] = value
    return result


@_traces(np.zeros_like)
def _zeros_like(tracing: Tracing, like: Probe) -> Probe:
    return _full_like(tracing, like, 0)


# --- lines ----------------------------------------------------------------------------------------------------


@_traces(np.argmax)
def _argmax(tracing: Tracing, x: Probe, axis: int) -> Probe:
    return tracing.search(x, axis, largest=True)


@_traces(np.argmin)
def _argmin(tracing: Tracing, x: Probe, axis: int) -> Probe:
    return tracing.search(x, axis, largest=False)


@_traces(np.sort)
def _sort(tracing: Tracing, x: Probe, axis: int, kind: str) -> Probe:
    if kind != "stable":
        raise Opaque("sort")
    return tracing.sort(x, axis, positions=False)


@_traces(np.take_along_axis)
def _take_along_axis(tracing: Tracing, x: Probe, positions: Probe, axis: int) -> Probe:
    return x.take_along(positions, axis)


# --- views ----------------------------------------------------------------------------------------------------


@_traces(np.moveaxis)
def _moveaxis(tracing: Tracing, x: Probe, source: int, target: int) -> Probe:
    return x.register_of(np.moveaxis(x.shadow, source, target))


@_traces(np.broadcast_to)
def _broadcast_to(tracing: Tracing, x: Probe, shape: Shape) -> Probe:
    return x.register_of(np.broadcast_to(x.shadow, shape))


@_traces(sliding_window_view)
def _windows(tracing: Tracing, x: Probe, sizes: Shape, axes: Shape) -> Probe:
    return x.register_of(sliding_window_view(x.shadow, sizes, axes))


@_traces(np.real)
def _real(tracing: Tracing, x: Probe) -> Probe:
    return x.real


@_traces(np.imag)
def _imag(tracing: Tracing, x: Probe) -> Probe:
    return x.imag
