"""Autocast for XLA devices, and the scaling of gradients."""

from __future__ import annotations

from weft import amp
from weft._base.device import DeviceLike, canonical
from weft._base.dtype import DType
from weft._base.types import Arg
from weft.errors import DeviceError


class autocast(amp.autocast):
    """`weft.amp.autocast` for XLA devices: a region, or a decorator. By default operators run in bfloat16."""

    def __init__(
        self, device: DeviceLike = "xla", enabled: bool = True, dtype: DType | None = None, cache_enabled: bool = True
    ) -> None:
        if canonical(device).type != "xla":
            raise DeviceError(f"autocast: an XLA device is needed, got {device}; for others there is weft.amp.autocast")
        super().__init__("xla", dtype, enabled, cache_enabled)


class GradScaler(amp.GradScaler):
    """`weft.amp.GradScaler` for XLA devices. `use_zero_grad` is accepted: a step is skipped without reading a value."""

    def __init__(self, *args: Arg, use_zero_grad: bool = False, **kwargs: Arg) -> None:
        del use_zero_grad
        super().__init__("xla", *args, **kwargs)
