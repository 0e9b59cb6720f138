"""Functions that raise `NotImplementedError`: they work on what is not there."""

from __future__ import annotations

from typing import Any, NoReturn

from weft._absent._making import kept
from weft.errors import UnsupportedCallError


def _refusing(name: str) -> Any:
    def function(*args: object, **kwargs: object) -> NoReturn:
        """Raises `NotImplementedError`."""
        raise UnsupportedCallError(
            f"{name} works on PyTorch's own machinery (its C++ classes, compilers or exporters), which Weft does "
            "without; weft.compile compiles functions, weft.export.export writes them as StableHLO, and weft.fx shows "
            "them as graphs"
        )

    return function


def __getattr__(name: str) -> Any:
    return kept(__name__, name, lambda: _refusing(name))
