"""Parts of a tensor at one position after another: `for x in tensor`, `unbind`, and slices of what is in memory."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from weft._base.state import ambient
from weft._dispatch import apply
from weft._lazy.aval import Aval
from weft._lazy.call import ONE
from weft._lazy.infer import Call, call_of
from weft._lazy.value import Value, tick
from weft._tensor.base import Alias, Path
from weft._tensor.overriding import is_overriding
from weft._tensor.scalar import number
from weft._tensor.tensor import Tensor, operand, wrap
from weft._tensor.view import attach, make_view
from weft.errors import ArgumentError
from weft.ops._table import TABLE


def iterate(x: Tensor) -> Iterator[Tensor]:
    """Go through the slices along the first dim. Each is made when it is its turn."""
    if not x.dim():
        raise ArgumentError("iteration over a 0-d tensor")
    if ambient().overrides.mode is not None or is_overriding(type(x)):
        return iter(x.unbind(0))
    return slices_along(x, 0, len(x))


def slices_along(x: Tensor, dim: int, count: int) -> Iterator[Tensor]:
    """The views of the first `count` slices along a dim, which is not negative, without that dim."""
    call = call_of(TABLE["select"], (ONE, dim, ONE))
    return (_slice_at(x, call, at) for at in range(count))


def first_slice_at(x: Tensor, at: int) -> Tensor:
    """The view `x[at]`, for a position that is within bounds and not negative."""
    return _slice_at(x, _ALONG_FIRST, at)


_ALONG_FIRST = call_of(TABLE["select"], (ONE, 0, ONE))


def _slice_at(x: Tensor, call: Call, at: int) -> Tensor:
    source = operand(x)
    value = _part_in_memory(call, source, _POSITION, (at,))
    if value is None or x._alias is not None or value.aval.inference is not source.aval.inference:
        index = number(at)
        return make_view(wrap(value or apply(call, (source, index))[0]), x, call, (index,))
    return attach(wrap(value), _SliceAlias(x, call, at, ambient().grad and call.op.derivative.exists))


class _SliceAlias(Alias):
    """The relation of the slice at one position to its base. Its step is made when it is asked for.

    Most slices of a loop are only read, and what the collector has to look through is half of what they cost.
    """

    __slots__ = ("_at", "_call", "_steps")

    def __init__(self, base: Tensor, call: Call, at: int, tracked: bool) -> None:
        self._call = call
        self._at = at
        self._steps: Path | None = None
        self.base = base
        self.tracked = tracked
        self.hidden = False
        self.place = None
        self.layout = None

    @property
    def steps(self) -> Path:
        if self._steps is None:
            self._steps = ((self._call, (number(self._at),)),)
        return self._steps


_POSITION = (number(0).aval,)


def shown_in_memory(call: Call, source: Value, others: tuple[Value, ...]) -> Value | None:
    """The result of a view row as a leaf that shows a part of its input's NumPy array, or None.

    A program that reads elements one by one then records and computes nothing. It takes an array on the host, no
    gradient, and nobody who is told of what is recorded.
    """
    for x in others:
        if not x.aval.weak:  # a tensor, which may not be computed yet
            return None
    return _part_in_memory(call, source, tuple([x.aval for x in others]), [x.number for x in others])


def _part_in_memory(call: Call, source: Value, avals: tuple[Aval, ...], numbers: Sequence[object]) -> Value | None:
    aval = source.aval
    if call.op.host is None or source.role is not None or aval.owner is not None:
        return None
    array = source.on_host
    if array is None:
        return None
    signature = call.signatures.get((aval, *avals))
    if signature is None or signature.execution.host is None:
        return None
    state = ambient()
    pending = state.pending
    if state.watched or state.inference or pending.limit != pending.room:
        return None
    value = Value(signature.outputs[0].aval, signature.execution.host(array, *numbers))
    value.time = tick()
    return value
