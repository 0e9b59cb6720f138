"""What the older spellings of `weft.amp`, under the names of devices, have in common: a warning."""

from __future__ import annotations

import warnings
from typing import ClassVar

from weft.amp.grad_scaler import GradScaler


def warn_deprecated(device: str, name: str, new: str) -> None:
    """Say that `<device>.amp.<name>` is an older spelling; the line is that of the caller's caller."""
    warnings.warn(
        f"`torch.{device}.amp.{name}(args...)` is deprecated. Please use `torch.amp.{new}` instead.",
        FutureWarning,
        stacklevel=3,
    )


class OlderGradScaler(GradScaler):
    """A `GradScaler` for one device."""

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
