"""The names of PyTorch's old profiler. What programs do is seen with `weft.profiler`."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ContextDecorator
from typing import Any, Self

import jax

from weft._base.scopes import begin_scope
from weft.autograd._events import EventList as EventList
from weft.autograd._events import FunctionEvent as FunctionEvent
from weft.errors import UnsupportedError


class record_function(ContextDecorator):
    """A block, or a function, that has a name in the traces of `jax.profiler` and for callbacks (`weft.monitor`)."""

    def __init__(self, name: str, args: str | None = None) -> None:
        self.name = name
        self.args = args
        self._blocks: list[Any] = []
        self._ends: list[list[Callable[[], None]]] = []

    def __enter__(self) -> Self:
        self._blocks.append(jax.profiler.TraceAnnotation(self.name))
        self._blocks[-1].__enter__()
        self._ends.append(begin_scope(self.name))
        return self

    def __exit__(self, *error: Any) -> None:
        for end in self._ends.pop():
            end()
        self._blocks.pop().__exit__(*error)


class profile:
    """Accepted with `enabled=False`; `NotImplementedError` otherwise, which says what to use."""

    def __init__(self, enabled: bool = True, **_: Any) -> None:
        if enabled:
            raise UnsupportedError(
                f"autograd.profiler.{type(self).__name__}: operators are recorded and compiled together, so there are "
                "no times for single ones. Use torch.profiler.profile, which traces what XLA does, or weft.explain()"
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        return None


class emit_nvtx(profile):
    """As `profile`."""


class emit_itt(profile):
    """As `profile`."""
