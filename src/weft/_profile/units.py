"""Times and sizes as texts."""

from __future__ import annotations


def time_text(microseconds: float) -> str:
    """A time with its unit."""
    if microseconds >= 1e6:
        return f"{1e-6 * microseconds:.3f}s"
    return f"{1e-3 * microseconds:.3f}ms" if microseconds >= 1e3 else f"{microseconds:.3f}us"


def bytes_text(count: float) -> str:
    """A number of bytes with its unit."""
    for unit, size in (("GB", 1 << 30), ("MB", 1 << 20), ("KB", 1 << 10)):
        if abs(count) >= size:
            return f"{count / size:.2f} {unit}"
    return f"{count:g} B"
