"""oneDNN. XLA uses it where it helps, so the flags are stored but have no effect."""

from __future__ import annotations

from contextlib import AbstractContextManager

from weft.backends._flags import set_within

enabled = True
deterministic = False
allow_tf32 = True


def is_available() -> bool:
    """False: operators cannot be sent to it explicitly."""
    return False


def flags(**settings: object) -> AbstractContextManager[None]:
    """A block in which flags have other values; those that are not given keep theirs."""
    return set_within(globals(), settings)
