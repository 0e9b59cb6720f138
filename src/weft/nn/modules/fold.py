"""Sliding blocks, under PyTorch's import path."""

from weft.nn._shape import Fold as Fold
from weft.nn._shape import Unfold as Unfold
