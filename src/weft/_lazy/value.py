"""Values: the results of operators, pending or computed, and the checks that they depend on."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from itertools import count
from operator import attrgetter
from typing import Any

from weft._base.dtype import bool_
from weft._base.site import user_site
from weft._base.state import Ambient
from weft._lazy.aval import Aval, aval_of
from weft._lazy.precondition import ErrorTemplate
from weft._lazy.signature import Output, Signature
from weft._lazy.tape import NodeHooks, Tape
from weft.errors import NoDataError, WeftError


class ExecutedTape(Tape):
    """The tape of a value whose application a backward pass has executed: the links of the graph, without arrays.

    inputs   for each input its tape, `OUTSIDE`, or the value if the pass has not reached it
    """

    __slots__ = ("inputs", "origin", "time")
    leaf = False  # the same for all, so no slots
    freed = True
    release = None
    origin: Output | None
    inputs: tuple[Any, ...]
    time: int


class Shared(tuple["Value", ...]):
    """Inputs of an application with several outputs, which a backward pass may reach at different times.

    links   what the first pass that executes it leaves of the inputs
    spent   as in `Tape`
    node    what users have attached to the application
    key     identifies the application, once somebody has asked: the number of one of its outputs
    """

    links: Shared | None = None
    spent = False
    node: NodeHooks | None = None
    key: int | None = None


tick = count(1).__next__
"""The number of the next recording."""


class Value:
    """One output of one recorded application, or a leaf that holds an array.

    origin   the output of a signature that makes it; None for a leaf
    inputs   values that the application reads, until nobody needs them; outputs of one application share the tuple
    array    None while not computed; a `jax.Array`; a NumPy array that is still to go to its device; a Python
             number where `aval.weak`; the `Ticket` of the flush that is computing it; an `Unconfirmed` array; or
             `Absent` where the array was released
    tape     None when no gradient flows through it
    extras   outputs of the same application that only the derivative reads; or, for an imported buffer, its owner
    num      scratch of the flush that is being planned
    time     number of the recording; whatever uses a value was recorded after it
    doubt    the `Doubt` about the application's inputs, set only where `signature.doubtful`; or None
    """

    __slots__ = ("__weakref__", "array", "aval", "doubt", "extras", "inputs", "num", "origin", "tape", "time")
    origin: Output | None
    inputs: tuple[Value, ...]
    aval: Aval
    array: Any
    tape: Tape | None
    extras: Any
    num: int
    doubt: Doubt | None
    time: int

    def __init__(self, aval: Aval, array: Any, *, owner: Any = None) -> None:
        """Make a leaf."""
        self.origin = None
        self.inputs = ()
        self.aval = aval
        self.array = array
        self.tape = None
        self.extras = owner
        self.num = -1
        self.time = 0

    def __repr__(self) -> str:
        state = "leaf" if self.origin is None else self.origin.signature.name
        return f"<{state} {self.aval}{'' if self.array is not None else ' pending'}>"


def is_taped(value: Value) -> bool:
    """Whether a backward pass may still execute the application of a value."""
    tape, inputs = value.tape, value.inputs
    return not (tape is None or tape.leaf or tape.freed) and not (type(inputs) is Shared and inputs.spent)


OUTSIDE = Value(aval_of((), bool_), False)
"""Takes the place of inputs without a gradient in the graph that a backward pass leaves."""


_new = object.__new__


def recorded(origin: Output, inputs: tuple[Value, ...], ambient: Ambient) -> Value:
    """A pending value: one output of an application, appended to the list of pending values.

    `_tensor/fast_path.py` has the same statements inlined; a test compares the two.
    """
    value = _new(Value)
    value.origin = origin
    value.inputs = inputs
    value.aval = origin.aval
    value.array = None
    value.extras = None
    value.num = -1
    value.time = tick()
    value.tape = None
    if ambient.grad:
        for x in inputs:
            if x.tape is not None:
                value.tape = origin.taped
                break
    ambient.pending.append(value)
    return value


def inputs_first(
    value: Value,
    enters: Callable[[Value], bool],
    expands: Callable[[Value], bool],
    inputs_of: Callable[[Value], Sequence[Value]] = attrgetter("inputs"),
) -> list[Value]:
    """`value` and its ancestors where `enters(value)`, inputs first; inputs are followed where `expands(value)`."""
    order: list[Value] = []
    seen: set[int] = set()
    stack: list[tuple[Value, bool]] = [(value, False)]
    while stack:
        here, ready = stack.pop()
        if ready:
            order.append(here)
        elif id(here) not in seen and enters(here):
            seen.add(id(here))
            stack.append((here, True))
            if expands(here):
                stack.extend((x, False) for x in reversed(inputs_of(here)))
    return order


class Check:
    """A recorded check.

    code      the value of its codes, one int64 for each template; None once they are known
    passed    whether the call itself has checked, so that the codes need not be read
    failure   the failure that they report, or None
    reported  whether that was raised
    doubt     a weak reference to the `Doubt` of the application's values; dead when no such value exists any more
    """

    __slots__ = ("code", "doubt", "failure", "passed", "reported", "signature", "site")

    def __init__(self, code: Value, signature: Signature, *, passed: bool) -> None:
        self.code: Value | None = code
        self.passed = passed
        self.failure: tuple[ErrorTemplate, int] | None = None
        self.reported = False
        self.signature = signature
        self.site = user_site()
        self.doubt: weakref.ref[Doubt] | None = None

    def set_codes(self, codes: Sequence[int]) -> None:
        """Store the codes, now that they are computed."""
        self.failure = first_failure(self.signature, codes)
        self.code = None

    def error(self, *, at_the_call: bool = False) -> WeftError:
        """The exception of a failed check; unless raised at the call, its text begins with the call's line."""
        assert self.failure is not None, "only called where there is one"
        self.reported = True
        return error_of(self.signature, self.failure, "" if at_the_call else f"{self.site}: ")


class Doubt:
    """Referred to by the values that are invalid if its check fails."""

    __slots__ = ("__weakref__", "check")

    def __init__(self, check: Check) -> None:
        self.check = check


class Absent:
    """Takes the place of an array that its owner has released; `wait()` puts the array back.

    A program that reads the value calls it, and so does whoever reads the elements. So memory can be freed between a
    forward pass and the backward pass that needs it again.
    """

    __slots__ = ("wait",)

    def __init__(self, wait: Callable[[], None]) -> None:
        self.wait = wait


def _refuse() -> None:
    raise NoDataError(
        "Cannot copy out of meta tensor; no data! A tensor on the meta device has a shape and a type, and no elements. "
        "Modules are moved from there with module.to_empty(device=...), or by load_state_dict(..., assign=True)"
    )


NO_DATA = Absent(_refuse)
"""In place of the arrays of all tensors on the meta device."""


class Unconfirmed:
    """Takes the place of an array that is invalid if one of several checks fails."""

    __slots__ = ("array", "doubts")

    def __init__(self, array: Any, doubts: tuple[Doubt, ...]) -> None:
        self.array = array
        self.doubts = doubts


def first_failure(signature: Signature, codes: Sequence[int]) -> tuple[ErrorTemplate, int] | None:
    precondition = signature.precondition
    assert precondition is not None, "what is checked has one"
    return next(((c, code) for c, code in zip(precondition.templates, codes, strict=True) if code), None)


def error_of(signature: Signature, failure: tuple[ErrorTemplate, int], lead: str) -> WeftError:
    template, code = failure
    types = ", ".join(map(repr, signature.avals))
    return template.error(f"{lead}{template.text(code)} (inputs {types})")
