"""Shuffling of channels, under PyTorch's import path."""

from weft.nn._shape import ChannelShuffle as ChannelShuffle
