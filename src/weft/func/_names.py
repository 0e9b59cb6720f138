"""Names of transformed functions."""

from __future__ import annotations

from collections.abc import Callable
from functools import update_wrapper
from typing import Any


def named_like(func: Callable[..., Any], function: Callable[..., Any]) -> Callable[..., Any]:
    """`function` with the name and the docstring of `func`, if that is a function."""
    return update_wrapper(function, func) if hasattr(func, "__name__") else function
