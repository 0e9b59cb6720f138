"""Batch normalisation, under PyTorch's import path."""

from weft._base.exports import on_first_use as _on_first_use
from weft.nn._lazy_layers import LazyBatchNorm1d as LazyBatchNorm1d
from weft.nn._lazy_layers import LazyBatchNorm2d as LazyBatchNorm2d
from weft.nn._lazy_layers import LazyBatchNorm3d as LazyBatchNorm3d
from weft.nn._norm import BatchNorm1d as BatchNorm1d
from weft.nn._norm import BatchNorm2d as BatchNorm2d
from weft.nn._norm import BatchNorm3d as BatchNorm3d
from weft.nn._norm import _BatchNorm as _BatchNorm
from weft.nn._norm import _NormBase as _NormBase

__getattr__, __dir__ = _on_first_use(__name__, {"weft.distributed._sync_norm": ("SyncBatchNorm",)})
