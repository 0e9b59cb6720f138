"""The base of `weft.cuda.amp` and `weft.cpu.amp`, deprecated names of `weft.amp` that warn."""

from __future__ import annotations

import warnings
from typing import ClassVar

from weft.amp.grad_scaler import GradScaler


def warn_deprecated(device: str, name: str, new: str) -> None:
    """Warn, at the line of the caller's caller, that `<device>.amp.<name>` is deprecated."""
    warnings.warn(
        f"`torch.{device}.amp.{name}(args...)` is deprecated. Please use `torch.amp.{new}` instead.",
        FutureWarning,
        stacklevel=3,
    )


class OlderGradScaler(GradScaler):
    """The deprecated `GradScaler` of a type of device."""

    _device_type: ClassVar[str]

    def __init__(
        self,
        init_scale: float = 2.0**16,
        growth_factor: float = 2.0,
        backoff_factor: float = 0.5,
        growth_interval: int = 2000,
        enabled: bool = True,
    ) -> None:
        device = self._device_type
        warn_deprecated(device, "GradScaler", f"GradScaler('{device}', args...)")
        super().__init__(device, init_scale, growth_factor, backoff_factor, growth_interval, enabled)
