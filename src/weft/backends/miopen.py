"""MIOpen, which XLA uses on AMD devices as it decides when it compiles. The flag is stored but has no effect."""

from __future__ import annotations

from contextlib import AbstractContextManager

from weft.backends._flags import set_within

immediate = False


def flags(immediate: bool = False) -> AbstractContextManager[None]:
    """A block in which the flag has a value."""
    return set_within(globals(), {"immediate": immediate})
