"""Resizing, under PyTorch's import path."""

from weft.nn._shape import Upsample as Upsample
from weft.nn._shape import UpsamplingBilinear2d as UpsamplingBilinear2d
from weft.nn._shape import UpsamplingNearest2d as UpsamplingNearest2d
