"""Affine layers, under PyTorch's import path."""

from weft.nn._lazy_layers import LazyLinear as LazyLinear
from weft.nn._linear import Bilinear as Bilinear
from weft.nn._linear import Identity as Identity
from weft.nn._linear import Linear as Linear
from weft.nn._linear import Linear as NonDynamicallyQuantizableLinear  # noqa: F401  in attention layers of files
