"""Instance normalisation, under PyTorch's import path."""

from weft.nn._lazy_layers import LazyInstanceNorm1d as LazyInstanceNorm1d
from weft.nn._lazy_layers import LazyInstanceNorm2d as LazyInstanceNorm2d
from weft.nn._lazy_layers import LazyInstanceNorm3d as LazyInstanceNorm3d
from weft.nn._norm import InstanceNorm1d as InstanceNorm1d
from weft.nn._norm import InstanceNorm2d as InstanceNorm2d
from weft.nn._norm import InstanceNorm3d as InstanceNorm3d
from weft.nn._norm import _InstanceNorm as _InstanceNorm
