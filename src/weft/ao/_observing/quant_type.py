"""Kinds of quantization."""

from __future__ import annotations

from enum import IntEnum


class QuantType(IntEnum):
    """When grids are chosen, and what is put on them."""

    DYNAMIC = 0
    STATIC = 1
    QAT = 2
    WEIGHT_ONLY = 3
