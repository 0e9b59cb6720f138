"""`fork` and `wait`. A forked function runs at once: what it records is computed later, and together, anyway."""

from __future__ import annotations

from typing import Any

from weft._base.types import AnyCallable, Arg, Result
from weft.errors import ArgumentError
from weft.futures import Future


def fork(func: AnyCallable, *args: Arg, **kwargs: Arg) -> Future[Result]:
    """A future with the result of `func(*args, **kwargs)`, which has run, or with its exception."""
    future: Future[Any] = Future()
    try:
        future.set_result(func(*args, **kwargs))
    except Exception as error:
        future.set_exception(error)
    return future


def wait(future: Future[object]) -> Result:
    """The result of a future; raises its exception."""
    if not isinstance(future, Future):
        raise ArgumentError(f"jit.wait: expected the future that jit.fork returned, got {type(future).__name__}")
    return future.wait()
