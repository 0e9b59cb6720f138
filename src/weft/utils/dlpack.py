"""Tensors as DLPack capsules, for code that passes capsules instead of tensors."""

from weft._tensor.protocols import from_dlpack as from_dlpack
from weft._tensor.protocols import to_dlpack as to_dlpack
