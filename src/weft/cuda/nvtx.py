"""Ranges in the traces that Nsight or `jax.profiler` take of a program."""

from __future__ import annotations

import threading
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

import jax

_open = threading.local()


def _stack() -> list[Any]:
    if not hasattr(_open, "ranges"):
        _open.ranges = []
    return _open.ranges


def range_push(msg: str) -> int:
    """Begin a range of this thread; returns how many are around it."""
    annotation = jax.profiler.TraceAnnotation(msg)
    annotation.__enter__()
    _stack().append(annotation)
    return len(_stack()) - 1


def range_pop() -> int:
    """End the range that was begun last; returns how many are around it, -1 if none was open."""
    if not _stack():
        return -1
    _stack().pop().__exit__(None, None, None)
    return len(_stack())


_handles: dict[int, Any] = {}


def range_start(msg: str) -> int:
    """Begin a range that any thread may end; returns what `range_end` takes."""
    annotation = jax.profiler.TraceAnnotation(msg)
    annotation.__enter__()
    _handles[id(annotation)] = annotation
    return id(annotation)


def range_end(range_id: int) -> None:
    """End a range from `range_start`."""
    _handles.pop(range_id).__exit__(None, None, None)


def mark(msg: str) -> None:
    """A range of no length."""
    with jax.profiler.TraceAnnotation(msg):
        pass


@contextmanager
def range(msg: str, *args: object, **kwargs: object) -> Generator[None]:
    """A range around a block or, as a decorator, around calls; `msg` is formatted with the arguments."""
    range_push(msg.format(*args, **kwargs))
    try:
        yield
    finally:
        range_pop()
