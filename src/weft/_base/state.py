"""Ambient state: one record in one context variable, and the few process-wide defaults.

A new thread starts with the defaults and an empty list of pending values; it inherits nothing from other threads.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextvars import ContextVar, Token
from dataclasses import dataclass, field, replace
from typing import Any

from weft._base import config
from weft._base.autocast import NO_AUTOCAST, Autocast
from weft._base.cell import Cell
from weft._base.dtype import DType, float32
from weft._base.of_pytorch import way_from_pytorch
from weft._base.overriding import Overrides, raise_operator, raise_overridden
from weft._base.pending import Pending
from weft._base.site import Noting
from weft._base.types import AnyCallable, Arg, AttributeValue
from weft.errors import ArgumentError


@dataclass(frozen=True, slots=True, eq=False)
class Watchers:
    """What is done with every application that is recorded.

    anomaly    the line that recorded it is kept, and with `check_nan`, its derivative is searched for NaN
    eager      it is computed at once
    observers  are called with its values
    forward    levels, from the outermost on, that note what is recorded off the tape (`_autograd/levels.py`)
    are_there  whether anything is done
    """

    anomaly: bool = False
    check_nan: bool = True
    eager: bool = config.EAGER
    observers: tuple[Callable[[tuple[Any, ...]], object], ...] = ()
    forward: tuple[Any, ...] = ()

    are_there: bool = field(init=False)

    def __post_init__(self) -> None:
        are_there = self.anomaly or self.eager or bool(self.observers) or bool(self.forward)
        object.__setattr__(self, "are_there", are_there)


@dataclass(frozen=True, slots=True, eq=False)
class Context:
    """What blocks around a call have set, for the few that ask.

    attention   takes over `scaled_dot_product_attention`, with its arguments, as where sequences are split over
                processes
    transform   the level of the innermost function whose derivatives are taken (`func/`), which must not write to older
                tensors
    debug_info  what callbacks are told besides (`weft.monitor`)
    """

    attention: AnyCallable | None = None
    transform: Any = None
    debug_info: Mapping[str, Any] = field(default_factory=dict[str, Any])


_NO_OVERRIDES, _NO_WATCHERS, NO_CONTEXT = Overrides(), Watchers(), Context()


class Ambient:
    """The state of this thread or task that operators depend on: modes, and the pending values. It never changes.

    (A frozen dataclass would take a third more time to make, which every block of `no_grad` pays.)

    grad       whether gradients flow through what is recorded
    inference  whether it is marked as made in inference mode, where no gradients flow
    capture    the capture that is told of what a function does, or None
    overrides  who is asked before public functions run
    watched    whether something is done at every recording
    simple     whether no mode needs more than recording, with gradients or without
    plain      whether it is simple, with gradients; the fast path checks only that
    with_other_grad  the same with gradients if this is without, and the reverse, once somebody has asked
    """

    __slots__ = (
        "autocast",
        "capture",
        "context",
        "grad",
        "inference",
        "overrides",
        "pending",
        "plain",
        "simple",
        "watched",
        "watchers",
        "with_other_grad",
    )

    def __init__(
        self,
        pending: Pending,
        grad: bool = True,
        inference: bool = False,
        capture: Arg = None,
        autocast: Autocast = NO_AUTOCAST,
        overrides: Overrides = _NO_OVERRIDES,
        watchers: Watchers = _NO_WATCHERS,
        context: Context = NO_CONTEXT,
    ) -> None:
        self.pending = pending
        self.grad = grad = grad and not inference
        self.inference = inference
        self.capture = capture
        self.autocast = autocast
        self.overrides = overrides
        self.watchers = watchers
        self.context = context
        self.watched = watched = capture is not None or watchers.are_there or Noting.on
        self.simple = simple = not (watched or inference or autocast.enabled)
        self.plain = simple and grad
        self.with_other_grad: Ambient | None = None

    def with_grad(self, grad: bool) -> Ambient:
        """The state with gradients or without; made once, since every block of `no_grad` asks."""
        if self.grad is grad:
            return self
        other = self.with_other_grad
        if other is None:
            other = self.replaced(grad=grad)
            if other.grad is grad:  # not in inference mode
                self.with_other_grad = other
        return other

    def replaced(self, **fields: object) -> Ambient:
        """The state with other fields, also those of its records."""
        every: dict[str, Any] = {
            "pending": self.pending,
            "grad": self.grad,
            "inference": self.inference,
            "capture": self.capture,
            "autocast": self.autocast,
            "overrides": self.overrides,
            "watchers": self.watchers,
            "context": self.context,
            **fields,
        }
        if len(every) > _COUNT:
            watchers = {name: every.pop(name) for name in Watchers.__slots__ if name in every}
            context = {name: every.pop(name) for name in Context.__slots__ if name in every}
            every["watchers"] = replace(self.watchers, **watchers)
            every["context"] = replace(self.context, **context)
        return (OverriddenAmbient if every["overrides"].is_by_modes else Ambient)(**every)


_COUNT = 8  # of the fields that are not derived


def _for_modes(slot: Any) -> property:
    """An attribute of `Ambient` that a public function cannot read, because a mode is asked instead."""

    def read(state: Ambient) -> AttributeValue:
        if state.overrides.mode is None:
            raise_operator()
        else:
            raise_overridden()
        return slot.__get__(state)

    return property(read, slot.__set__)


class OverriddenAmbient(Ambient):
    """The state while a mode overrides functions: all of these read one of its guarded attributes, and end there."""

    __slots__ = ()
    autocast = _for_modes(Ambient.autocast)
    capture = _for_modes(Ambient.capture)

    def __init__(self, pending: Pending, **fields: Any) -> None:
        super().__init__(pending, **fields)
        self.plain = False
        self.watched = self.watched or bool(self.overrides.dispatchers)  # so backward passes take the general path


# no cell: `Compiled` compares the modes itself
VARIABLE: ContextVar[Ambient | None] = ContextVar("weft_ambient", default=None)
"""Holds the ambient record."""
peek = VARIABLE.get
"""The ambient record, or None in a thread that has none yet. The fast path calls it."""


def ambient() -> Ambient:
    """The ambient record of this thread or task."""
    state = peek()
    if state is None:
        state = Ambient(Pending())
        VARIABLE.set(state)
    return state


replace_ambient = VARIABLE.set
"""Set the whole record until `leave` is called with the result."""

leave = VARIABLE.reset
"""Undo one `enter` or `replace_ambient`, of which it takes the result, and all that were not left since.

