"""Compiled modules, under PyTorch's import path."""

from __future__ import annotations

from weft.nn._optimized import OptimizedModule as OptimizedModule


def is_dynamo_supported() -> bool:
    """True: functions can be compiled everywhere."""
    return True
