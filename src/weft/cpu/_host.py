"""The host, as `torch.get_device_module("cpu")` gives it."""

from __future__ import annotations


def is_available() -> bool:
    """True."""
    return True


def device_count() -> int:
    """One: all of the host's processors are one device."""
    return 1


def current_device() -> str:
    """Always "cpu"."""
    return "cpu"
