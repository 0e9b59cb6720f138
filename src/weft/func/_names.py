"""Names of transformed functions."""

from __future__ import annotations

from functools import update_wrapper

from weft._base.types import AnyCallable


def named_like(func: AnyCallable, function: AnyCallable) -> AnyCallable:
    """`function` with the name and the docstring of `func`, if that is a function."""
    return update_wrapper(function, func) if hasattr(func, "__name__") else function
