"""Normalisation within samples, under PyTorch's import path."""

from weft.nn._norm import CrossMapLRN2d as CrossMapLRN2d
from weft.nn._norm import GroupNorm as GroupNorm
from weft.nn._norm import LayerNorm as LayerNorm
from weft.nn._norm import LocalResponseNorm as LocalResponseNorm
from weft.nn._norm import RMSNorm as RMSNorm
