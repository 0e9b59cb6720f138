"""oneDNN. XLA has it built in where it helps: the flags are kept and change nothing."""

from __future__ import annotations

enabled = True
deterministic = False


def is_available() -> bool:
    """False: no operator can be sent to it by name."""
    return False
