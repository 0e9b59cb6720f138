"""Attention in inference: PyTorch's shorter path, which has no counterpart here, since XLA fuses what it can."""

from __future__ import annotations


class _FastPath:
    is_enabled = True


def get_fastpath_enabled() -> bool:
    """The last `set_fastpath_enabled`; True before. It has no effect."""
    return _FastPath.is_enabled


def set_fastpath_enabled(value: bool) -> None:
    """Remember a value for `get_fastpath_enabled`."""
    _FastPath.is_enabled = value
