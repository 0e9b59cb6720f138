"""oneDNN. XLA uses it where it helps, so the flags are stored but have no effect."""

from __future__ import annotations

enabled = True
deterministic = False


def is_available() -> bool:
    """False: operators cannot be sent to it explicitly."""
    return False
