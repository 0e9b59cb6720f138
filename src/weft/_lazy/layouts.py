"""The layout of a view operator's result: where its elements lie."""

from __future__ import annotations

from math import nan

import numpy as np

from weft._base.guards import is_tuple
from weft._base.state import ambient
from weft._base.types import Arg
from weft._lazy.call import Exact
from weft._lazy.infer import Call
from weft._lazy.value import Value
from weft.ops._dims import wrap_dim
from weft.ops._kinds import Kind, Many, Scalar
from weft.ops._strides import Layout


def layout_after(layout: Layout, call: Call, others: tuple[Value, ...], *, exact: bool = False) -> Layout | None:
    """The layout of a view operator's result, or None for a copy; raises for what PyTorch refuses."""
    rest = iter(others)
    ndim = len(layout.sizes)
    params: list[Arg] = []
    entries: tuple[Arg, ...] = call.static[1:]
    for param, entry in zip(call.op.params[1:], entries, strict=True):
        if isinstance(entry, Many):
            params.append(_number(next(rest), exact))
        elif param.kind is Kind.DIM:
            params.append(wrap_dim(entry, ndim))
        elif param.kind is Kind.DIMS and entry is not None:
            dims = entry if is_tuple(entry) else (entry,)
            params.append(tuple(wrap_dim(d, ndim) for d in dims))
        else:
            params.append(entry.value if isinstance(entry, Exact) else entry)
    assert call.op.view is not None, "only view operators are in paths"
    return call.op.view.layout(layout, *params)


def _number(value: Value, exact: bool) -> Scalar:
    if value.aval.weak:
        return value.number
    if not exact:
        return nan
    capture = ambient().capture
    if capture is not None:
        capture.needs_elements(value)
    return int(np.asarray(value.read()))
