"""Values: the results of operators, pending or computed, and the checks that they depend on."""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable, Sequence
from itertools import count
from operator import attrgetter
from typing import Any, TypeAlias

import numpy as np
from jax.core import Tracer

from weft._base.dtype import bool_
from weft._base.site import user_site
from weft._base.state import Ambient, ambient
from weft._base.timeline import Phase, spanned
from weft._base.types import AnyArray, Arg
from weft._lazy.aval import Aval, aval_of
from weft._lazy.native import native
from weft._lazy.precondition import ErrorTemplate
from weft._lazy.role import Freed, Interior, NodeHooks, Role
from weft._lazy.signature import Output, Signature
from weft.errors import NoDataError, WeftError
from weft.ops._kinds import Scalar

Link: TypeAlias = Any
"""An input of a vertex: a value, or after a pass what it has left in its place. Both have a role, and all but leaves
have a number; telling them apart for a type checker would cost the backward pass a test for each input."""


class Executed(Freed):
    """The role of a value whose application a backward pass has executed: the links of the graph, without arrays.

    inputs   for each input its role, `OUTSIDE`, or the value if the pass has not reached it
    """

    __slots__ = ("inputs", "origin", "spent", "time")
    release = None  # called already; the same for all, so no slot
    origin: Output | None
    inputs: tuple[Link, ...]
    spent: bool
    time: int


class Shared(tuple["Value", ...]):
    """Inputs of an application with several outputs, which a backward pass may reach at different times.

    links   what the first pass that executes it leaves of the inputs
    spent   as in `Freed`
    node    what users have attached to the application
    key     identifies the application, once somebody has asked: the number of one of its outputs
    """

    links: Shared | None = None
    spent = False
    node: NodeHooks | None = None
    key: int | None = None


tick = count(1).__next__ if native is None else native.tick
"""The number of the next recording."""


class StandIn:
    """Takes the place of an array that a reader cannot simply have.

    array    the array that is there all the same, or None
    """

    __slots__ = ()
    array: AnyArray = None

    def wait(self, value: Value, /) -> Any:
        """Do what has to happen before the array of `value` is there; returns the array, or what stands for it then."""
        raise NotImplementedError

    def for_program(self) -> Any:
        """The array for a program that reads it, and confirms it afterwards if it is in doubt."""
        return self.array

    def shared(self) -> Any:
        """The content of another value of the same elements; None if there are none yet."""
        return None if self.array is None else self


class NotComputed(StandIn):
    """The type of `PENDING`.

    compute  computes a value with all that it depends on; set by `flushing`, which is above
    """

    __slots__ = ("compute",)
    compute: Callable[[Value], None]

    def wait(self, value: Value, /) -> Any:
        self.compute(value)
        return value.content


PENDING = NotComputed()
"""The content of all values that are recorded and that no flush has chosen to compute."""


class Computing(StandIn):
    """The content of the outputs of a program, while a flush runs it.

    calls_back   whether the program calls users' functions, which must not wait for it
    thread       the one that runs the program, by `threading.get_ident`
    """

    __slots__ = ("calls_back", "done", "process", "thread")

    def __init__(self, *, calls_back: bool = False) -> None:
        self.calls_back = calls_back
        self.process = os.getpid()
        self.thread = threading.get_ident()
        self.done = threading.Event()

    def wait(self, value: Value, /) -> Any:
        """Block until the flush has ended; within it, and in a forked process, make the value pending again.

        There, the flush waits for the function that is reading: a finalizer or a handler within it, or one that its
        program calls. So the function computes the value for itself, and the flush will store the same again.
        """
        is_mine = self.thread == threading.get_ident() or self.process != os.getpid()
        if is_mine or (self.calls_back and ambient().pending.within):
            if value.content is self:
                value.content = PENDING
        else:
            self.done.wait()
        return value.content


class Absent(StandIn):
    """The content of a value whose array is elsewhere; `fetch()` puts the array in its place, or raises.

    A program that reads the value calls it, and so does whoever reads the elements. So memory can be freed between a
    forward pass and the backward pass that needs it again.
    """

    __slots__ = ("fetch",)

    def __init__(self, fetch: Callable[[], None]) -> None:
        self.fetch = fetch

    def wait(self, value: Value, /) -> Any:
        self.fetch()
        return value.content


