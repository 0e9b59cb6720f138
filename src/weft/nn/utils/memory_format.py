"""Memory formats of weights. Values have no strides here, so the conversions change nothing."""

from __future__ import annotations

from typing import Any


def convert_conv2d_weight_memory_format(module: Any, memory_format: Any) -> Any:
    """The module itself: how weights lie in memory is the compiler's choice."""
    del memory_format
    return module


def convert_conv3d_weight_memory_format(module: Any, memory_format: Any) -> Any:
    """The module itself: how weights lie in memory is the compiler's choice."""
    del memory_format
    return module
