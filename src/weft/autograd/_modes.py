"""Modes of recording: with or without gradients, and anomaly detection."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Generator
from functools import partial, wraps
from typing import Any, Protocol, Self, TypeVar, cast, overload

from weft._base.state import ambient, enter, leave, set_field
from weft.errors import ArgumentError

F = TypeVar("F", bound=Callable[..., Any])


class _Mode:
    """A context manager and decorator that sets fields of the ambient state."""

    def __init__(self, **fields: Any) -> None:
        self._fields = fields
        self._tokens: list[Any] = []

    def __enter__(self) -> Self:
        self._tokens.append(enter(**self._fields))
        return self

    def __exit__(self, *_: object) -> None:
        leave(self._tokens.pop())

    def __call__(self, function: F) -> F:
        fields = self._fields
        if inspect.isgeneratorfunction(function):
            return cast("F", _stepwise(function, fields))

        @wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            with _Mode(**fields):
                return function(*args, **kwargs)

        return cast("F", call)


def _stepwise(function: Callable[..., Any], fields: dict[str, Any]) -> Callable[..., Any]:
    """Wrap a generator function such that its generators are in the mode only while they run."""

    @wraps(function)
    def steps(*args: Any, **kwargs: Any) -> Generator[Any, Any, Any]:
        source = function(*args, **kwargs)
        resume = partial(next, source)
        while True:
            try:
                with _Mode(**fields):
                    item = resume()
            except StopIteration as stop:
                return stop.value
            try:
                sent = yield item
            except BaseException as error:  # passed to the source, which may handle it, also `GeneratorExit`
                resume = partial(source.throw, error)
            else:
                resume = partial(source.send, sent)

    return steps


class _ModeClass(Protocol):
    """`@mode` and `@mode()` decorate; `with mode():` is for a block."""

    @overload
    def __call__(self, function: F) -> F: ...

    @overload
    def __call__(self) -> _Mode: ...


def _with_optional_parentheses(name: str, doc: str, **fields: Any) -> _ModeClass:
    """A mode class that can decorate with or without parentheses: `@no_grad` and `@no_grad()`."""

    class Mode(_Mode):
        def __new__(cls, function: Callable[..., Any] | None = None) -> Any:
            return super().__new__(cls) if function is None else cls()(function)

        def __init__(self, function: Callable[..., Any] | None = None) -> None:
            del function
            super().__init__(**fields)

    Mode.__name__ = Mode.__qualname__ = name
    Mode.__doc__ = doc
    return cast("_ModeClass", Mode)


no_grad = _with_optional_parentheses("no_grad", "Record without gradients.", grad=False)
enable_grad = _with_optional_parentheses("enable_grad", "Record with gradients, also inside `no_grad`.", grad=True)


class inference_mode(_Mode):
    """Record values that can never take part in a backward pass. `inference_mode(False)` records with gradients."""

    @overload
    def __new__(cls, mode: F) -> F: ...

    @overload
    def __new__(cls, mode: bool = True) -> Self: ...

    def __new__(cls, mode: bool | Callable[..., Any] = True) -> Any:
        return cls(True)(mode) if callable(mode) else super().__new__(cls)

    def __init__(self, mode: bool | Callable[..., Any] = True) -> None:
        super().__init__(grad=not mode, inference=bool(mode))


class set_grad_enabled(_Mode):
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

    def __call__(self, function: F) -> F:
        set_field(grad=self._before)
        return super().__call__(function)


def is_grad_enabled() -> bool:
    """Whether operators are recorded with gradients in this thread."""
    return ambient().grad


def is_inference_mode_enabled() -> bool:
    """Whether `inference_mode` is active in this thread."""
    return ambient().inference


class detect_anomaly(_Mode):
    """Raise in a backward pass at the first derivative that is NaN, and name the line of its forward operator.

    Every derivative is computed and checked separately, so this is slow.
    """

    def __init__(self, check_nan: bool = True) -> None:
        super().__init__(anomaly=check_nan)


class set_detect_anomaly(_Mode):
    """Switch anomaly detection on or off: from this call on, or for a `with` block."""

    def __init__(self, mode: bool, check_nan: bool = True) -> None:
        super().__init__(anomaly=mode and check_nan)
        self._before = ambient().anomaly
        set_field(anomaly=mode and check_nan)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        set_field(anomaly=self._before)
