"""Modes of recording: with or without gradients."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ContextDecorator
from typing import Any, Protocol, Self, TypeVar, cast, overload

from weft._base.cell import LocalCell
from weft._base.contexts import DecoratorContextManager
from weft._base.state import ambient, enter, enter_grad, leave, set_field
from weft._base.types import AnyCallable, Arg, Kwargs
from weft.errors import ArgumentError

_new = object.__new__
F = TypeVar("F", bound=Callable[..., Any])


class Mode(DecoratorContextManager):
    """A context manager and decorator that sets fields of the ambient state."""

    def __init__(self, **fields: Arg) -> None:
        self._fields = fields
        self._tokens: list[Any] = []

    def __enter__(self) -> Self:
        self._tokens.append(enter(**self._fields))
        return self

    def __exit__(self, *_: object) -> None:
        leave(self._tokens.pop())

    def clone(self) -> Mode:
        """Another one for the same fields."""
        return Mode(**self._fields)


class _ModeClass(Protocol):
    """`@mode` and `@mode()` decorate; `with mode():` is for a block."""

    @overload
    def __call__(self, function: F) -> F: ...

    @overload
    def __call__(self) -> Mode: ...


def _with_optional_parentheses(name: str, doc: str, grad: bool) -> _ModeClass:
    """A mode class that can decorate with or without parentheses: `@no_grad` and `@no_grad()`."""
    fields: Kwargs = {"grad": grad}

    class Fixed(Mode):
        def __new__(cls, function: AnyCallable | None = None) -> Arg:
            return _new(cls) if function is None else cls()(function)

        def __init__(self, function: AnyCallable | None = None) -> None:
            del function
            self._fields = fields
            self._tokens = []

        def __enter__(self) -> Self:
            self._tokens.append(enter_grad(grad))
            return self

    Fixed.__name__ = Fixed.__qualname__ = name
    Fixed.__doc__ = doc
    return cast("_ModeClass", Fixed)


no_grad = _with_optional_parentheses("no_grad", "Record without gradients.", grad=False)
enable_grad = _with_optional_parentheses("enable_grad", "Record with gradients, also inside `no_grad`.", grad=True)


class inference_mode(Mode):
    """Record values that can never take part in a backward pass. `inference_mode(False)` records with gradients."""

    @overload
    def __new__(cls, mode: F) -> F: ...

    @overload
    def __new__(cls, mode: bool = True) -> Self: ...

    def __new__(cls, mode: bool | AnyCallable = True) -> Arg:
        return cls(True)(mode) if callable(mode) else super().__new__(cls)

    def __init__(self, mode: bool | AnyCallable = True) -> None:
        super().__init__(grad=not mode, inference=bool(mode))


class set_grad_enabled(Mode):
    """Switch gradients on or off: from this call on, or for a `with` block."""

    def __init__(self, mode: bool) -> None:
        if not isinstance(mode, bool):
            raise ArgumentError(f"set_grad_enabled(): argument 'enabled' must be bool, not {type(mode).__name__}")
        super().__init__(grad=mode)
        self._before: bool | None = ambient().grad
        set_field(grad=bool(mode))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        set_field(grad=self._before)

    def __call__(self, orig_func: F) -> F:
        set_field(grad=self._before)
        return super().__call__(orig_func)


def is_grad_enabled() -> bool:
    """Whether operators are recorded with gradients in this thread."""
    return ambient().grad


def is_inference_mode_enabled() -> bool:
    """Whether `inference_mode` is active in this thread."""
    return ambient().inference


_multithreading = LocalCell("whether backward passes may use several threads", True)


class set_multithreading_enabled(ContextDecorator):
    """Say whether backward passes may use several threads: from this call on, or for a `with` block.

    It has no effect. A pass records in the thread that calls it, and XLA computes with threads of its own.
    """

    def __init__(self, mode: bool) -> None:
        self._mode = bool(mode)
        self._before = [_multithreading.get()]
        _multithreading.set(self._mode)

    def __enter__(self) -> Self:
        self._before.append(_multithreading.get())
        _multithreading.set(self._mode)
        return self

    def __exit__(self, *_: object) -> None:
        self._before.pop()
        _multithreading.set(self._before[-1])

    def __call__(self, function: F) -> F:
        _multithreading.set(self._before[0])
        return super().__call__(function)


def is_multithreading_enabled() -> bool:
    """What `set_multithreading_enabled` has set in this thread."""
    return _multithreading.get()
