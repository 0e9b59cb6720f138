"""Functions that give their result later."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import wraps
from types import UnionType
from typing import Any, ParamSpec, TypeVar, Union, get_args, get_origin, get_type_hints

from weft._tensor.compile import Compiled
from weft.errors import ArgumentError

P = ParamSpec("P")
R = TypeVar("R")


def async_execution(fn: Callable[P, R]) -> Callable[P, R]:
    """Say that a function returns a `Future`, whose value is the answer to a remote call of it.

    No thread of the worker waits for that: the answer is sent when the future is done. With `staticmethod` or
    `classmethod` this is the inner decorator, with `weft.compile` the outer one. A compiled function runs uncaptured,
    since its future is another one in each call; arguments of other types than it is annotated with are a `TypeError`.
    A function that returns something else than a future is a `RuntimeError` at the caller.
    """
    function: Any = fn
    run: Callable[P, R] = _checked(function._function) if isinstance(function, Compiled) else fn

    @wraps(fn)
    def wrapper(*args: P.args, **kwargs: P.kwargs) -> R:
        return run(*args, **kwargs)

    wrapper._wrapped_async_rpc_function = fn  # pyright: ignore[reportAttributeAccessIssue]  by which calls know it
    return wrapper


def _checked(function: Callable[P, R]) -> Callable[P, R]:
    """The function, which refuses arguments of other types than it is annotated with."""
    signature = inspect.signature(function)
    named = [one.name for one in signature.parameters.values() if one.kind not in (one.VAR_POSITIONAL, one.VAR_KEYWORD)]

    def checked(*args: P.args, **kwargs: P.kwargs) -> R:
        arguments, hints = signature.bind(*args, **kwargs).arguments, get_type_hints(function)
        for name in named:
            if name in arguments and name in hints and not isinstance(arguments[name], _classes(hints[name])):
                hint = hints[name]
                expected = hint.__name__ if isinstance(hint, type) else str(hint).replace("typing.", "")
                raise ArgumentError(
                    f"{function.__name__}() Expected a value of type '{expected}' for argument '{name}' but instead "
                    f"found type '{type(arguments[name]).__name__}'."
                )
        return function(*args, **kwargs)

    return checked


def _classes(hint: Any) -> tuple[type, ...]:
    """The classes that a value of an annotated type may have; what containers contain is not looked at."""
    origin = get_origin(hint) or hint
    if origin in (Union, UnionType):
        return tuple(kind for one in get_args(hint) for kind in _classes(one))
    if hint is float:
        return float, int
    return (origin,) if isinstance(origin, type) else (object,)
