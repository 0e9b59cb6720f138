"""Libraries of operators that are compiled for PyTorch."""

from __future__ import annotations

import os
from typing import NoReturn

from weft.errors import ExtensionError


def load_library(path: str | os.PathLike[str]) -> NoReturn:
    """Raises `OSError`, as PyTorch does for a library that does not fit it, so that packages do without."""
    raise ExtensionError(
        f"ops.load_library: {os.fspath(path)} is compiled for PyTorch; operators of Weft are written in Python, by "
        "weft.library.custom_op"
    )
