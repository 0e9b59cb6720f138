"""Helpers of PyTorch's compiler that libraries ask."""

from __future__ import annotations

from weft.compiler import is_compiling as is_compiling


def is_compile_supported(device_type: str) -> bool:
    """True: functions can be compiled for every device."""
    return True