It is a function of C, which no signal cuts off at its beginning, as it can cut off an `__exit__`. So what a program
calls in a loop (a backward pass, a capture) leaves by it in a `finally`, whatever happened to the blocks within.
"""


class using:
    """Set fields of the ambient state within a block."""

    __slots__ = ("_fields", "_token")

    def __init__(self, **fields: object) -> None:
        self._fields = fields

    def __enter__(self) -> None:
        self._token = enter(**self._fields)

    def __exit__(self, *_: object) -> None:
        VARIABLE.reset(self._token)


def enter(**fields: object) -> Token[Ambient | None]:
    """Set fields, also those of its records, until `leave` is called with the result."""
    old = ambient()
    return _entered(old, old.replaced(**fields))


def enter_grad(grad: bool) -> Token[Ambient | None]:
    """`enter(grad=grad)`."""
    old = ambient()
    return _entered(old, old.with_grad(grad))


def _entered(old: Ambient, new: Ambient) -> Token[Ambient | None]:
    try:
        return VARIABLE.set(new)
    except BaseException:  # a signal, right after it was set
        VARIABLE.set(old)
        raise


def set_field(**fields: object) -> None:
    """Set fields from now on, for the rest of this thread or task."""
    enter(**fields)


_dtype = Cell[DType]("the default type", float32)
_dtype_caches: list[Callable[[], object]] = []  # no cell: what forgets what it has computed with another default type


def default_dtype() -> DType:
    """Type of Python floats in new tensors."""
    return _dtype.get()


def set_default_dtype(dtype: DType) -> None:
    """Set the type of Python floats in new tensors: a floating type."""
    _require_floating(dtype)
    _dtype.set(dtype)
    for forget in _dtype_caches:
        forget()


def _require_floating(dtype: object) -> None:
    if not isinstance(dtype, DType) or not dtype.is_floating_point:
        lead = "" if isinstance(dtype, DType) else "invalid dtype object: "
        raise ArgumentError(
            f"{lead}only floating-point types are supported as the default type, got {dtype!r}{way_from_pytorch(dtype)}"
        )


def on_dtype_change(forget: Callable[[], object]) -> None:
    """Call `forget()` whenever the default type changes."""
    _dtype_caches.append(forget)
