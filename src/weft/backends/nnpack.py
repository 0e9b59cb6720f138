"""NNPACK, which XLA does not use. Its flag is stored but has no effect."""

from __future__ import annotations

from contextlib import AbstractContextManager

from weft.backends._flags import set_within

enabled = False


def is_available() -> bool:
    """False."""
    return False


def flags(enabled: bool = False) -> AbstractContextManager[None]:
    """A block in which the flag has a value."""
    return set_within(globals(), {"enabled": enabled})


def set_flags(_enabled: bool) -> tuple[bool]:
    """Set the flag; returns the value before."""
    before = globals()["enabled"]
    globals()["enabled"] = _enabled
    return (before,)