def _refuse() -> None:
    raise NoDataError(
        "Cannot copy out of meta tensor; no data! A tensor on the meta device has a shape and a type, and no elements. "
        "Modules are moved from there with module.to_empty(device=...), or by load_state_dict(..., assign=True)"
    )


NO_DATA = Absent(_refuse)
"""The content of all values on the meta device."""


class Doubtful(StandIn):
    """The content of a value that is invalid if one of several checks fails."""

    __slots__ = ("array", "doubts")

    def __init__(self, array: object, doubts: tuple[Doubt, ...]) -> None:
        self.array = array
        self.doubts = doubts

    def wait(self, value: Value, /) -> Any:
        """Confirm the array, or raise what the checks have found."""
        for doubt in self.doubts:
            doubt.check.confirm()
        value.content = self.array
        return self.array


class Value:
    """One output of one recorded application, or a leaf that holds an array.

    origin   the output of a signature that makes it; None for a leaf
    inputs   values that the application reads, until nobody needs them; outputs of one application share the tuple
    content  its array, or what stands in for it (below)
    role     None when no gradient flows through it
    extras   outputs of the same application that only the derivative reads
    num      scratch of the flush that is being planned
    time     number of the recording; whatever uses a value was recorded after it
    doubt    the `Doubt` about the application's inputs, set only where `signature.requirement`; or None
    owner    what an imported buffer belongs to, or None; set only for leaves

    Its content says in which state it is:

    | state         | content         | what ends it                                                     |
    |---------------|-----------------|------------------------------------------------------------------|
    | pending       | `PENDING`       | a flush chooses to compute it: computing                         |
    | computing     | a `Computing`   | its program ends: in memory, or in doubt; if it fails: pending   |
    | in doubt      | a `Doubtful`    | its checks are read: in memory, unless one has failed            |
    | on the host   | a NumPy array   | somebody needs it on its device: there                           |
    | on the device | a `jax.Array`   | its owner releases it: absent                                    |
    | absent        | an `Absent`     | somebody reads it: its owner puts the array back, or raises      |
    | external      | an `External`   | nobody else refers to its memory any more: on the host           |
    | a number      | Python's number | nothing; the state of all values of a type that is weak          |

    Whoever needs the array calls `read`, which waits. Whoever only looks whether something is there asks `is_pending`,
    `available`, `on_host` or `at_hand`. Only planning looks at the content itself.
    """

    __slots__ = (
        "__weakref__",
        "aval",
        "content",
        "doubt",
        "extras",
        "inputs",
        "num",
        "origin",
        "owner",
        "role",
        "time",
    )
    origin: Output | None
    inputs: tuple[Value, ...]
    aval: Aval
    content: AnyArray
    role: Role | None
    extras: tuple[Value, ...]
    num: int
    doubt: Doubt | None
    time: int
    owner: Arg

    def __init__(self, aval: Aval, content: object = PENDING, *, owner: object = None) -> None:
        """Make a leaf; without a content, one that only stands for others, and is never computed."""
        self.origin = None
        self.inputs = ()
        self.aval = aval
        self.content = content
        self.role = None
        self.extras = ()
        self.num = -1
        self.time = 0
        self.owner = owner

    def __repr__(self) -> str:
        name = "leaf" if self.origin is None else self.origin.signature.name
        return f"<{name} {self.aval}{' pending' if self.is_pending else ''}>"

    def read(self) -> AnyArray:
        """The value's array, on the host or on its device, or its number; computed now if necessary.

        Execution is asynchronous, and not waited for, but the checks on which the value depends are; raises what they
        have found.
        """
        content = self.content
        while isinstance(content, StandIn):
            content = content.wait(self)
        return content

    def leaf(self) -> Value | None:
        """A leaf with the same array, if there is one yet."""
        content = self.content
        if isinstance(content, StandIn):
            content = content.shared()
            if content is None:
                return None
        result = Value(self.aval, content, owner=self.owner if self.origin is None else None)
        result.time = tick()
        return result

    @property
    def is_pending(self) -> bool:
        """Whether nothing computes it yet."""
        return self.content is PENDING

    @property
    def number(self) -> Scalar:
        """The number of a value whose type is weak."""
        return self.content

    @property
    def available(self) -> AnyArray:
        """The array in memory, or being computed there by XLA, even if it is in doubt; or None."""
        content = self.content
        return content.array if isinstance(content, StandIn) else content

    @property
    def on_host(self) -> np.ndarray | None:
        """The array, if it is one of NumPy's, which has not been needed on its device yet."""
        content = self.content
        return content if type(content) is np.ndarray else None

    def at_hand(self) -> np.ndarray | None:
        """The elements as a NumPy array, if they are in memory and not in doubt. Waits for XLA."""
        content = self.content
        if type(content) is np.ndarray:
            return content
        if self.aval.weak:
            return np.asarray(content, self.aval.dtype.numpy)
        return None if isinstance(content, (StandIn, Tracer)) else np.asarray(content)


