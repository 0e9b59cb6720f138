"""Reductions over dims, and cumulative reductions along a dim."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from math import prod

import numpy as np

from weft._base.types import Kwargs
from weft._lazy.interpreter.evaluate import interpreted
from weft._lazy.interpreter.table import Array, Bind, Function, Params, Types, Unary, computed_in, primitive, wide


def lowest(dtype: np.dtype) -> object:
    """The smallest value of an element type."""
    return -np.inf if dtype.kind == "f" else False if dtype.kind == "b" else np.iinfo(dtype).min


def highest(dtype: np.dtype) -> object:
    """The largest value of an element type."""
    return np.inf if dtype.kind == "f" else True if dtype.kind == "b" else np.iinfo(dtype).max


def _reduces(function: np.ufunc, of_bools: np.ufunc | None, start: Callable[[np.dtype], object]) -> Bind:
    """Bind reductions by a function, or another for bools if given; `start(dtype)` is the result for no elements."""

    def bind(params: Params, ins: Types, outs: Types) -> Unary:
        shape, dtype = ins[0]
        axes: tuple[int, ...] = tuple(params["axes"])
        inner = computed_in(dtype)
        reduce = (of_bools if of_bools is not None and dtype.kind == "b" else function).reduce
        options: Kwargs = {"axis": axes, "dtype": inner}
        if not prod(shape[axis] for axis in axes):
            options["initial"] = start(inner)
        if inner == dtype:
            return partial(reduce, **options)
        return lambda x: reduce(wide(x), **options).astype(dtype)

    return bind


primitive("reduce_sum")(_reduces(np.add, None, lambda _: 0))
primitive("reduce_prod")(_reduces(np.multiply, None, lambda _: 1))
primitive("reduce_max")(_reduces(np.maximum, np.logical_or, lowest))
primitive("reduce_min")(_reduces(np.minimum, np.logical_and, highest))
primitive("reduce_and")(_reduces(np.bitwise_and, np.logical_and, lambda dtype: np.invert(np.zeros((), dtype))))
primitive("reduce_or")(_reduces(np.bitwise_or, np.logical_or, lambda _: 0))
primitive("reduce_xor")(_reduces(np.bitwise_xor, np.logical_xor, lambda _: 0))


def _finds(function: Function) -> Bind:
    def bind(params: Params, ins: Types, outs: Types) -> Unary:
        (axis,), dtype = params["axes"], outs[0].dtype
        return lambda x: function(wide(x), axis).astype(dtype)

    return bind


primitive("argmax")(_finds(np.argmax))
primitive("argmin")(_finds(np.argmin))


def _runs(accumulate: Function) -> Bind:
    """Bind cumulative reductions, from the first element or from the last."""

    def bind(params: Params, ins: Types, outs: Types) -> Unary:
        dtype, axis = ins[0].dtype, params["axis"]
        inner = computed_in(dtype)
        backwards = (*[slice(None)] * axis, slice(None, None, -1))

        def run(x: Array) -> Array:
            return accumulate(wide(x), axis=axis, dtype=inner).astype(dtype, copy=False)

        return (lambda x: run(x[backwards])[backwards]) if params["reverse"] else run

    return bind


for _name, _function in {
    "cumsum": np.add,
    "cumprod": np.multiply,
    "cummax": np.maximum,
    "cummin": np.minimum,
}.items():
    primitive(_name)(_runs(_function.accumulate))


def _add_logarithms(x: Array, axis: int, dtype: np.dtype) -> Array:
    """Cumulative logarithms of sums of exponentials."""
    if dtype.kind != "c":
        return np.logaddexp.accumulate(x, axis, dtype)
    result = np.moveaxis(x.copy(), axis, 0)
    for at in range(1, len(result)):  # by number, as the elements of a vector are no arrays that can be written to
        before, here = result[at - 1], result[at]
        most = np.maximum(before.real, here.real)
        result[at] = np.log(np.exp(before - most) + np.exp(here - most)) + most
    return np.moveaxis(result, 0, axis)


primitive("cumlogsumexp")(_runs(_add_logarithms))


@primitive("reduce")
def _reduce(params: Params, ins: Types, outs: Types) -> Function:
    """Reduction by any jaxpr, applied to one element after another."""
    count = len(ins) // 2
    step = interpreted(params["jaxpr"]).run
    dims = tuple(params["dimensions"])
    kept = [d for d in range(len(ins[0].shape)) if d not in dims]
    shape = tuple(ins[0].shape[d] for d in kept)

    def reduce(*arrays: Array) -> list[Array]:
        rows = [x.transpose(*dims, *kept).reshape(-1, *shape) for x in arrays[:count]]
        results = [np.broadcast_to(start, shape) for start in arrays[count:]]
        for at in range(len(rows[0])):
            results = step([*results, *[row[at, ...] for row in rows]])
        return [np.array(result) for result in results]

    return reduce
