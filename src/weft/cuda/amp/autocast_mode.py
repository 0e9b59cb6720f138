"""Older spellings of `weft.amp` for "cuda", which warn."""

from __future__ import annotations

from weft import amp
from weft._base.dtype import DType, float16
from weft._base.types import AnyCallable
from weft.amp._older import warn_deprecated


class autocast(amp.autocast):
    """`amp.autocast("cuda", ...)`."""

    def __init__(self, enabled: bool = True, dtype: DType = float16, cache_enabled: bool = True) -> None:
        warn_deprecated("cuda", "autocast", "autocast('cuda', args...)")
        super().__init__("cuda", enabled=enabled, dtype=dtype, cache_enabled=cache_enabled)


def custom_fwd(fwd: AnyCallable | None = None, *, cast_inputs: DType | None = None) -> AnyCallable:
    """`amp.custom_fwd(..., device_type="cuda")`."""
    warn_deprecated("cuda", "custom_fwd", "custom_fwd(args..., device_type='cuda')")
    return amp.custom_fwd(fwd, device_type="cuda", cast_inputs=cast_inputs)


def custom_bwd(bwd: AnyCallable | None = None) -> AnyCallable:
    """`amp.custom_bwd(..., device_type="cuda")`."""
    warn_deprecated("cuda", "custom_bwd", "custom_bwd(args..., device_type='cuda')")
    return amp.custom_bwd(bwd, device_type="cuda")
