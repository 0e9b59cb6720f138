"""Shuffling of pixels, under PyTorch's import path."""

from weft.nn._shape import PixelShuffle as PixelShuffle
from weft.nn._shape import PixelUnshuffle as PixelUnshuffle
