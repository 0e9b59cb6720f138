"""Functions that do nothing: they set or mark what is not there."""

from __future__ import annotations

from typing import Any

from weft._absent._making import kept


def _ignoring() -> Any:
    def function(*args: object, **kwargs: object) -> None:
        """Does nothing."""

    return function


def __getattr__(name: str) -> Any:
    return kept(__name__, name, _ignoring)
