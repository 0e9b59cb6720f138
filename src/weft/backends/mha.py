"""Attention in inference: PyTorch's shorter path, which has no counterpart here, since XLA fuses what it can."""

from __future__ import annotations

from weft._base.cell import Cell

_FAST_PATH = Cell("whether attention may take its shorter path", True)


def get_fastpath_enabled() -> bool:
    """The last `set_fastpath_enabled`; True before. It has no effect."""
    return _FAST_PATH.get()


def set_fastpath_enabled(value: bool) -> None:
    """Remember a value for `get_fastpath_enabled`."""
    _FAST_PATH.set(value)
