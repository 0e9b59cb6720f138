"""Rewriting of graphs, which is not here."""

from __future__ import annotations

from typing import Any, NoReturn

from weft.fx._absent import refuse


def replace_pattern(gm: Any, pattern: Any, replacement: Any) -> NoReturn:
    """Raises `NotImplementedError`, which says what to use instead."""
    raise refuse("replace_pattern")
