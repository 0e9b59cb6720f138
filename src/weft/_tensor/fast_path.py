"""The common call: only tensors, no mode, and a known signature. The extension has it (`Recorder`), or inlined code.

Every other call takes the general path. One `try` distinguishes a tensor with a value from a number and from a stale
view, since neither of these has a value with a type.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING

from weft._base.overriding import Overridden
from weft._base.site import UNTIL_USER, end_at_user
from weft._base.state import peek
from weft._base.types import AnyCallable, Arg
from weft._dispatch import apply
from weft._lazy.flushing import at_limit
from weft._lazy.infer import Call
from weft._lazy.native import native
from weft._lazy.value import PENDING, Value, tick
from weft._tensor.overriding import dispatched
from weft._tensor.scalar import number
from weft._tensor.state import NO_FACTS
from weft._tensor.tensor import Results, Tensor, operand, wrap
from weft.ops._kinds import Kind
from weft.ops._table import OpDef

if TYPE_CHECKING:
    from weft._native import Recorder, ViewRecorder

_new = object.__new__
_NO_VALUE = (AttributeError, Overridden)
_NUMBERS = frozenset({bool, int, float, complex})


def unary(call: Call, general: AnyCallable) -> Callable[[Arg], Results]:
    """A function of one tensor."""
    return _unary(call, general) if native is None else _recorded_unary(native.Recorder(call, 1), general)


def binary(call: Call, general: AnyCallable, takes_number: bool) -> Callable[[Arg, Arg], Results]:
    """A function of two tensors. If `takes_number`, a call with a Python number is recorded here, too."""
    if native is None:
        return _binary(call, general, takes_number)
    return _recorded_binary(native.Recorder(call, 2, takes_number), general)


def is_learnt(op: OpDef) -> bool:
    """Whether the extension learns which arguments of a row are which call: of a view whose first alone is an input."""
    return native is not None and op.view is not None and not any(p.kind in _INPUTS for p in op.params[1:])


_INPUTS = (Kind.ARRAY, Kind.OPERAND, Kind.SCALAR, Kind.ARRAYS, Kind.KEY)


@cache
def known_views(op: OpDef) -> ViewRecorder:
    """What records calls of a view row with arguments that it has learnt."""
    assert native is not None, "only called where it is there"
    positional = [p for p in op.params[1:] if not p.keyword_only]
    return native.ViewRecorder(len(op.params) == 2 and positional[-1].kind is Kind.SHAPE)


def _recorded_unary(record: Recorder, general: AnyCallable) -> Callable[[Arg], Results]:
    def function(input: Arg, *, out: Arg = None) -> Results:
        try:
            if out is None:
                result = record(input)
                return general(input) if result is None else result
            return general(input, out=out)
        except Overridden as signal:
            return dispatched(signal)
        except UNTIL_USER as error:
            end_at_user(error)
            raise

    return function


def _recorded_binary(record: Recorder, general: AnyCallable) -> Callable[[Arg, Arg], Results]:
    def function(input: Arg, other: Arg, *, out: Arg = None) -> Results:
        try:
            if out is None:
                result = record(input, other)
                return general(input, other) if result is None else result
            return general(input, other, out=out)
        except Overridden as signal:
            return dispatched(signal)
        except UNTIL_USER as error:
            end_at_user(error)
            raise

    return function


def _unary(call: Call, general: AnyCallable) -> Callable[[Arg], Results]:
    lookup = call.signatures.get

    def function(input: Arg, *, out: Arg = None) -> Results:
        try:
            try:
                x = input._value
                signature = lookup((x.aval,))
            except _NO_VALUE:
                return general(input) if out is None else general(input, out=out)
            state = peek()
            if signature is None or state is None or not state.plain or out is not None:
                return general(input) if out is None else general(input, out=out)
            value = _new(Value)
            origin = signature.outputs[0]
            value.origin = origin
            value.inputs = (x,)
            value.aval = aval = origin.aval
            value.content = PENDING
            value.extras = ()
            value.num = -1
            value.time = tick()
            value.role = origin.taped if x.role is not None else None
            pending = state.pending
            pending.append(value)
            if len(pending) > pending.limit:
                at_limit(pending)
            result = _new(Tensor if aval.owner is None else aval.owner.tensor_type)
            result._facts = NO_FACTS
            result._value = value
            return result
        except Overridden as signal:
            return dispatched(signal)
        except UNTIL_USER as error:
            end_at_user(error)
            raise

    return function


def _binary(call: Call, general: AnyCallable, takes_number: bool) -> Callable[[Arg, Arg], Results]:
    lookup = call.signatures.get
    numbers: frozenset[type] = _NUMBERS if takes_number else frozenset()

    def function(input: Arg, other: Arg, *, out: Arg = None) -> Results:
        try:
            try:
                a = input._value
                b = other._value
                signature = lookup((a.aval, b.aval))
            except _NO_VALUE:
                if out is None and type(other) in numbers and isinstance(input, Tensor):
                    return wrap(apply(call, (operand(input), number(other)))[0])
                return general(input, other) if out is None else general(input, other, out=out)
            state = peek()
            if signature is None or state is None or not state.plain or out is not None:
                return general(input, other) if out is None else general(input, other, out=out)
            value = _new(Value)
            origin = signature.outputs[0]
            value.origin = origin
            value.inputs = (a, b)
            value.aval = aval = origin.aval
            value.content = PENDING
            value.extras = ()
            value.num = -1
            value.time = tick()
            value.role = origin.taped if a.role is not None or b.role is not None else None
            pending = state.pending
            pending.append(value)
            if len(pending) > pending.limit:
                at_limit(pending)
            result = _new(Tensor if aval.owner is None else aval.owner.tensor_type)
            result._facts = NO_FACTS
            result._value = value
            return result
        except Overridden as signal:
            return dispatched(signal)
        except UNTIL_USER as error:
            end_at_user(error)
            raise

    return function
