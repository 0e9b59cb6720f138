"""Parts of a tensor at one position after another: `for x in tensor`, `unbind`, and slices of what is in memory."""

from __future__ import annotations

from collections.abc import Iterator

from weft._base.state import ambient
from weft._dispatch import apply
from weft._lazy.call import ONE
from weft._lazy.infer import Call, call_of
from weft._lazy.native import native
from weft._lazy.value import Value, tick
from weft._tensor.overriding import is_dispatching, is_overriding
from weft._tensor.scalar import number
from weft._tensor.tensor import Tensor, operand, wrap
from weft._tensor.view import make_view
from weft.errors import ArgumentError
from weft.ops._table import TABLE


def iterate(x: Tensor) -> Iterator[Tensor]:
    """Go through the slices along the first dim. Each is made when it is its turn."""
    if native is not None and (rows := native.iterate(x)) is not None:
        return rows
    if not x.dim():
        raise ArgumentError("iteration over a 0-d tensor")
    if ambient().overrides.is_by_modes or is_overriding(type(x)) or is_dispatching(type(x)):
        return iter(x.unbind(0))
    return slices(x, 0, len(x))


def _slices(x: Tensor, dim: int, count: int) -> Iterator[Tensor]:
    """The views of the first `count` slices along a dim, which is not negative, without that dim."""
    return (slice_at(x, dim, at) for at in range(count))


def slice_at(x: Tensor, dim: int, at: int) -> Tensor:
    """The view at a position along a dim, without that dim; both are within bounds and not negative."""
    call = call_of(TABLE["select"], (ONE, dim, ONE))
    source, index = operand(x), number(at)
    value = shown_in_memory(call, source, (index,)) or apply(call, (source, index))[0]
    return make_view(wrap(value), x, call, (index,))


slices = _slices
"""`_slices`, or its twin in the extension."""
if native is not None:
    native.bind(slice_at=slice_at)
    slices = native.slices


def shown_in_memory(call: Call, source: Value, others: tuple[Value, ...]) -> Value | None:
    """The result of a view row as a leaf that shows a part of its input's NumPy array, or None.

    A program that reads elements one by one then records and computes nothing. It takes an array on the host, no
    gradient, and nobody who is told of what is recorded.
    """
    aval = source.aval
    if call.op.host is None or source.role is not None or aval.owner is not None:
        return None
    array = source.on_host
    if array is None:
        return None
    for x in others:
        if not x.aval.weak:  # a tensor, which may not be computed yet
            return None
    signature = call.signatures.get((aval, *[x.aval for x in others]))
    if signature is None or signature.execution.host is None:
        return None
    state = ambient()
    pending = state.pending
    if state.watched or state.inference or pending.limit != pending.room:
        return None
    value = Value(signature.outputs[0].aval, signature.execution.host(array, *[x.number for x in others]))
    value.time = tick()
    return value
