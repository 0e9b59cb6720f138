"""Functions that answer False: they ask for what is not there."""

from __future__ import annotations

from typing import Any

from weft._absent._making import kept


def _denying() -> Any:
    def function(*args: object, **kwargs: object) -> bool:
        """False."""
        return False

    return function


def __getattr__(name: str) -> Any:
    return kept(__name__, name, _denying)