if native is not None:
    native.bind(Value=Value, Shared=Shared, Executed=Executed, StandIn=StandIn, PENDING=PENDING)


def is_taped(value: Value) -> bool:
    """Whether a backward pass may still execute the application of a value."""
    role, inputs = value.role, value.inputs
    if not isinstance(role, Interior) or isinstance(role, Freed):
        return False
    return not (type(inputs) is Shared and inputs.spent)


OUTSIDE = Value(aval_of((), bool_), False)
"""Takes the place of inputs without a gradient in the graph that a backward pass leaves."""
if native is not None:
    native.bind(OUTSIDE=OUTSIDE)


_new = object.__new__


def recorded(origin: Output, inputs: tuple[Value, ...], ambient: Ambient) -> Value:
    """A pending value: one output of an application, appended to the list of pending values.

    `_tensor/fast_path.py` has the same statements inlined; a test compares what the two record.
    """
    value = _new(Value)
    value.origin = origin
    value.inputs = inputs
    value.aval = origin.aval
    value.content = PENDING
    value.extras = ()
    value.num = -1
    value.time = tick()
    value.role = None
    if ambient.grad:
        for x in inputs:
            if x.role is not None:
                value.role = origin.taped
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


class RecordedCheck:
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
        self.site = "" if passed else user_site()  # of one that fails later; it takes some microseconds
        self.doubt: weakref.ref[Doubt] | None = None

    @property
    def is_pending(self) -> bool:
        """Whether nothing computes it yet."""
        return self.code is not None and self.code.is_pending

    def confirm(self, *, at_the_call: bool = False) -> None:
        """Wait for the check; raise its failure."""
        self.wait()
        if self.failure is not None:
            raise self.error(at_the_call=at_the_call)

    @spanned(Phase.WAITING, "for a check")
    def wait(self) -> None:
        """Read the codes, once they are computed."""
        if self.code is not None:
            self.set_codes(self.code.read())

    def set_codes(self, codes: object) -> None:
        """Store the codes, now that they are computed."""
        self.failure = first_failure(self.signature, np.asarray(codes).tolist())
        self.code = None

    def error(self, *, at_the_call: bool = False) -> WeftError:
        """The exception of a failed check; unless raised at the call, its text begins with the call's line."""
        assert self.failure is not None, "only called where there is one"
        self.reported = True
        return error_of(self.signature, self.failure, "" if at_the_call else f"{self.site}: ")


class Doubt:
    """Referred to by the values that are invalid if its check fails."""

    __slots__ = ("__weakref__", "check")

    def __init__(self, check: RecordedCheck) -> None:
        self.check = check


if native is not None:
    native.bind(Doubt=Doubt, RecordedCheck=RecordedCheck)


def first_failure(signature: Signature, codes: Sequence[int]) -> tuple[ErrorTemplate, int] | None:
    precondition = signature.precondition
    assert precondition is not None, "what is checked has one"
    return next(((c, code) for c, code in zip(precondition.templates, codes, strict=True) if code), None)


def error_of(signature: Signature, failure: tuple[ErrorTemplate, int], lead: str) -> WeftError:
    template, code = failure
    types = ", ".join(map(repr, signature.avals))
    return template.error(f"{lead}{template.text(code)} (inputs {types})")
