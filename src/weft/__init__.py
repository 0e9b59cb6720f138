"""Weft: PyTorch's programming model and distributed stack, in Python, on XLA.

Everything is imported on first use, so that programs which only launch others start quickly.
"""

from __future__ import annotations

from weft._api import load as _load

__version__ = "0.1.0"


def __getattr__(name: str) -> object:
    value = _load(name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    from weft._api import names

    return sorted({*globals(), *names()})
