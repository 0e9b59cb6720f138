"""Quantized tensors, which do not exist here. The engine is stored but has no effect."""

from __future__ import annotations

engine = "none"
supported_engines = ["none"]
