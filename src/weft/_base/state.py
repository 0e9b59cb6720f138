"""Ambient state: one record in one context variable, and the few process-wide defaults.

A new thread starts with the defaults and an empty list of pending values; it inherits nothing from other threads.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextvars import ContextVar, Token
from types import MappingProxyType
from typing import Any

from weft._base import config
from weft._base.autocast import NO_AUTOCAST, Autocast
from weft._base.cell import Cell
from weft._base.dtype import DType, float32
from weft._base.of_pytorch import way_from_pytorch
from weft._base.overriding import Overrides, raise_overridden
from weft._base.pending import Pending
from weft._base.site import Noting
from weft.errors import ArgumentError

_NO_OVERRIDES = Overrides()


class Ambient:
    """The state of this thread or task that operators depend on: modes, and the pending values.

    `plain` is True if no mode needs more than recording with gradients; the fast path checks only that. `watched` is
    True if something is done at every recording; `observers` are called with the values of each. `attention` takes over
    `scaled_dot_product_attention`, with its arguments, as where sequences are split over processes. `transform` is the
    level of the innermost function whose derivatives are taken (`func/`), which must not write to older tensors.
    `forward` are the levels, from the outermost on, that note what is recorded off the tape (`_autograd/levels.py`).
    `overrides` says who is asked before public functions run. `debug_info` is what callbacks are told besides
    (`weft.monitor`).
    """

    __slots__ = (
        "anomaly",
        "attention",
        "autocast",
        "capture",
        "check_nan",
        "debug_info",
        "eager",
        "forward",
        "grad",
        "inference",
        "observers",
        "overrides",
        "pending",
        "plain",
        "transform",
        "watched",
    )

    def __init__(
        self,
        pending: Pending,
        *,
        grad: bool = True,
        inference: bool = False,
        anomaly: bool = False,
        check_nan: bool = True,
        eager: bool = config.EAGER,
        capture: Any = None,
        autocast: Autocast = NO_AUTOCAST,
        observers: tuple[Callable[[tuple[Any, ...]], object], ...] = (),
        attention: Callable[..., Any] | None = None,
        transform: Any = None,
        forward: tuple[Any, ...] = (),
        overrides: Overrides = _NO_OVERRIDES,
        debug_info: Mapping[str, Any] = MappingProxyType({}),
    ) -> None:
        self.pending = pending
        self.grad = grad = grad and not inference
        self.inference = inference
        self.anomaly = anomaly
        self.check_nan = check_nan
        self.eager = eager
        self.capture = capture
        self.autocast = autocast
        self.observers = observers
        self.attention = attention
        self.transform = transform
        self.forward = forward
        self.overrides = overrides
        self.debug_info = debug_info
        self.watched = anomaly or eager or Noting.on or capture is not None or bool(observers) or bool(forward)
        self.plain = grad and not (self.watched or autocast.enabled) and capture is None


def _for_modes(slot: Any) -> Any:
    """An attribute of `Ambient` that a public function cannot read, because a mode is asked instead."""

    def read(state: Ambient) -> Any:
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


# no cell: `Compiled` compares the modes itself
_ambient: ContextVar[Ambient | None] = ContextVar("weft_ambient", default=None)
peek = _ambient.get
"""The ambient record, or None in a thread that has none yet. The fast path calls it."""


def ambient() -> Ambient:
    """The ambient record of this thread or task."""
    state = peek()
    if state is None:
        state = Ambient(Pending())
        _ambient.set(state)
    return state


replace_ambient = _ambient.set
"""Set the whole record until `leave` is called with the result."""

leave = _ambient.reset
"""Undo one `enter` or `replace_ambient`, of which it takes the result, and all that were not left since.

It is a function of C, which no signal cuts off at its beginning, as it can cut off an `__exit__`. So what a program
calls in a loop (a backward pass, a capture) leaves by it in a `finally`, whatever happened to the blocks within.
"""


class using:
    """Set fields of the ambient state within a block."""

    __slots__ = ("_fields", "_token")

    def __init__(self, **fields: Any) -> None:
        self._fields = fields

    def __enter__(self) -> None:
        self._token = enter(**self._fields)

    def __exit__(self, *_: object) -> None:
        _ambient.reset(self._token)


def enter(**fields: Any) -> Token[Ambient | None]:
    """Set fields until `leave` is called with the result."""
    old = ambient()
    kept: dict[str, Any] = {
        "pending": old.pending,
        "grad": old.grad,
        "inference": old.inference,
        "anomaly": old.anomaly,
        "check_nan": old.check_nan,
        "eager": old.eager,
        "capture": old.capture,
        "autocast": old.autocast,
        "observers": old.observers,
        "attention": old.attention,
        "transform": old.transform,
        "forward": old.forward,
        "overrides": old.overrides,
        "debug_info": old.debug_info,
    }
    fields = {**kept, **fields}
    new = (Ambient if fields["overrides"].mode is None else OverriddenAmbient)(**fields)
    try:
        return _ambient.set(new)
    except BaseException:  # a signal, right after it was set
        _ambient.set(old)
        raise


def set_field(**fields: Any) -> None:
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
