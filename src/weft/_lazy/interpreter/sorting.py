"""Sorting, and the largest elements."""

from __future__ import annotations

import numpy as np

from weft._lazy.interpreter.table import Array, Function, Params, Types, primitive, wide


@primitive("sort")
def _sort(params: Params, ins: Types, outs: Types) -> Function:
    """Sort all operands along a dim by the first `num_keys` ones, in a stable order; NaN comes last."""
    dim, keys = params["dimension"], params["num_keys"]
    if len(ins) == 1:
        dtype = ins[0].dtype

        def sort_one(x: Array) -> list[Array]:
            return [np.sort(wide(x), dim, "stable").astype(dtype, copy=False)]

        return sort_one

    def sort(*arrays: Array) -> list[Array]:
        by = [part for x in arrays[:keys] for part in _parts(wide(x))]
        order = np.lexsort(by[::-1], dim) if len(by) > 1 else by[0].argsort(dim, "stable")
        return [np.take_along_axis(x, order, dim) for x in arrays]

    return sort


def _parts(x: Array) -> list[Array]:
    """The arrays to sort by, in order: for complex numbers their real and imaginary parts."""
    return [np.real(x), np.imag(x)] if x.dtype.kind == "c" else [x]


@primitive("top_k")
def _top_k(params: Params, ins: Types, outs: Types) -> Function:
    """The largest elements along a dim, and their indices; NaN comes first, equal ones in the order of the indices."""
    k, ndim = params["k"], len(ins[0].shape)
    axis: int = params.get("axis", ndim - 1)
    size = ins[0].shape[axis]
    backwards = (*[slice(None)] * axis, slice(None, None, -1))
    first = (*[slice(None)] * axis, slice(k))

    def top_k(x: Array) -> list[Array]:
        order = size - 1 - wide(x)[backwards].argsort(axis, "stable")[backwards][first]
        return [np.take_along_axis(x, order, axis), order.astype(np.int32)]

    return top_k


@primitive("approx_top_k")
def _approx_top_k(params: Params, ins: Types, outs: Types) -> Function:
    """The exact result, since XLA does not approximate it on CPUs."""
    axis, count = params["reduction_dimension"] % len(ins[0].shape), outs[0].shape
    largest = _top_k({"k": count[axis], "axis": axis}, ins, outs)
    if params["is_max_k"]:
        return largest

    def smallest(x: Array) -> list[Array]:
        values, order = largest(-x)
        return [-values, order]

    return smallest
