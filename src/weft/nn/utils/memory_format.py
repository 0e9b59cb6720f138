"""Memory formats of weights."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from weft._base.layout import memory_format
from weft.nn._conv import Conv2d, Conv3d, ConvTranspose2d, ConvTranspose3d

if TYPE_CHECKING:
    from weft.nn._module import Module

M = TypeVar("M", bound="Module")


def convert_conv2d_weight_memory_format(module: M, memory_format: memory_format) -> M:
    """The module, with the weights of its 2D convolutions in this memory format."""
    return _converted(module, (Conv2d, ConvTranspose2d), memory_format)


def convert_conv3d_weight_memory_format(module: M, memory_format: memory_format) -> M:
    """The module, with the weights of its 3D convolutions in this memory format."""
    return _converted(module, (Conv3d, ConvTranspose3d), memory_format)


def _converted(module: M, kinds: tuple[type, ...], memory_format: memory_format) -> M:
    for each in module.modules():
        if isinstance(each, kinds):
            each.weight.data = each.weight.detach().clone().contiguous(memory_format=memory_format)
    return module
