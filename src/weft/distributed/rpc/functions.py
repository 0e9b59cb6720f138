"""Functions that give their result later."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import wraps
from types import UnionType
from typing import ParamSpec, TypeVar, Union, get_args, get_origin, get_type_hints

from weft._base.types import AnyCallable
from weft._tensor.compile import Compiled
from weft.errors import ArgumentError

P = ParamSpec("P")
R = TypeVar("R")


def async_execution(fn: Callable[P, R]) -> Callable[P, R]:
    """Declare that a function returns a `Future`, whose value is the answer to a remote call.

    No thread waits for it: the answer is sent when the future is done. With `staticmethod` or `classmethod`, this must
    be the inner decorator; with `weft.compile`, the outer one. A compiled function runs without capturing, since its
    future differs in each call. `TypeError` for arguments of other types than annotated. If the function returns
    anything but a future, the caller gets a `RuntimeError`.
    """
    function: AnyCallable = fn
    run: Callable[P, R] = _checked(function._function) if isinstance(function, Compiled) else fn

    @wraps(fn)
    def wrapper(*args: P.args, **kwargs: P.kwargs) -> R:
        return run(*args, **kwargs)

    wrapper._wrapped_async_rpc_function = fn  # pyright: ignore[reportAttributeAccessIssue]  by which calls know it
    return wrapper


def _checked(function: Callable[P, R]) -> Callable[P, R]:
    """The function, which refuses arguments of other types than annotated."""
    signature = inspect.signature(function)
    named = [one.name for one in signature.parameters.values() if one.kind not in (one.VAR_POSITIONAL, one.VAR_KEYWORD)]

    def checked(*args: P.args, **kwargs: P.kwargs) -> R:
        # As PyTorch does for compiled functions, whose annotations are declarations.
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


def _classes(hint: object) -> tuple[type, ...]:
    """The classes that a value of an annotated type may have; contents of containers are not checked."""
    origin = get_origin(hint) or hint
    if origin in (Union, UnionType):
        return tuple(kind for one in get_args(hint) for kind in _classes(one))
    if hint is float:
        return float, int
    return (origin,) if isinstance(origin, type) else (object,)
