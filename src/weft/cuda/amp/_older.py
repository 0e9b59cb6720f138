"""Older spellings of `weft.amp` for "cuda", which warn."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

from weft import amp
from weft._base.dtype import DType, float16


def _deprecated(name: str, new: str) -> None:
    warnings.warn(
        f"`torch.cuda.amp.{name}(args...)` is deprecated. Please use `torch.amp.{new}` instead.",
        FutureWarning,
        stacklevel=3,
    )


class autocast(amp.autocast):
    """`amp.autocast("cuda", ...)`."""

    def __init__(self, enabled: bool = True, dtype: DType = float16, cache_enabled: bool = True) -> None:
        _deprecated("autocast", "autocast('cuda', args...)")
        super().__init__("cuda", enabled=enabled, dtype=dtype, cache_enabled=cache_enabled)


class GradScaler(amp.GradScaler):
    """`amp.GradScaler("cuda", ...)`."""

    def __init__(
        self,
        init_scale: float = 2.0**16,
        growth_factor: float = 2.0,
        backoff_factor: float = 0.5,
        growth_interval: int = 2000,
        enabled: bool = True,
    ) -> None:
        _deprecated("GradScaler", "GradScaler('cuda', args...)")
        super().__init__("cuda", init_scale, growth_factor, backoff_factor, growth_interval, enabled)


def custom_fwd(fwd: Callable[..., Any] | None = None, *, cast_inputs: DType | None = None) -> Callable[..., Any]:
    """`amp.custom_fwd(..., device_type="cuda")`."""
    _deprecated("custom_fwd", "custom_fwd(args..., device_type='cuda')")
    return amp.custom_fwd(fwd, device_type="cuda", cast_inputs=cast_inputs)


def custom_bwd(bwd: Callable[..., Any] | None = None) -> Callable[..., Any]:
    """`amp.custom_bwd(..., device_type="cuda")`."""
    _deprecated("custom_bwd", "custom_bwd(args..., device_type='cuda')")
    return amp.custom_bwd(bwd, device_type="cuda")
