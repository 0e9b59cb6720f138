"""`wrap`, which traced programs need, and the tracer, which there is none of."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn, TypeVar

from weft.errors import OutOfRangeError
from weft.fx._absent import Absent, refuse

F = TypeVar("F", str, Callable[..., Any])


class Tracer(Absent):
    """Would run a module on proxies. Making one raises `NotImplementedError`."""


def wrap(fn_or_name: F) -> F:
    """The function, or its name, as it is: PyTorch's tracer, which is not here, would not look into such functions."""
    if not callable(fn_or_name) and not isinstance(fn_or_name, str):
        raise OutOfRangeError(
            "Unsupported type for global function! Must be either a callable or string name, got "
            f"{type(fn_or_name).__name__}"
        )
    return fn_or_name


def symbolic_trace(root: Any, concrete_args: Any = None) -> NoReturn:
    """Raises `NotImplementedError`, which says what to use instead."""
    raise refuse("symbolic_trace")
