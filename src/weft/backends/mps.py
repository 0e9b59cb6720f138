"""Metal devices."""

from __future__ import annotations

import platform
from importlib.util import find_spec

from weft._base.device import device
from weft._lazy.runtime import jax_device
from weft.errors import DeviceError


def is_built() -> bool:
    """Whether jax has its plugin for Metal. If `is_available()` is False, this tells whether that is the reason."""
    return find_spec("jax_plugins") is not None and find_spec("jax_plugins.metal_plugin") is not None


def is_available() -> bool:
    """Whether jax finds a Metal device."""
    try:
        jax_device(device("mps"))
    except DeviceError:
        return False
    return True


def is_macos_or_newer(major: int, minor: int) -> bool:
    """Whether this is macOS of this version or a later one."""
    version = platform.mac_ver()[0]
    return bool(version) and tuple(map(int, version.split(".")[:2])) >= (major, minor)


def is_macos13_or_newer(minor: int = 0) -> bool:
    """Whether this is macOS 13.`minor` or later."""
    return is_macos_or_newer(13, minor)
