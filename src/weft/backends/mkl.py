"""MKL, which XLA does not use."""

from __future__ import annotations


def is_available() -> bool:
    """False."""
    return False


VERBOSE_OFF = 0
VERBOSE_ON = 1


class verbose:
    """A block in which PyTorch prints calls of MKL; nothing is printed here."""

    def __init__(self, enable: int) -> None:
        self.enable = enable

    def __enter__(self) -> verbose:
        return self

    def __exit__(self, *exception: object) -> None:
        pass
