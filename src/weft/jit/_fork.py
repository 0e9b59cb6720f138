"""`fork` and `wait`. A forked function runs at once: what it records is computed later, and together, anyway."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from weft.errors import ArgumentError
from weft.futures import Future


def fork(func: Callable[..., Any], *args: Any, **kwargs: Any) -> Future[Any]:
    """A future with the result of `func(*args, **kwargs)`, which has run, or with its exception."""
    future: Future[Any] = Future()
    try:
        future.set_result(func(*args, **kwargs))
    except Exception as error:
        future.set_exception(error)
    return future


def wait(future: Future[Any]) -> Any:
    """The result of a future; raises its exception."""
    if not isinstance(future, Future):
        raise ArgumentError(f"jit.wait: expected the future that jit.fork returned, got {type(future).__name__}")
    return future.wait()
