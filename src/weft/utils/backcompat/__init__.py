"""Warnings of programs that rely on what PyTorch 0.1 did."""

from weft.utils.backcompat._warnings import broadcast_warning as broadcast_warning
from weft.utils.backcompat._warnings import keepdim_warning as keepdim_warning
