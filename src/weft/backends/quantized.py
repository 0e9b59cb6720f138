"""How quantized layers are computed: XLA computes all of them. The engine is stored, as a default of `QConfig`s."""

from __future__ import annotations

engine = "x86"
supported_engines = ["qnnpack", "onednn", "x86", "fbgemm"]
