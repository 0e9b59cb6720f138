"""Older spellings of `weft.amp` for "cpu", which warn."""

from __future__ import annotations

import warnings

from weft import amp
from weft._base.dtype import DType, bfloat16


def _deprecated(name: str, new: str) -> None:
    warnings.warn(
        f"`torch.cpu.amp.{name}(args...)` is deprecated. Please use `torch.amp.{new}` instead.",
        FutureWarning,
        stacklevel=3,
    )


class autocast(amp.autocast):
    """`amp.autocast("cpu", ...)`."""

    def __init__(self, enabled: bool = True, dtype: DType = bfloat16, cache_enabled: bool = True) -> None:
        _deprecated("autocast", "autocast('cpu', args...)")
        super().__init__("cpu", enabled=enabled, dtype=dtype, cache_enabled=cache_enabled)


class GradScaler(amp.GradScaler):
    """`amp.GradScaler("cpu", ...)`."""

    def __init__(
        self,
        init_scale: float = 2.0**16,
        growth_factor: float = 2.0,
        backoff_factor: float = 0.5,
        growth_interval: int = 2000,
        enabled: bool = True,
    ) -> None:
        _deprecated("GradScaler", "GradScaler('cpu', args...)")
        super().__init__("cpu", init_scale, growth_factor, backoff_factor, growth_interval, enabled)
