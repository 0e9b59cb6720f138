"""Flattening, and its inverse, under PyTorch's import path."""

from weft.nn._shape import Flatten as Flatten
from weft.nn._shape import Unflatten as Unflatten
