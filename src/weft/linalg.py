"""Linear algebra. What the functions are is in the operator table; this only names them."""

from __future__ import annotations

from typing import Any

from weft._tensor.assemble import PUBLIC

_OF_THE_PACKAGE = ("det", "matmul", "matrix_power", "slogdet")
_FUNCTIONS = {name: PUBLIC[""][name] for name in _OF_THE_PACKAGE} | PUBLIC["linalg"]


def __getattr__(name: str) -> Any:
    try:
        return _FUNCTIONS[name]
    except KeyError:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}") from None


def __dir__() -> list[str]:
    return sorted(_FUNCTIONS)
