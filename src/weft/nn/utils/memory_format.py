"""Memory formats of weights."""

from __future__ import annotations

from typing import Any

from weft.nn._conv import Conv2d, Conv3d, ConvTranspose2d, ConvTranspose3d


def convert_conv2d_weight_memory_format(module: Any, memory_format: Any) -> Any:
    """The module, with the weights of its 2D convolutions in this memory format."""
    return _converted(module, (Conv2d, ConvTranspose2d), memory_format)


def convert_conv3d_weight_memory_format(module: Any, memory_format: Any) -> Any:
    """The module, with the weights of its 3D convolutions in this memory format."""
    return _converted(module, (Conv3d, ConvTranspose3d), memory_format)


def _converted(module: Any, kinds: tuple[type, ...], memory_format: Any) -> Any:
    for each in module.modules():
        if isinstance(each, kinds):
            each.weight.data = each.weight.detach().clone().contiguous(memory_format=memory_format)
    return module
