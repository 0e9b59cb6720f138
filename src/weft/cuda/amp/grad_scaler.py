"""The older spelling of `weft.amp.GradScaler` for "cuda", which warns."""

from __future__ import annotations

from weft.amp._older import OlderGradScaler


class GradScaler(OlderGradScaler):
    """`amp.GradScaler("cuda", ...)`."""

    _device_type = "cuda"
