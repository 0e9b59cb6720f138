"""Exceptions that nothing raises: for `except` clauses."""

from __future__ import annotations

from typing import Any

from weft._absent._making import kept
from weft.errors import WeftError


def __getattr__(name: str) -> Any:
    return kept(__name__, name, lambda: type(name, (WeftError, RuntimeError), {"__doc__": "Nothing raises it."}))
