"""The older spelling of `weft.amp.GradScaler` for "cpu", which warns."""

from __future__ import annotations

from weft.amp._older import OlderGradScaler


class GradScaler(OlderGradScaler):
    """`amp.GradScaler("cpu", ...)`."""

    _device_type = "cpu"
