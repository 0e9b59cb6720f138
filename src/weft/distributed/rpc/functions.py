"""Functions that give their result later."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")


def async_execution(fn: Callable[P, R]) -> Callable[P, R]:
    """Say that a function returns a `Future`, whose value is the answer to a remote call of it.

    No thread of the worker waits for that: the answer is sent when the future is done. With `staticmethod` or
    `classmethod` this is the inner decorator. A function that returns something else is a `RuntimeError` at the caller.
    """

    @wraps(fn)
    def wrapper(*args: P.args, **kwargs: P.kwargs) -> R:
        return fn(*args, **kwargs)

    wrapper._wrapped_async_rpc_function = fn  # pyright: ignore[reportAttributeAccessIssue]  by which calls know it
    return wrapper
