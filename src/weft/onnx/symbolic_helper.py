"""Decorators of functions that write operators as ONNX. Nothing calls such functions here."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

F = TypeVar("F", bound=Callable[..., Any])


def parse_args(*arg_descriptors: str) -> Callable[[F], F]:
    """A decorator that changes nothing."""
    return lambda function: function
