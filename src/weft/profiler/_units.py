"""Times and sizes as texts."""

from __future__ import annotations

_UNITS = {"s": 1e6, "ms": 1e3, "us": 1.0}


def time_text(microseconds: float, unit: str | None = None) -> str:
    """A time with its unit: "s", "ms", "us", or what suits it."""
    if unit not in _UNITS:
        unit = "s" if microseconds >= 1e6 else "ms" if microseconds >= 1e3 else "us"
    return f"{microseconds / _UNITS[unit]:.3f}{unit}"


def bytes_text(count: float) -> str:
    """A number of bytes with its unit."""
    for unit, size in (("GB", 1 << 30), ("MB", 1 << 20), ("KB", 1 << 10)):
        if abs(count) >= size:
            return f"{count / size:.2f} {unit}"
    return f"{count:g} B"
