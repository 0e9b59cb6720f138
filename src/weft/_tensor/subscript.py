"""`x[index]` and `x[index] = values`."""

from __future__ import annotations

from typing import Any

import numpy as np

from weft._base.dtype import bool_
from weft._base.state import ambient
from weft._tensor.alias import owner_of
from weft._tensor.convert import from_host, tensor
from weft._tensor.foreign import kind_of, way_in
from weft._tensor.indexing import Plan, normalise_index
from weft._tensor.scalar import fitting
from weft._tensor.spelling import op
from weft._tensor.tensor import Tensor
from weft._tensor.view import check_overlap, check_writable, write
from weft.errors import ArgumentError


def _make(item: Any) -> Tensor:
    return item if isinstance(item, Tensor) else tensor(item)


def nonzero_dims(mask: Tensor) -> tuple[Tensor, ...]:
    """For each dim of a tensor, the coordinates of its nonzero elements. Waits for the elements: their number is
    the size of the result."""
    return tuple(from_host(found.astype(np.int64), mask.device) for found in np.nonzero(mask.detach()._host()))


def _plan(x: Tensor, index: Any) -> Plan:
    return normalise_index(index, x.shape, _make, nonzero_dims)


def _walked(x: Tensor, plan: Plan) -> Tensor:
    for step in plan.steps:
        x = getattr(op, step.row)(x, **step.static, **step.scalars)
    return x


def getitem(x: Tensor, index: Any) -> Tensor:
    """A view for numbers, slices, `...` and None; a new tensor where tensors or lists take part."""
    if type(index) is int:  # the most common one; what is out of range, the plan refuses
        sizes = x._read().aval.shape
        if sizes and -sizes[0] <= index < sizes[0]:
            return op.select(x, 0, index % sizes[0])
    plan = _plan(x, index)
    found = _walked(x, plan)
    if plan.indices:
        return op.index(found, indices=plan.indices, spec=plan.spec)
    return found if plan.steps else op.alias(x)


def setitem(x: Tensor, index: Any, values: Any) -> None:
    """Write `values`, a tensor or a number that broadcasts to what the index selects."""
    if not isinstance(values, (Tensor, int, float, complex, np.generic)):
        if not isinstance(values, (np.ndarray, list, tuple)):
            raise ArgumentError(f"can't assign a {kind_of(values)} to a {x.dtype} tensor{way_in(values)}")
        values = tensor(values)
    if isinstance(index, Tensor) and index.dtype is bool_ and index.shape == x.shape and _is_single(values):
        write(x, op.masked_fill(x, index, values)._read())
        return
    plan = _plan(x, index)
    target = _walked(x, plan)
    if not plan.indices:
        if values is target:
            check_writable(x, ambient().grad)
            return
        write(target, _filled(target, values)._read())
        return
    source = values if isinstance(values, Tensor) else tensor(fitting(values, x.dtype), dtype=x.dtype, device=x.device)
    if source.dtype is not x.dtype:
        source = source.to(x.dtype)  # pyright: ignore[reportAttributeAccessIssue]  attached by `assemble`
    while source.ndim and source.shape[0] == 1:  # PyTorch drops leading ones here
        source = op.squeeze(source, 0)
    write(target, op.index_put(target, indices=plan.indices, values=source, spec=plan.spec)._read())


def _is_single(values: Any) -> bool:
    return not isinstance(values, Tensor) or values.ndim == 0


def _filled(target: Tensor, values: Any) -> Tensor:
    if not isinstance(values, Tensor):
        return op.fill(target, values)
    lead = values.ndim - target.ndim
    if lead > 0 and all(size == 1 for size in values.shape[:lead]):  # PyTorch drops leading ones here
        values = op.squeeze(values, tuple(range(lead)))
    source = values
    if owner_of(source) is owner_of(target):
        source = op.expand(source, target.shape)  # overlap is judged side by side
    check_overlap(target, [source])
    return op.copy(target, values)
