"""Older spellings of `weft.amp` for "cpu", which warn."""

from __future__ import annotations

from weft import amp
from weft._base.dtype import DType, bfloat16
from weft.amp._older import warn_deprecated


class autocast(amp.autocast):
    """`amp.autocast("cpu", ...)`."""

    def __init__(self, enabled: bool = True, dtype: DType = bfloat16, cache_enabled: bool = True) -> None:
        warn_deprecated("cpu", "autocast", "autocast('cpu', args...)")
        super().__init__("cpu", enabled=enabled, dtype=dtype, cache_enabled=cache_enabled)
