"""The line of the user's program that is being run."""

from __future__ import annotations

import sys
from pathlib import Path

_PACKAGE = str(Path(__file__).resolve().parent.parent) + "/"


def user_site() -> str:
    """`file:line` of the innermost frame outside of this package (and of jax), or `<unknown>`."""
    frame = sys._getframe(1)
    while frame is not None:
        name = frame.f_code.co_filename
        if not (name.startswith((_PACKAGE, "<weft", "<frozen")) or "/jax/" in name):
            return f"{name}:{frame.f_lineno}"
        frame = frame.f_back
    return "<unknown>"
