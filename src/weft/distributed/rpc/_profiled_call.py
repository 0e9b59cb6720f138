"""The calls that a profile follows: what their functions do is noted where they run, and comes with the answers."""

from __future__ import annotations

import secrets
from itertools import count
from time import perf_counter_ns
from weakref import WeakValueDictionary

from weft._base.own_names import own_form
from weft._base.timeline import Exchange, Listeners, tell_exchange
from weft._base.types import AnyCallable, Result
from weft.distributed import rpc
from weft.distributed.rpc._service import Method
from weft.distributed.rpc._workers import WorkerInfo
from weft.distributed.rpc.internal import RPCExecMode, profiling_key
from weft.ops._table import TABLE

_numbers = count(secrets.randbits(63))  # an error can come to other workers than the caller
_calls: WeakValueDictionary[int, Exchange] = WeakValueDictionary()  # profiles keep them


class ProfiledResult:
    """A result, or the text of an error, with the events that a profile has noted of the function.

    The caller unpickles the result or text alone.
    """

    def __init__(self, value: object, number: int, events: list[Result]) -> None:
        self.value, self.number, self.events = value, number, events

    def without_value(self) -> ProfiledResult:
        """The events alone, where the value stays."""
        return ProfiledResult(None, self.number, self.events)

    def __reduce__(self) -> tuple[object, ...]:
        return _arrived, (self.value, self.number, self.events)


def _arrived(value: object, number: int, events: list[Result]) -> Result:
    """The result of a call; its events are noted."""
    call = _calls.get(number)
    if call is not None:
        call.end, call.events = perf_counter_ns(), events
    return value


def profiled(me: WorkerInfo, to: WorkerInfo, function: AnyCallable, mode: RPCExecMode) -> AnyCallable:
    """The function that is called instead of this one: itself, unless a profile of this process follows calls."""
    only_looks = getattr(function, "test_only", False)  # whether a value has a method: no call of the program
    if only_looks or not Listeners.of_exchanges:
        return function
    number, name = next(_numbers), profiling_key(mode, _name_of(function), me.name, to.name)
    _calls[number] = tell_exchange(Exchange(name, caller=me.id, worker=to.id))
    return rpc._ProfiledFunction(function, number)


def _name_of(function: AnyCallable) -> str:
    if isinstance(function, Method):
        return function.name
    name = getattr(function, "__qualname__", type(function).__qualname__)
    is_operator = own_form(getattr(function, "__module__", None) or "") == "weft" and name in TABLE
    return f"aten::{name}" if is_operator else name
