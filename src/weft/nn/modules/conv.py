"""Convolutions, under PyTorch's import path."""

from weft.nn._conv import Conv1d as Conv1d
from weft.nn._conv import Conv2d as Conv2d
from weft.nn._conv import Conv3d as Conv3d
from weft.nn._conv import ConvTranspose1d as ConvTranspose1d
from weft.nn._conv import ConvTranspose2d as ConvTranspose2d
from weft.nn._conv import ConvTranspose3d as ConvTranspose3d
from weft.nn._conv import _ConvNd as _ConvNd
from weft.nn._conv import _ConvTranspose as _ConvTransposeNd  # noqa: F401  what PyTorch calls it
from weft.nn._lazy_layers import LazyConv1d as LazyConv1d
from weft.nn._lazy_layers import LazyConv2d as LazyConv2d
from weft.nn._lazy_layers import LazyConv3d as LazyConv3d
from weft.nn._lazy_layers import LazyConvTranspose1d as LazyConvTranspose1d
from weft.nn._lazy_layers import LazyConvTranspose2d as LazyConvTranspose2d
from weft.nn._lazy_layers import LazyConvTranspose3d as LazyConvTranspose3d
