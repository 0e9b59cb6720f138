"""OpenMP. XLA has a pool of threads of its own."""

from __future__ import annotations


def is_available() -> bool:
    """False: programs do not use it."""
    return False
